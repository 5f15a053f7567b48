"""LoRA and freezing on models of transformers: tuned alone and by three peers of whom one is killed, the adapter loaded by
PEFT with equal logits, the merged model too; adapters of PEFT's merged by Loom; frozen parameters that keep their bits."""

import json
import os
import signal
import unittest

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from common import LOGIT_TOLERANCE
from runs import CONTEXT, RunTest

try:
    import peft
except ImportError:
    peft = None

LORA = '[tune]\nlora_rank = 4\nlora_alpha = 16\n'
INVALID = 3  # exit codes, docs/cli.md
CONFLICT = 11


class LoraTest(RunTest):
    def run_toml(self, rounds, tune, method):
        path = self.path("run.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'[model]\nfrom = "model"\ncontext = {CONTEXT}\n{tune}'
                       '[data]\npaths = "text.txt"\nval_fraction = 0.1\n'
                       '[optim]\nbatch = 4\nlr = 5e-3\nschedule = "constant"\nwarmup_tokens = 0\n'
                       f'[sync]\n{method}rounds = {rounds}\n'
                       '[local]\nthreads = 1\ncheckpoint_every = 2\n')
        return path

    def logits(self, model):
        """Of a folder of Loom's or transformers', by Loom; or of a model in memory."""
        ids = self.ids[:CONTEXT]
        if isinstance(model, torch.nn.Module):
            with torch.no_grad():
                return model.eval()(torch.tensor([ids])).logits[0].float()
        with open(self.path("ids.json"), "w", encoding="utf-8") as file:
            json.dump(ids, file)
        self.loom("eval", model, "--ids", self.path("ids.json"), "--logits", self.path("logits.safetensors"))
        return load_file(self.path("logits.safetensors"))["logits"].reshape(len(ids), -1)

    def assert_close(self, a, b):
        self.assertLess((a - b).abs().max().item(), LOGIT_TOLERANCE * max(1.0, b.abs().max().item()))

    def base(self):
        return AutoModelForCausalLM.from_pretrained(self.model_path, dtype=torch.float32)

    def check_adapter(self, folder, base):
        """What Loom computes with the adapter, PEFT and the merged model compute as well."""
        mine = self.logits(folder)
        self.assertGreater((mine - self.logits(base)).abs().max().item(), 0.05)  # it has learned something
        adapter, merged = self.path("adapter"), self.path("merged")
        self.loom("export", folder, "--out", adapter, "--adapter", "--base", self.model_path)
        with_adapter = peft.PeftModel.from_pretrained(self.base(), adapter)
        self.assert_close(mine, self.logits(with_adapter))
        self.loom("export", folder, "--out", merged)
        self.assert_close(mine, self.logits(AutoModelForCausalLM.from_pretrained(merged, dtype=torch.float32)))
        self.loom("export", self.model_path, "--out", self.path("again"), "--merge", adapter, "--dtype", "fp32")
        self.assert_close(mine, self.logits(self.path("again")))
        return adapter

    @unittest.skipIf(peft is None, "skipped: no peft")
    def test_three_peers_tune_and_one_is_killed(self):
        base = self.save("llama", True)
        toml = self.run_toml(24, LORA, 'inner_steps = 8\n')
        host = self.start("host", toml, "--dir", self.path("host"), "--listen", "127.0.0.1:0")
        invite = host.until(lambda e: e.get("event") == "invite")["invite"]
        others = [self.start("join", invite, "--dir", self.path(name), "--listen", "127.0.0.1:0")
                  for name in ("second", "third")]
        for peer in (host, *others):
            peer.until(lambda e: e.get("event") == "round" and e.get("peers") == 3)
        others[1].child.send_signal(signal.SIGKILL)
        others[1].wait()
        for peer in (host, others[0]):
            self.assertEqual(peer.wait(120), 0, peer.log[-2000:])
        roots = self.roots(self.path("host"))
        self.assertEqual(roots[24]["root"], self.roots(self.path("second"))[24]["root"])
        sent = host.events[-2].get("bytes_sent") or max(e.get("bytes_sent") or 0 for e in host.events)
        whole = sum(p.numel() for p in base.parameters())
        self.assertLess(sent, 24 * whole, "only the additions travel")
        self.check_adapter(self.path("host"), base)

    @unittest.skipIf(peft is None, "skipped: no peft")
    def test_gpt2_alone_with_some_targets_in_exact_mode(self):
        base = self.save("gpt2", False)
        toml = self.run_toml(20, LORA + 'lora_targets = ["c_attn", "mlp.c_proj"]\n', 'preset = "allreduce"\nworkers = 2\n')
        self.loom("train", toml, "--dir", self.path("alone"))
        adapter = self.check_adapter(self.path("alone"), base)
        with open(os.path.join(adapter, "adapter_config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.assertTrue(config["fan_in_fan_out"])
        self.assertEqual(config["target_modules"], ["c_attn", "mlp.c_proj"])
        os.rename(self.model_path, self.path("away"))  # the run has its own; another file is still another run
        self.loom("train", toml, "--dir", self.path("alone"))
        untuned = self.run_toml(20, "", 'preset = "allreduce"\nworkers = 2\n')
        self.assertIn("tune.lora_rank", self.loom("train", untuned, "--dir", self.path("alone"), code=CONFLICT).stderr)

    @unittest.skipIf(peft is None, "skipped: no peft")
    def test_an_adapter_of_pefts_is_merged(self):
        for kind, targets in (("llama", ["q_proj", "v_proj", "down_proj"]), ("gpt2", ["c_attn", "c_fc"])):
            with self.subTest(kind=kind):
                self.save(kind, True)
                tuned = peft.get_peft_model(self.base(), peft.LoraConfig(
                    r=5, lora_alpha=7, target_modules=targets, task_type="CAUSAL_LM", init_lora_weights=False,
                    fan_in_fan_out=kind == "gpt2"))
                tuned.save_pretrained(self.path("peft"))
                self.loom("export", self.model_path, "--out", self.path("merged"), "--merge", self.path("peft"),
                          "--dtype", "fp32")
                self.assert_close(self.logits(self.path("merged")), self.logits(tuned))
            self.tearDown()
            self.setUp()

    def test_frozen_parameters_keep_their_bits(self):
        self.save("llama", True)
        toml = self.run_toml(3, '[tune]\nfreeze = ["model.embed_tokens.*", "model.layers.[01].*"]\n', 'inner_steps = 8\n')
        self.loom("train", toml, "--dir", self.path("alone"))
        self.loom("export", self.path("alone"), "--out", self.path("out"), "--dtype", "fp32")
        before = self.base().state_dict()
        after = AutoModelForCausalLM.from_pretrained(self.path("out"), dtype=torch.float32).state_dict()
        changed = {name for name in before if not torch.equal(before[name], after[name])}
        self.assertEqual(changed, {name for name in before if ".layers.2." in name or name == "model.norm.weight"})
        plan = json.loads(self.loom("train", toml, "--dry-run", "--json").stdout)
        frozen = sum(before[n].numel() for n in before if n not in changed and n != "lm_head.weight")
        self.assertEqual(plan["frozen"], frozen)

    def test_what_cannot_be_meant_is_refused(self):
        self.save("llama", True)
        for tune, told in ((LORA + 'lora_targets = ["c_attn"]\n', "q_proj"), (LORA + 'freeze = ["*"]\n', "freeze"),
                           ('[tune]\nfreeze = ["*"]\n', "nothing to train"), ('[tune]\nlora_alpha = 3\n', "lora_rank")):
            done = self.loom("train", self.run_toml(3, tune, ""), "--dir", self.path("no"), code=INVALID)
            self.assertIn(told, done.stderr)
        with open(self.path("run.toml"), "w", encoding="utf-8") as file:
            file.write('[data]\npaths = "text.txt"\n' + LORA)
        self.assertIn("[model] from", self.loom("train", self.path("run.toml"), code=INVALID).stderr)
        self.loom("export", self.model_path, "--out", self.path("x"), "--adapter", code=INVALID)


if __name__ == "__main__":
    unittest.main()
