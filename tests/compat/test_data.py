"""What Loom makes of conversations is what Hugging Face's chat templates make of them, token for token; its losses and its
answers to multiple-choice questions are those of transformers' models. LOOM_MAKE_FOLDERS writes model folders, LOOM is the
program."""

import json
import math
import os
import random
import subprocess
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

import published_tokenizers

LOOM = os.environ["LOOM"]
HELPER = os.environ["LOOM_MAKE_FOLDERS"]
SEED = 11

CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
SMOLLM = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
          "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
          "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
LLAMA3 = ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
          "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
          "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")
SPECIAL = {"chatml": ("qwen2", CHATML, []),
           "smollm": ("smollm", SMOLLM, ["<|im_start|>", "<|im_end|>", "<repo_name>", "<gh_stars>"]),
           "llama3": ("llama3", LLAMA3, ["<|start_header_id|>", "<|end_header_id|>"])}


def run(*args, stdin=""):
    ran = subprocess.run(args, input=stdin.encode(), capture_output=True, check=False)
    if ran.returncode != 0:
        raise AssertionError(f"{args}: {ran.stdout.decode()[-500:]}\n{ran.stderr.decode()[-500:]}")
    return ran.stdout.decode()


def conversations():
    rng = random.Random(SEED)
    words = ["Hello", "what's", "2+2=4", "\n", "  spaces", "caf\u00e9", "\u6f22\u5b57", "\U0001f600", "def f(x):\n    return x",
             "end.\n", "\tTab", "don't", "1234567", "a" * 40]
    for _ in range(200):
        turns = [{"role": "system", "content": rng.choice(words)}] if rng.random() < 0.5 else []
        for turn in range(rng.randint(1, 4)):
            text = " ".join(rng.choice(words) for _ in range(rng.randint(1, 12)))
            # An answer that begins with white space is encoded as a model would write it, apart from what is before it.
            turns.append({"role": "user" if turn % 2 == 0 else "assistant", "content": text if turn % 2 == 0 else text.lstrip()})
        if not any(turn["role"] == "assistant" for turn in turns):
            turns.append({"role": "assistant", "content": "Yes."})
        yield turns


class Conversations(unittest.TestCase):
    def test_ids_are_those_of_the_chat_templates(self):
        talks = list(conversations())
        stdin = "".join(json.dumps({"messages": talk}) + "\n" for talk in talks)
        for chat, (name, template, special) in SPECIAL.items():
            with self.subTest(chat), tempfile.TemporaryDirectory() as folder:
                try:
                    made = published_tokenizers.ALL[name]()
                except FileNotFoundError as missing:
                    print(f"skipped: {name}: {missing}")
                    continue
                made.add_special_tokens([published_tokenizers.special(text) for text in special])
                path = os.path.join(folder, "tokenizer.json")
                made.save(path)
                bos = "<|begin_of_text|>" if chat == "llama3" else None
                theirs = PreTrainedTokenizerFast(tokenizer_object=made, chat_template=template, bos_token=bos)
                got = [json.loads(line) for line in run(LOOM, "tokenizer", "encode", path, "--jsonl", stdin=stdin).split("\n")[:-1]]
                self.assertEqual(len(got), len(talks))
                for talk, mine in zip(talks, got):
                    text = theirs.apply_chat_template(talk, tokenize=False)
                    want = made.encode(text, add_special_tokens=False).ids
                    self.assertEqual(mine, want, f"{chat}: {talk}")
                    self.assertLess(mine.count(made.token_to_id(bos)) if bos else 0, 2, "one begin-of-text token")


class Losses(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.root = cls.scratch.name
        run(HELPER, cls.root)
        cls.folder = os.path.join(cls.root, "tied-grouped")
        cls.model = AutoModelForCausalLM.from_pretrained(cls.folder, dtype=torch.float32).eval()

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def log_probs(self, ids):
        with torch.no_grad():
            return torch.log_softmax(self.model(torch.tensor([ids])).logits[0].double(), -1)

    def test_loss_perplexity_and_bits_a_byte(self):
        text = "It is a truth universally acknowledged, caf\u00e9 \u6f22\u5b57. " * 20
        path = os.path.join(self.root, "text.txt")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        got = json.loads(run(LOOM, "eval", self.folder, "--text", path, "--json"))
        ids, context = list(text.encode()), self.model.config.max_position_embeddings
        nll = 0.0
        for start in range(0, len(ids) - 1, context):
            window = ids[start:start + context + 1]
            # transformers' own loss: the mean over the window's targets
            with torch.no_grad():
                mean = self.model(torch.tensor([window]), labels=torch.tensor([window])).loss.item()
            nll += mean * (len(window) - 1)
        self.assertEqual(got["tokens"], len(ids) - 1)
        self.assertEqual(got["bytes"], len(ids) - 1)
        print(f"loss {got['loss']:.6f}, transformers {nll / (len(ids) - 1):.6f}")
        self.assertAlmostEqual(got["loss"], nll / (len(ids) - 1), delta=1e-4)
        self.assertAlmostEqual(got["perplexity"], math.exp(got["loss"]), delta=1e-6 * got["perplexity"])
        self.assertAlmostEqual(got["bits_per_byte"], got["loss"] / math.log(2), delta=1e-9)

    def test_multiple_choice_by_likelihood(self):
        rng = random.Random(SEED)
        questions = []
        for _ in range(40):
            query = "".join(rng.choice("abcdefgh .,") for _ in range(rng.randint(1, 150))) + rng.choice(["x", "x ", "x\n\n"])
            choices = [rng.choice(["", " "]) + "".join(rng.choice("abcdefgh\u00e9") for _ in range(rng.randint(1, 12)))
                       for _ in range(rng.randint(2, 5))]
            questions.append({"query": query, "choices": choices, "answer": rng.randrange(len(choices))})
        path = os.path.join(self.root, "questions.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(question) + "\n" for question in questions)
        got = json.loads(run(LOOM, "eval", self.folder, "--choices", path, "--json"))
        context = self.model.config.max_position_embeddings
        right = right_norm = 0
        for question in questions:
            likelihoods = []
            for choice in question["choices"]:
                whole = list((question["query"] + choice).encode())
                scored = len(whole) - len(question["query"].rstrip().encode())
                window = whole[-(context + 1):]
                log_p = self.log_probs(window[:-1])
                likelihoods.append(sum(log_p[i - 1, window[i]].item() for i in range(len(window) - scored, len(window))))
            norm = [value / len(choice) for value, choice in zip(likelihoods, question["choices"])]
            right += likelihoods.index(max(likelihoods)) == question["answer"]
            right_norm += norm.index(max(norm)) == question["answer"]
        self.assertEqual(got, {"acc": right / 40, "acc_norm": right_norm / 40, "questions": 40})


if __name__ == "__main__":
    unittest.main(verbosity=2)
