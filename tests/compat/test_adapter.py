"""Runs that train an adapter further, of PEFT's or of an earlier run: the first loss is PEFT's, no step leaves the adapter's
bits as they were, two peers start from it and agree, the adapter's folder may go away, and what does not fit is refused."""

import json
import os
import unittest

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import test_start
from runs import CONTEXT, RunTest

try:
    import peft
except ImportError:
    peft = None

WORKERS = 2
LOSS_TOLERANCE = 3e-5
TARGETS = {"llama": ["q_proj", "v_proj", "down_proj"], "gpt2": ["c_attn", "c_fc"]}
INVALID = 3  # exit codes, docs/cli.md
CONFLICT = 11


@unittest.skipIf(peft is None, "skipped: no peft")
class AdapterTest(RunTest):
    def run_toml(self, rounds, tune='from = "peft"\n', lr="1e-3"):
        path = self.path("run.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'[model]\nfrom = "model"\ncontext = {CONTEXT}\n[tune]\n{tune}'
                       '[data]\npaths = "text.txt"\nval_fraction = 0\n'
                       f'[optim]\nbatch = {self.batch}\nlr = {lr}\nschedule = "constant"\nwarmup_tokens = 0\n'
                       f'[sync]\npreset = "allreduce"\nworkers = {WORKERS}\nrounds = {rounds}\n'
                       '[local]\nthreads = 1\n')
        return path

    def base(self):
        return AutoModelForCausalLM.from_pretrained(self.model_path, dtype=torch.float32)

    def save_adapter(self, kind, **more):
        """An adapter of PEFT's with B drawn, too, in the folder `peft`."""
        torch.manual_seed(5)
        tuned = peft.get_peft_model(self.base(), peft.LoraConfig(
            r=5, lora_alpha=7, target_modules=TARGETS[kind], task_type="CAUSAL_LM", init_lora_weights=False,
            fan_in_fan_out=kind == "gpt2", **more))
        tuned.save_pretrained(self.path("peft"))
        return tuned.eval()

    def loss_on_first_round(self, model):
        losses = []
        for window in test_start.windows_of(self.ids, WORKERS):
            with torch.no_grad():
                losses.append(model(torch.tensor([window]), labels=torch.tensor([window])).loss.item())
        return sum(losses) / len(losses)

    def train(self, folder, *args):
        """The loss of round 1."""
        done = self.loom("train", *args, "--dir", self.path(folder), "--json")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        return next(e["loss"] for e in events if e.get("event") == "round" and e["round"] == 1)

    def exported(self, folder):
        self.loom("export", self.path(folder), "--out", self.path(folder + "-adapter"), "--adapter")
        return load_file(self.path(folder + "-adapter", "adapter_model.safetensors"))

    def assert_same_bits(self, a, b):
        self.assertEqual(set(a), set(b))
        for name in a:
            self.assertTrue(torch.equal(a[name].view(torch.int32), b[name].view(torch.int32)), name)

    def test_the_first_loss_is_pefts_and_an_adapter_of_the_run_goes_on_in_the_same_way(self):
        for kind in ("llama", "gpt2"):
            with self.subTest(kind=kind):
                self.save(kind, True)
                tuned = self.save_adapter(kind)
                want = self.loss_on_first_round(tuned)
                self.assertGreater(abs(want - self.loss_on_first_round(self.base())), 0.01, "the adapter does something")
                self.assertAlmostEqual(self.train("first", self.run_toml(3)), want, delta=LOSS_TOLERANCE)
                self.exported("first")
                again = peft.PeftModel.from_pretrained(self.base(), self.path("first-adapter")).eval()
                after = self.loss_on_first_round(again)
                self.assertLess(after, want, "it has learned")
                got = self.train("second", self.run_toml(1, 'from = "first-adapter"\n'))
                print(f"{kind}: loss of PEFT {want:.6f}, 3 rounds later {after:.6f}, of the run that goes on {got:.6f}")
                self.assertAlmostEqual(got, after, delta=LOSS_TOLERANCE)
                one = self.train("one", self.run_toml(1), "--one-process", "--workers", str(WORKERS))
                self.assertAlmostEqual(one, want, delta=LOSS_TOLERANCE)
            self.tearDown()
            self.setUp()

    def test_without_a_step_the_bits_stay(self):
        self.save("llama", True)
        self.save_adapter("llama")
        run = self.run_toml(1, lr="0")
        self.train("still", run)
        before = load_file(self.path("peft", "adapter_model.safetensors"))
        os.rename(self.path("peft"), self.path("away"))
        self.assert_same_bits(self.exported("still"), before)
        with open(self.path("still-adapter", "adapter_config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual((config["r"], config["lora_alpha"], config["target_modules"]), (5, 7, sorted(TARGETS["llama"])))
        os.rename(self.model_path, self.path("model-away"))
        self.loom("train", run, "--dir", self.path("still"))  # it has its own
        os.rename(self.path("model-away"), self.model_path)
        self.loom("train", run, "--dir", self.path("other"), code=4)
        self.assertIn("tune.from names none", self.loom("train", self.run_toml(
            1, 'lora_rank = 5\nlora_alpha = 7\nlora_targets = ["down_proj", "q_proj", "v_proj"]\n', "0"),
            "--dir", self.path("still"), code=CONFLICT).stderr)

    def test_two_peers_start_from_it(self):
        self.save("llama", True)
        self.save_adapter("llama")
        first = load_file(self.path("peft", "adapter_model.safetensors"))
        self.train("alone", self.run_toml(2))
        host = self.start("host", self.run_toml(0), "--dir", self.path("host"), "--listen", "127.0.0.1:0")
        invite = host.until(lambda e: e.get("event") == "invite")["invite"]
        host.until_round(1)
        os.rename(self.path("peft"), self.path("away"))
        joiner = self.start("join", invite, "--dir", self.path("joiner"), "--threads", "1")
        joiner.until(lambda e: e.get("event") == "round" and e.get("peers") == 2)
        self.loom("amend", f"sync.rounds={host.events[-1].get('round', 0) + 10}", "--dir", self.path("host"))
        self.assertEqual([host.wait(), joiner.wait()], [0, 0], host.log + joiner.log)
        records, joined, alone = (self.roots(self.path(name)) for name in ("host", "joiner", "alone"))
        self.assertEqual(max(records), max(joined))
        for number in records:
            self.assertEqual(records[number]["root"], joined[number]["root"], number)
        for number in range(3):  # exact mode: whoever comes and goes
            self.assertEqual(records[number]["root"], alone[number]["root"], number)
        kept = [load_file(self.path(name, "adapter", "adapter_model.safetensors")) for name in ("host", "joiner")]
        self.assert_same_bits(kept[0], first)
        self.assert_same_bits(kept[1], first)
        self.assert_same_bits(self.exported("host"), self.exported("joiner"))

    def test_what_does_not_fit_is_refused(self):
        self.save("llama", True)
        self.save_adapter("llama")
        for tune, told in (("lora_rank = 4\n", "tune.lora_rank = 4, the adapter of tune.from has 5"),
                           ("lora_alpha = 14\n", "tune.lora_alpha = 14, the adapter of tune.from has 7"),
                           ('lora_targets = ["q_proj"]\n', "tune.lora_targets"), ('freeze = ["*"]\n', "tune.freeze")):
            said = self.loom("train", self.run_toml(1, 'from = "peft"\n' + tune), "--dir", self.path("no"), code=INVALID)
            self.assertIn(told, said.stderr)
            self.assertIn("leave it out", said.stderr)
        fits = 'from = "peft"\nlora_rank = 5\nlora_targets = ["v_proj", "down_proj", "self_attn.q_proj"]\n'
        self.loom("train", self.run_toml(1, fits), "--dry-run")
        found = json.loads(self.loom("import", self.path("peft"), "--json").stdout)
        self.assertEqual((found["rank"], found["alpha"], found["modules"]), (5, 7, sorted(TARGETS["llama"])))
        self.assertEqual((found["base"], found["base_found"]), (self.model_path, True))
        self.assertIn(f'[tune]\nfrom = "{self.path("peft")}"', self.loom("import", "peft").stdout)
        self.save_adapter("llama", use_dora=True)
        for args in (("train", self.run_toml(1), "--dir", self.path("no")), ("import", self.path("peft"))):
            self.assertIn("use_dora", self.loom(*args, code=INVALID).stderr)


if __name__ == "__main__":
    unittest.main()
