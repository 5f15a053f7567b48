"""Loom's byte-level BPE beside PyPI's `tokenizers`, one thread each, in turn: ids of 1 MB as one text and as 1000, for the
split patterns of published models, and training on the same text.

    bench/tokenizer_speed.py TOKENIZER_SPEED TEXT
"""
import os
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "compat"))

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

import published_tokenizers

REPEATS = 9
TEXTS = 1000
VOCAB = 8000


class Loom:
    def __init__(self, program):
        self.child = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                      text=True)

    def seconds(self, verb, what, texts):
        self.child.stdin.write(f"{verb} {what} {texts}\n")
        self.child.stdin.flush()
        return float(self.child.stdout.readline())


def timed(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def train(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCAB, min_frequency=2, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))


def row(name, loom, theirs):
    pairs = [(loom(), theirs()) for _ in range(REPEATS)]
    mine, other = (statistics.median(side) for side in zip(*pairs))
    ratios = [b / a for a, b in pairs]
    print(f"{name:<34} {mine * 1e3:>9.0f} ms {other * 1e3:>9.0f} ms   {statistics.median(ratios):>5.2f} x"
          f" ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[2], encoding="utf-8") as file:
        text = file.read().replace("\0", "")[:1_000_000]
    cut = [text[i * len(text) // TEXTS:(i + 1) * len(text) // TEXTS] for i in range(TEXTS)]
    loom = Loom(sys.argv[1])
    print(f"{'1 MB, one thread':<34} {'Loom':>12} {'tokenizers':>12}   tokenizers over Loom")
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name, texts in (("1 text", [text]), (f"{TEXTS} texts", cut)):
            files[name] = os.path.join(folder, name.replace(" ", "-"))
            with open(files[name], "w", encoding="utf-8") as file:
                file.write("\0".join(texts))
        for model in ("gpt2", "smollm", "llama3", "qwen2"):
            path = os.path.join(folder, f"{model}.json")
            published_tokenizers.ALL[model]().save(path)
            theirs = Tokenizer.from_file(path)
            for name, texts in (("1 text", [text]), (f"{TEXTS} texts", cut)):
                row(f"{model}, {name}", lambda: loom.seconds("encode", path, files[name]),
                    lambda: timed(lambda: theirs.encode_batch_fast(texts)))
        row(f"training {VOCAB} tokens", lambda: loom.seconds("train", VOCAB, files[f"{TEXTS} texts"]),
            lambda: timed(lambda: train(cut)))


main()
