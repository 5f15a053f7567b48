"""Runs that start from a published model: made by transformers, checked by `loom import`, trained alone and by two peers
that end with the same bits, the first loss the one of transformers, exports that transformers loads; and what happens when
the model's folder goes away, or a byte of the run's own copy changes. LOOM is the program."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (AutoModelForCausalLM, AutoTokenizer, GPT2Config, LlamaConfig,
                          PreTrainedTokenizerFast)

from common import LOOM

PIECE = 1 << 20
CONTEXT = 32
VOCAB = 512  # of the models: more than the tokenizer has, as published ones often do
WORKERS = 2
TEXT = "".join(f"It is a truth universally acknowledged, that number {i} is followed by {i + 1}.\n" for i in range(60))
CHAT = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
        "{% endfor %}")
CORRUPT = 5  # exit codes, docs/cli.md
INVALID = 3
CONFLICT = 11


def make_tokenizer():
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator([TEXT], trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    return PreTrainedTokenizerFast(tokenizer_object=bpe, chat_template=CHAT, eos_token="<|endoftext|>",
                                   pad_token="<|im_end|>")


def make_model(kind, tied):
    if kind == "llama":
        config = LlamaConfig(vocab_size=VOCAB, hidden_size=128, intermediate_size=384, num_hidden_layers=3,
                             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                             tie_word_embeddings=tied, eos_token_id=0, bos_token_id=None, pad_token_id=2)
    else:
        config = GPT2Config(vocab_size=VOCAB, n_positions=128, n_embd=128, n_layer=3, n_head=4, resid_pdrop=0,
                            embd_pdrop=0, attn_pdrop=0, tie_word_embeddings=tied, eos_token_id=0, bos_token_id=None)
    torch.manual_seed(17)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.05)
    model.generation_config.update(do_sample=True, top_k=23)
    return model.to(torch.bfloat16 if kind == "llama" else torch.float32).eval()


def philox(seed, stream, counter=0):
    """agreed::Philox::U64."""
    c = [counter & 0xffffffff, counter >> 32, stream & 0xffffffff, stream >> 32]
    k = [seed & 0xffffffff, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xffffffff, (a >> 32) ^ c[3] ^ k[1], a & 0xffffffff]
        k = [(k[0] + 0x9E3779B9) & 0xffffffff, (k[1] + 0xBB67AE85) & 0xffffffff]
    return c[1] << 32 | c[0]


def windows_of(ids, passes, seed=1):
    """The windows that a pass over the tokens draws, in any order (src/data/sampler.h)."""
    count = (len(ids) - CONTEXT) // CONTEXT
    room = min(CONTEXT, len(ids) - count * CONTEXT)
    for number in range(passes):
        shift = philox(seed, (0x53484654 << 32) ^ number) * room >> 64
        for k in range(count):
            yield ids[k * CONTEXT + shift:(k + 1) * CONTEXT + shift + 1]


def content(path):
    with open(path, "rb") as file:
        return file.read()


class Peer:
    """A loom process whose events come in on a thread."""

    def __init__(self, home, *args):
        self.events, self.lock = [], threading.Condition()
        self.child = subprocess.Popen([LOOM, *args, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                      env={**os.environ, "HOME": home, "XDG_CONFIG_HOME": ""})
        self.log = ""
        self.threads = [threading.Thread(target=self.take), threading.Thread(target=self.keep)]
        for thread in self.threads:
            thread.start()

    def take(self):
        for line in self.child.stdout:
            with self.lock:
                self.events.append(json.loads(line))
                self.lock.notify_all()
        with self.lock:
            self.events.append({"event": "end of output"})
            self.lock.notify_all()

    def keep(self):
        for line in self.child.stderr:
            self.log += line

    def until(self, condition, seconds=60):
        with self.lock:
            found = lambda: next((e for e in self.events if condition(e)), None)
            ended = lambda: self.events and self.events[-1]["event"] == "end of output"
            self.lock.wait_for(lambda: found() or ended(), seconds)
            if not found():
                raise AssertionError(f"{self.child.args}: {self.events[-5:]}\n{self.log[-3000:]}")
            return found()

    def until_round(self, number):
        return self.until(lambda e: e.get("event") == "round" and e["round"] >= number)

    def wait(self, seconds=60):
        code = self.child.wait(seconds)
        for thread in self.threads:
            thread.join()
        self.child.stdout.close()
        self.child.stderr.close()
        return code


@unittest.skipUnless(LOOM and os.path.exists(LOOM), f"no loom program at '{LOOM}'")
class StartTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.root = self.scratch.name
        self.peers = []
        self.tokenizer = make_tokenizer()
        self.model_path = self.path("model")
        with open(self.path("text.txt"), "w", encoding="utf-8") as file:
            file.write(TEXT)
        self.ids = self.tokenizer(TEXT)["input_ids"]
        self.batch = (len(self.ids) - CONTEXT) // CONTEXT  # a worker's step is a pass

    def tearDown(self):
        for peer in self.peers:
            with contextlib.suppress(ProcessLookupError):
                peer.child.kill()
            peer.wait()
        self.scratch.cleanup()

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def loom(self, *args, code=0):
        done = subprocess.run([LOOM, *args], capture_output=True, text=True, timeout=120, cwd=self.root,
                              env={**os.environ, "HOME": self.root, "XDG_CONFIG_HOME": ""})
        self.assertEqual(done.returncode, code, f"{args}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
        return done

    def start(self, *args):
        self.peers.append(Peer(self.root, *args))
        return self.peers[-1]

    def save(self, kind, tied):
        model = make_model(kind, tied)
        model.save_pretrained(self.model_path, max_shard_size="600KB" if kind == "llama" else "1GB")
        self.tokenizer.save_pretrained(self.model_path)
        self.assertEqual(kind == "llama", os.path.exists(os.path.join(self.model_path, "model.safetensors.index.json")))
        return model.float()

    def run_toml(self, rounds, more=""):
        path = self.path(f"run-{rounds}.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"[model]\nfrom = \"model\"\ncontext = {CONTEXT}\n{more}"
                       f"[data]\npaths = \"text.txt\"\nval_fraction = 0\n"
                       f"[optim]\nbatch = {self.batch}\nlr = 1e-3\nschedule = \"constant\"\nwarmup_tokens = 0\n"
                       f"[sync]\npreset = \"allreduce\"\nworkers = {WORKERS}\nrounds = {rounds}\n"
                       "[local]\nthreads = 1\n")
        return path

    def roots(self, folder):
        lines = self.loom("log", "--dir", folder, "--json").stdout.splitlines()
        return {record["round"]: record for record in map(json.loads, lines)}

    def same_tokens_loss(self, model):
        losses = []
        for window in windows_of(self.ids, WORKERS):
            with torch.no_grad():
                losses.append(model(torch.tensor([window]), labels=torch.tensor([window])).loss.item())
        self.assertEqual(len(losses), WORKERS * self.batch)
        return sum(losses) / len(losses)

    def check_export(self, folder, kind):
        out = self.path("exported")
        self.loom("export", folder, "--out", out)
        again, info = AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32, output_loading_info=True)
        self.assertFalse(info["missing_keys"])
        self.assertFalse(info["unexpected_keys"])
        self.assertEqual(again.config.model_type, kind)
        self.assertEqual(again.config.max_position_embeddings, 128)
        self.assertEqual(again.config.eos_token_id, 0)
        self.assertEqual(again.generation_config.top_k, 23)
        tokenizer = AutoTokenizer.from_pretrained(out)
        self.assertEqual(tokenizer.chat_template, CHAT)
        self.assertEqual((tokenizer.eos_token, tokenizer.pad_token), ("<|endoftext|>", "<|im_end|>"))
        self.assertEqual(tokenizer(TEXT)["input_ids"], self.ids)
        mine = json.loads(self.loom("eval", folder, "--text", self.path("text.txt"), "--json").stdout)["loss"]
        total = 0.0
        for at in range(0, len(self.ids) - 1, CONTEXT):
            window = torch.tensor([self.ids[at:at + CONTEXT + 1]])
            with torch.no_grad():
                total += again.eval()(window, labels=window).loss.item() * (window.shape[1] - 1)
        self.assertAlmostEqual(mine, total / (len(self.ids) - 1), delta=1e-3)
        shutil.rmtree(out)

    def test_alone_and_in_a_swarm_from_the_same_first_state(self):
        for kind, tied in (("llama", True), ("llama", False), ("gpt2", True), ("gpt2", False)):
            with self.subTest(kind=kind, tied=tied):
                self.alone_and_swarm(kind, self.save(kind, tied))
            self.tearDown()
            self.setUp()

    def alone_and_swarm(self, kind, model):
        alone = self.path("alone")
        events = [json.loads(line) for line in
                  self.loom("train", self.run_toml(3), "--dir", alone, "--json").stdout.splitlines()]
        loss = next(e["loss"] for e in events if e.get("event") == "round" and e["round"] == 1)
        want = self.same_tokens_loss(model)
        print(f"{kind}: loss of round 1 {loss:.6f}, of transformers on its tokens {want:.6f}")
        self.assertAlmostEqual(loss, want, delta=1e-3)
        self.check_export(alone, kind)

        host = self.start("host", self.run_toml(0), "--dir", self.path("host"), "--listen", "127.0.0.1:0")
        invite = host.until(lambda e: e.get("event") == "invite")["invite"]
        host.until_round(2)
        os.rename(self.model_path, self.path("away"))  # the run has its own
        joiner = self.start("join", invite, "--dir", self.path("joiner"), "--threads", "1")
        peer = joiner.until(lambda e: e.get("event") == "started")["peer"]
        worked = lambda: any(c["peer"] == peer for r in self.roots(self.path("joiner")).values() for c in r["contributors"])
        for _ in range(120):
            joiner.until(lambda e: e.get("event") == "round")
            if worked():
                break
            time.sleep(0.5)
        self.assertTrue(worked(), joiner.log)
        self.loom("amend", f"sync.rounds={host.events[-1]['round'] + 4}", "--dir", self.path("host"))
        self.assertEqual([host.wait(), joiner.wait()], [0, 0], host.log + joiner.log)
        records, joined, first = (self.roots(self.path(name)) for name in ("host", "joiner", "alone"))
        last = max(records)
        self.assertEqual(last, max(joined))
        for number in range(last + 1):
            self.assertEqual(records[number]["root"], joined[number]["root"], number)
        for number in range(4):  # exact mode: whoever comes and goes
            self.assertEqual(records[number]["root"], first[number]["root"], number)
        kept = [content(self.path(name, "start", "model.safetensors")) for name in ("alone", "host", "joiner")]
        self.assertEqual(kept[0], kept[1])
        self.assertEqual(kept[1], kept[2])
        self.assertGreater(len(kept[2]), PIECE, "fetched in several pieces")
        self.check_export(self.path("joiner"), kind)
        print(f"{kind}: {last} rounds by two peers, the joiner fetched {len(kept[2]) / PIECE:.1f} pieces")

    def test_the_folder_may_go_and_damage_is_named(self):
        self.save("llama", True)
        run, folder = self.run_toml(0), self.path("peer")
        peer = self.start("train", run, "--dir", folder)
        peer.until_round(2)
        peer.child.send_signal(signal.SIGKILL)
        peer.wait()
        self.assertEqual(os.listdir(os.path.join(folder, "checkpoints")), [], "killed before the first checkpoint")
        os.rename(self.model_path, self.path("away"))
        before = max(self.roots(folder))
        peer = self.start("train", run, "--dir", folder)
        peer.until_round(before + 2)
        peer.child.send_signal(signal.SIGKILL)
        peer.wait()
        self.loom("train", self.run_toml(0), "--dir", self.path("other"), code=4)

        kept = os.path.join(folder, "start", "model.safetensors")
        with open(kept, "r+b") as file:
            file.seek(PIECE + 5)
            byte = file.read(1)[0]
            file.seek(PIECE + 5)
            file.write(bytes([byte ^ 4]))
        said = self.loom("train", run, "--dir", folder, code=CORRUPT).stderr
        self.assertIn(kept, said)
        self.assertIn("bring back the model", said)
        self.assertIn(kept, self.loom("export", folder, "--out", self.path("out"), code=CORRUPT).stderr)
        os.rename(self.path("away"), self.model_path)
        peer = self.start("train", run, "--dir", folder)
        peer.until_round(max(self.roots(folder)) + 1)
        peer.child.send_signal(signal.SIGINT)
        self.assertEqual(peer.wait(), 0, peer.log)
        self.assertIn(f"{kept} was damaged or missing: made again", peer.log)

    def test_import_explains_and_prepares_a_run(self):
        model = self.save("llama", True)
        found = json.loads(self.loom("import", self.model_path, "--json").stdout)
        for key, value in {"family": "llama", "dtype": "bf16", "context": 128, "vocab": VOCAB, "tied": True,
                           "parameters": model.num_parameters(), "tokenizer": "bpe", "tokenizer_vocab": len(self.tokenizer),
                           "chat": "chatml", "refused": []}.items():
            self.assertEqual(found[key], value, key)
        self.assertNotIn("run_toml", found)
        out = self.path("tuned")
        self.loom("import", "model", "--data", "text.txt", "--out", "tuned")
        run = os.path.join(out, "run.toml")
        text = content(run).decode()
        self.assertIn('from = "../model"', text)
        self.assertIn('paths = ["../text.txt"]', text)
        self.assertIn('separator = "<|endoftext|>"', text)
        self.assertIn("context = 128", text)
        self.assertIn("exists", self.loom("import", self.model_path, "--out", out, code=CONFLICT).stderr)
        self.assertEqual(content(run).decode(), text)
        plan = json.loads(self.loom("train", run, "--dry-run", "--json").stdout)
        self.assertEqual(plan["parameters"], model.num_parameters())
        self.loom("import", self.model_path, "--out", self.path("bare"))
        self.assertIn("data.paths is empty", self.loom("train", self.path("bare", "run.toml"), "--dir", self.path("no"),
                                                       code=INVALID).stderr)
        self.assertIn("model.layers = 2", self.loom("train", self.run_toml(3, "layers = 2\n"), "--dir", self.path("no"),
                                                    code=INVALID).stderr)

        config = json.loads(content(os.path.join(self.model_path, "config.json")))
        for key, value in {"hidden_act": "gelu", "model_type": "mamba"}.items():
            with open(os.path.join(self.model_path, "config.json"), "w", encoding="utf-8") as file:
                json.dump({**config, key: value}, file)
            self.assertIn(key, self.loom("import", self.model_path, code=INVALID).stderr)
        with open(os.path.join(self.model_path, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        os.remove(os.path.join(self.model_path, "tokenizer.json"))
        refused = self.loom("import", self.model_path, "--out", self.path("never"), "--json", code=4).stdout.splitlines()
        self.assertIn("tokenizer.json", json.loads(refused[0])["refused"][0]["message"])
        self.assertIn("error", json.loads(refused[-1]))
        self.assertFalse(os.path.exists(self.path("never")))

    def test_in_one_process_without_peers(self):
        model = self.save("gpt2", True)
        out = self.path("one")
        events = self.loom("train", self.run_toml(3), "--dir", out, "--one-process", "--workers", str(WORKERS), "--json")
        first = json.loads(events.stdout.splitlines()[0])
        self.assertAlmostEqual(first["loss"], self.same_tokens_loss(model), delta=1e-3)
        self.assertEqual(AutoTokenizer.from_pretrained(os.path.join(out, "model")).chat_template, CHAT)


if __name__ == "__main__":
    unittest.main()
