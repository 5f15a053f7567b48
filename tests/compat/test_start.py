"""Runs that start from a published model: made by transformers, checked by `loom import`, trained alone and by two peers
that end with the same bits, the first loss the one of transformers, exports that transformers loads; and what happens when
the model's folder goes away, or a byte of the run's own copy changes. LOOM is the program."""

import json
import os
import shutil
import signal
import time
import unittest

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from common import LOOM
from runs import CHAT, CONTEXT, TEXT, VOCAB, RunTest

PIECE = 1 << 20
WORKERS = 2
CORRUPT = 5  # exit codes, docs/cli.md
INVALID = 3
CONFLICT = 11


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


class StartTest(RunTest):
    def run_toml(self, rounds, more=""):
        path = self.path(f"run-{rounds}.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"[model]\nfrom = \"model\"\ncontext = {CONTEXT}\n{more}"
                       f"[data]\npaths = \"text.txt\"\nval_fraction = 0\n"
                       f"[optim]\nbatch = {self.batch}\nlr = 1e-3\nschedule = \"constant\"\nwarmup_tokens = 0\n"
                       f"[sync]\npreset = \"allreduce\"\nworkers = {WORKERS}\nrounds = {rounds}\n"
                       "[local]\nthreads = 1\n")
        return path

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
