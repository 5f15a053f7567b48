"""Hugging Face's own libraries read what Loom exports, and Loom reads what they save.

Run by ctest (label compat) with the environment variables
  LOOM_MAKE_FOLDERS  the helper that writes model folders,
  LOOM               the loom program; the logits tests need it and are skipped without it.
Reasons for skips are printed; a skip is never a silent pass.
"""

import json
import os
import random
import sys
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from common import HELPER, LOGIT_TOLERANCE, LOOM, run

KINDS = ["tied-grouped", "tied-full", "untied-grouped", "untied-full"]
SEED = 7


def odd_unicode(rng, length):
    """Random characters over all planes, without surrogates, with the ones that broke others."""
    odd = "\0\r\n\t\x0b\x85\u00a0\u00ad\u0301\u200d\u2028\u2029\ufeff\uffff  \U0010ffff'’\ufe0f"
    out = []
    while len(out) < length:
        pick = rng.random()
        code = rng.randrange(128) if pick < 0.4 else rng.randrange(0x110000)
        if pick > 0.8:
            out.append(rng.choice(odd))
        elif not 0xD800 <= code < 0xE000:
            out.append(chr(code))
    return "".join(out)


class HfFolderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.root = cls.scratch.name
        run(HELPER, cls.root)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def folder(self, kind):
        return os.path.join(self.root, kind)

    def loom_ids(self, folder, text):
        path = os.path.join(self.root, "text.txt")
        with open(path, "w", encoding="utf-8", newline="") as f:
            f.write(text)
        out = run(HELPER, "--tokenize", os.path.join(folder, "tokenizer.json"), path)
        return [int(x) for x in out.split()]

    def loom_logits(self, folder, ids):
        ids_path = os.path.join(self.root, "ids.json")
        logits_path = os.path.join(self.root, "logits.safetensors")
        with open(ids_path, "w") as f:
            json.dump(ids, f)
        run(LOOM, "eval", folder, "--ids", ids_path, "--logits", logits_path)
        return load_file(logits_path)["logits"]

    def test_exported_folder_loads_without_missing_or_unexpected_weights(self):
        for kind in KINDS:
            model, info = AutoModelForCausalLM.from_pretrained(
                self.folder(kind), dtype=torch.float32, output_loading_info=True)
            self.assertEqual(type(model).__name__, "LlamaForCausalLM")
            self.assertFalse(info["missing_keys"], kind)
            self.assertFalse(info["unexpected_keys"], kind)
            tied = model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
            self.assertEqual(tied, kind.startswith("tied"))
            theta = 500000.0 if kind.endswith("grouped") else 10000.0
            self.assertEqual(model.config.rope_parameters["rope_theta"], theta)
            expected = 1.0 / theta ** (torch.arange(0, 8, 2).float() / 8)
            torch.testing.assert_close(model.model.rotary_emb.inv_freq, expected)
            self.assertIsNone(model.generation_config.eos_token_id)

    def test_bytes_tokenizer_gives_the_same_ids(self):
        rng = random.Random(SEED)
        folder = self.folder("tied-grouped")
        raw = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        auto = AutoTokenizer.from_pretrained(folder)
        for length in [1, 2, 10, 1000, 20000]:
            text = odd_unicode(rng, length)
            ids = self.loom_ids(folder, text)
            self.assertEqual(ids, list(text.encode()))
            self.assertEqual(raw.encode(text).ids, ids)
            self.assertEqual(auto(text)["input_ids"], ids)
            self.assertEqual(auto.decode(ids), text)
        self.assertEqual(len(auto), 256)

    def test_chars_tokenizer_gives_the_same_ids(self):
        rng = random.Random(SEED)
        folder = self.folder("untied-full")
        raw = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        auto = AutoTokenizer.from_pretrained(folder)
        characters = sorted(raw.get_vocab())
        self.assertEqual([raw.token_to_id(c) for c in characters], list(range(len(characters))))
        for length in [1, 2, 10, 1000, 20000]:
            text = "".join(rng.choice(characters) for _ in range(length))
            ids = self.loom_ids(folder, text)
            self.assertEqual(raw.encode(text).ids, ids)
            self.assertEqual(auto(text)["input_ids"], ids)
            self.assertEqual(auto.decode(ids), text)

    def test_an_unseen_character_is_an_error_on_both_sides(self):
        folder = self.folder("untied-full")
        raw = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        with self.assertRaises(Exception):
            raw.encode("Q\u0416")
        with self.assertRaisesRegex(AssertionError, "U\\+0416"):
            self.loom_ids(folder, "The \u0416")

    def test_loom_reads_what_transformers_saves(self):
        for kind in KINDS:
            model = AutoModelForCausalLM.from_pretrained(self.folder(kind), dtype=torch.float32)
            saved = os.path.join(self.root, "saved-" + kind)
            model.save_pretrained(saved, max_shard_size="40KB")
            AutoTokenizer.from_pretrained(self.folder(kind)).save_pretrained(saved)
            self.assertTrue(os.path.exists(os.path.join(saved, "model.safetensors.index.json")))
            for folder in (self.folder(kind), saved):
                run(HELPER, "--import", folder)
            read = [np.fromfile(os.path.join(f, "loom_weights.bin"), dtype=np.float32)
                    for f in (self.folder(kind), saved)]
            np.testing.assert_array_equal(read[0].view(np.uint32), read[1].view(np.uint32))
            os.remove(os.path.join(self.folder(kind), "loom_weights.bin"))
            text = "The lazy dog"
            self.assertEqual(self.loom_ids(saved, text), self.loom_ids(self.folder(kind), text))

    @unittest.skipUnless(LOOM and os.path.exists(LOOM), f"no loom program at '{LOOM}'")
    def test_logits_agree_on_redrawn_parameters(self):
        rng = random.Random(SEED)
        for kind in KINDS:
            model = AutoModelForCausalLM.from_pretrained(self.folder(kind), dtype=torch.float32)
            for length in [1, 5, 96]:
                ids = [rng.randrange(model.config.vocab_size) for _ in range(length)]
                with torch.no_grad():
                    want = model(torch.tensor([ids])).logits[0].numpy()
                got = self.loom_logits(self.folder(kind), ids)
                self.assertEqual(got.shape, want.shape)
                worst = float(np.abs(got - want).max())
                print(f"{kind} T={length}: max |difference| {worst:.2e}, "
                      f"max |logit| {float(np.abs(want).max()):.2f}")
                self.assertLess(worst, LOGIT_TOLERANCE)

    @unittest.skipUnless(LOOM and os.path.exists(LOOM), f"no loom program at '{LOOM}'")
    def test_logits_agree_on_scaled_rope(self):
        torch.manual_seed(SEED)
        scalings = [
            {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "rope_theta": 10000.0,
             "high_freq_factor": 4.0, "original_max_position_embeddings": 32},
        ]
        for scaling in scalings:
            config = LlamaConfig(vocab_size=61, hidden_size=48, intermediate_size=64,
                                 num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                                 head_dim=16, max_position_embeddings=128, rope_parameters=scaling)
            model = LlamaForCausalLM(config).eval()
            with torch.no_grad():
                for p in model.parameters():
                    if p.dim() == 2:
                        p.normal_(0, 2 / p.shape[1] ** 0.5)
                    else:
                        p.uniform_(0.5, 1.5)
            saved = os.path.join(self.root, "scaled-" + scaling["rope_type"])
            model.save_pretrained(saved)
            ids = [random.Random(SEED).randrange(61) for _ in range(100)]
            with torch.no_grad():
                want = model(torch.tensor([ids])).logits[0].numpy()
            worst = float(np.abs(self.loom_logits(saved, ids) - want).max())
            print(f"{scaling['rope_type']}: max |difference| {worst:.2e}")
            self.assertLess(worst, LOGIT_TOLERANCE)


if __name__ == "__main__":
    print(f"seed {SEED}, torch {torch.__version__}, python {sys.version.split()[0]}")
    unittest.main(verbosity=2)
