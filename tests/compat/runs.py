"""What tests of runs that start from a published model share: small models of transformers with a tokenizer, loom processes
whose events are read, and a folder for both. LOOM is the program."""

import contextlib
import json
import os
import subprocess
import tempfile
import threading
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, PreTrainedTokenizerFast

from common import LOOM

CONTEXT = 32
VOCAB = 512  # of the models: more than the tokenizer has, as published ones often do
TEXT = "".join(f"It is a truth universally acknowledged, that number {i} is followed by {i + 1}.\n" for i in range(60))
CHAT = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
        "{% endfor %}")


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
class RunTest(unittest.TestCase):
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

    def roots(self, folder):
        lines = self.loom("log", "--dir", folder, "--json").stdout.splitlines()
        return {record["round"]: record for record in map(json.loads, lines)}
