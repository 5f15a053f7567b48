"""A committed round of 4 Loom peers beside what other systems take for as many values, interleaved: each pass runs
everyone once for some rounds, so that a busy moment of the machine meets them all. What is compared is not the same
service: Gloo survives no fault and encrypts nothing; torchft survives, unencrypted, with fp32; hivemind sends 8 bits;
Flower has one server and starts a process for each client's work; Loom encrypts, agrees by votes, and has the state and
the record on disk."""
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
VALUES = 10652544
ROUNDS = 8


def last_list(text: str) -> list:
    lines = [line for line in text.splitlines() if re.fullmatch(r"\[[0-9., e-]*\]", line)]
    return json.loads(lines[-1]) if lines else []


def python_peer(script: str, *arguments: str, python: str = sys.executable, rounds: int = ROUNDS) -> list:
    ran = subprocess.run([python, os.path.join(HERE, script), str(VALUES), str(rounds), *arguments],
                         capture_output=True, text=True, timeout=400)
    seconds = last_list(ran.stdout)
    if not seconds:
        print(f"{script} gave nothing (exit code {ran.returncode}): {ran.stderr.strip()[-300:]}", file=sys.stderr)
    return seconds


def loom(swarm_bench: str) -> dict:
    ran = subprocess.run([swarm_bench, "round", str(ROUNDS)], capture_output=True, text=True, timeout=400)
    found = re.search(r"beyond the slowest work median ([0-9.]+) s.*plain loop: median ([0-9.]+) s", ran.stdout, re.S)
    if not found:
        sys.exit(f"swarm_bench round: {ran.stdout}{ran.stderr}")
    return {"loom, beyond the work": [float(found[1])], "its bytes in a plain loop": [float(found[2])]}


def main() -> None:
    swarm_bench, flower = sys.argv[1:3]
    passes = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    all_seconds: dict = {}
    for _ in range(passes):
        with tempfile.TemporaryDirectory() as folder:
            found = loom(swarm_bench)
            found["gloo all-reduce"] = python_peer("gloo_all_reduce.py", os.path.join(folder, "store"))
            found["torchft DiLoCo"] = python_peer("torchft_diloco.py")
            found["hivemind, 8 bit"] = python_peer("hivemind_averaging.py")
            found["Flower FedAvg"] = python_peer("flower_fedavg.py", python=flower, rounds=2)
        for name, seconds in found.items():
            all_seconds.setdefault(name, []).extend(seconds)
    own = statistics.median(all_seconds["loom, beyond the work"])
    print(f"| a round of 4 processes, {VALUES / 1e6:.1f}M values | median, s | worst, s | Loom's median over it |")
    print("|---|---|---|---|")
    for name, seconds in all_seconds.items():
        if seconds:
            middle = statistics.median(seconds)
            print(f"| {name} | {middle:.3f} | {max(seconds):.3f} | {own / middle:.2f} |")
        else:
            print(f"| {name} | did not run | | |")


if __name__ == "__main__":
    main()
