"""Every family of models: Loom's logits on what transformers saves, transformers' logits on what Loom
exports, greedy text, and proof that the comparison notices each mistake.

Run by ctest (label compat) with LOOM, the loom program, and LOOM_MAKE_FOLDERS, which makes the
tokenizer. Reasons for skips are printed; a skip is never a silent pass.
"""

import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
from safetensors.numpy import load_file
from transformers import (AutoModelForCausalLM, AutoTokenizer, LlamaConfig,
                          LlamaForCausalLM)

import families
from common import HELPER, LOGIT_TOLERANCE, LOOM, run



def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def worst(a, b):
    return float(np.abs(a - b).max())


@unittest.skipUnless(LOOM and os.path.exists(LOOM), f"no loom program at '{LOOM}'")
class FamiliesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.root = cls.scratch.name
        run(HELPER, os.path.join(cls.root, "loom"))
        rng = random.Random(families.SEED)
        cls.ids = [rng.randrange(families.VOCAB) for _ in range(200)]

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def save(self, model, name, **options):
        folder = os.path.join(self.root, name)
        model.save_pretrained(folder, **options)
        shutil.copy(os.path.join(self.root, "loom", "tied-grouped", "tokenizer.json"), folder)
        return folder

    def loom_logits(self, folder):
        ids_path = os.path.join(self.root, "ids.json")
        logits_path = os.path.join(self.root, "logits.safetensors")
        with open(ids_path, "w") as f:
            json.dump(self.ids, f)
        run(LOOM, "eval", folder, "--ids", ids_path, "--logits", logits_path)
        return load_file(logits_path)["logits"]

    def each(self, check):
        for case in families.CASES:
            for tied in (True, False):
                with self.subTest(case=case, tied=tied):
                    check(f"{case}-{'tied' if tied else 'untied'}", families.make(case, tied))

    def test_logits_agree_and_would_not_with_any_mistake(self):
        def check(name, model):
            loom = self.loom_logits(self.save(model, name))
            difference = worst(loom, logits_of(model, self.ids))
            seen = {}
            for mistake in families.mistakes(model):
                wrong = copy.deepcopy(model)
                with torch.no_grad():
                    families.mistakes(wrong)[mistake]()
                seen[mistake] = worst(loom, logits_of(wrong, self.ids))
            least = min(seen, key=seen.get)
            print(f"{name}: max |difference| {difference:.1e}, max |logit| "
                  f"{np.abs(loom).max():.1f}; of {len(seen)} mistakes the least seen is "
                  f"'{least}' with {seen[least]:.1e}")
            self.assertLess(difference, LOGIT_TOLERANCE)
            for mistake, change in seen.items():
                self.assertGreater(change, LOGIT_TOLERANCE, mistake)
        self.each(check)

    def test_transformers_reads_what_loom_exports(self):
        def check(name, model):
            saved = self.save(model, name + "-saved", max_shard_size="20KB")
            self.assertTrue(os.path.exists(os.path.join(saved, "model.safetensors.index.json")))
            exported = os.path.join(self.root, name + "-exported")
            run(LOOM, "export", saved, "--out", exported)
            again, info = AutoModelForCausalLM.from_pretrained(
                exported, dtype=torch.float32, output_loading_info=True)
            self.assertEqual(type(again), type(model))
            self.assertFalse(info["missing_keys"])
            self.assertFalse(info["unexpected_keys"])
            before, after = model.state_dict(), again.state_dict()
            self.assertEqual(sorted(before), sorted(after))
            for key in before:
                self.assertTrue(torch.equal(before[key], after[key]), key)
            np.testing.assert_array_equal(logits_of(model, self.ids), logits_of(again, self.ids))
            self.assertLess(worst(self.loom_logits(exported), logits_of(model, self.ids)),
                            LOGIT_TOLERANCE)
        self.each(check)

    def test_greedy_text_is_the_same_token_by_token(self):
        prompt = "It was a truth universally acknowledged"
        def check(name, model):
            out = json.loads(run(LOOM, "generate", self.save(model, name), "--prompt", prompt,
                                 "--tokens", "200", "--greedy", "--json"))
            self.assertEqual(out["prompt_ids"], list(prompt.encode()))
            with torch.no_grad():
                want = model.generate(torch.tensor([out["prompt_ids"]]), max_new_tokens=200,
                                      do_sample=False, pad_token_id=0)
            self.assertEqual(out["ids"], want[0, len(out["prompt_ids"]):].tolist())
            print(f"{name}: 200 equal tokens, {len(set(out['ids']))} kinds")
        self.each(check)

    def test_a_checkpoint_keeps_its_bits_in_its_own_format(self):
        for dtype in (torch.bfloat16, torch.float16):
            def check(name, model):
                saved = self.save(model.to(dtype), f"{name}-{dtype}", max_shard_size="20KB")
                exported = os.path.join(self.root, f"{name}-{dtype}-exported")
                run(LOOM, "export", saved, "--out", exported, "--shard-size", "30k")
                again = AutoModelForCausalLM.from_pretrained(exported, dtype="auto")
                before, after = model.state_dict(), again.state_dict()
                self.assertEqual(sorted(before), sorted(after))
                for key in before:
                    self.assertEqual(after[key].dtype, dtype, key)
                    self.assertTrue(torch.equal(before[key].view(torch.int16),
                                                after[key].view(torch.int16)), key)
            self.each(check)

    def test_rounding_to_another_format_is_torchs(self):
        model = families.make("llama", False)
        saved = self.save(model, "rounded")
        for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16)):
            exported = os.path.join(self.root, "rounded-" + name)
            run(LOOM, "export", saved, "--out", exported, "--dtype", name)
            again = AutoModelForCausalLM.from_pretrained(exported, dtype="auto").state_dict()
            for key, value in model.state_dict().items():
                self.assertTrue(torch.equal(value.to(dtype), again[key]), f"{name} {key}")

    def test_chat_template_and_generation_settings_go_along(self):
        saved = self.save(families.make("qwen2", True), "chat")
        kept = {"tokenizer_config.json": json.dumps({
                    "tokenizer_class": "PreTrainedTokenizerFast",
                    "chat_template": "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
                                     "{% endfor %}"}),
                "generation_config.json": json.dumps({"temperature": 0.6, "do_sample": True,
                                                      "eos_token_id": [2, 7]})}
        for name, text in kept.items():
            with open(os.path.join(saved, name), "w") as f:
                f.write(text)
        exported = os.path.join(self.root, "chat-exported")
        run(LOOM, "export", saved, "--out", exported)
        for name, text in kept.items():
            with open(os.path.join(exported, name)) as f:
                self.assertEqual(f.read(), text)
        said = AutoTokenizer.from_pretrained(exported).apply_chat_template(
            [{"role": "user", "content": "hi"}], tokenize=False)
        self.assertEqual(said, "<user>hi")
        model = AutoModelForCausalLM.from_pretrained(exported)
        self.assertEqual(model.generation_config.eos_token_id, [2, 7])

    def test_export_needs_little_memory(self):
        vocab, width = 1 << 20, 128
        config = LlamaConfig(vocab_size=vocab, hidden_size=width, intermediate_size=64,
                             num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=4,
                             max_position_embeddings=64, tie_word_embeddings=True)
        model = LlamaForCausalLM(config)
        saved = self.save(model, "large")
        parameters = sum(p.numel() for p in model.parameters())
        del model
        exporting = subprocess.Popen([LOOM, "export", saved, "--out",
                                      os.path.join(self.root, "large-exported"), "--dtype", "bf16"])
        peak = 0
        while exporting.poll() is None:
            with open(f"/proc/{exporting.pid}/status") as f:
                anon = [int(line.split()[1]) for line in f if line.startswith("RssAnon")]
            peak = max([peak, *anon])
            time.sleep(0.002)
        self.assertEqual(exporting.returncode, 0)
        limit = 1.2 * 2 * parameters + 200e6
        print(f"{parameters / 1e6:.0f} M parameters to bf16: peak RssAnon {peak * 1024 / 1e6:.0f} "
              f"MB, limit {limit / 1e6:.0f} MB")
        self.assertGreater(peak, 0)
        self.assertLess(peak * 1024, limit)


if __name__ == "__main__":
    print(f"seed {families.SEED}, torch {torch.__version__}, python {sys.version.split()[0]}")
    unittest.main(verbosity=2)
