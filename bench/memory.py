"""What peers take of the machine's memory, beside what `loom train --dry-run` forecasts: real processes, their anonymous
memory (RssAnon) sampled every 2 ms from start to the end of a run with checkpoints in it.

    bench/memory.py LOOM [10m|125m ...]

alone: a run of one peer. swarm: the larger of two peers on loopback. The issue's bound: peak <= weights + gradients + inner
+ outer + encoded + activations + 300 MB; the forecast as a whole within 15 %.
"""
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time

MODELS = {  # with the samples of a step
    "10m": ('layers = 6\nwidth = 384\nheads = 6\nffn = 1024\ncontext = 128\n', 4),
    "125m": ('layers = 16\nwidth = 768\nheads = 12\nffn = 2304\ncontext = 128\n', 2),
}
SETTINGS = {
    "diloco int8": 'method = "diloco"\ninner_steps = 1\ncodec = "int8"\n',
    "exact": 'method = "allreduce"\nexact = true\ncodec = "fp32"\nworkers = 2\n',
}
ROUNDS = 4
SLACK = 300e6


class Process:
    """One loom with its peak; events are the JSON lines that it prints."""

    def __init__(self, arguments, folder, name):
        self.peak, self.events, self.log = 0, [], os.path.join(folder, name + ".log")
        environment = dict(os.environ, LOOM_OWNER_KEY=os.path.join(folder, "owner.pem"))
        with open(self.log, "w") as log:
            self.child = subprocess.Popen([*arguments, "--json"], cwd=folder, env=environment, stdout=subprocess.PIPE,
                                          stderr=log, text=True)
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.read, self.sample)]
        for thread in self.threads:
            thread.start()

    def read(self):
        for line in self.child.stdout:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                pass

    def sample(self):
        try:
            with open(f"/proc/{self.child.pid}/status") as status:
                while self.child.poll() is None:
                    status.seek(0)
                    for line in status:
                        if line.startswith("RssAnon"):
                            self.peak = max(self.peak, int(line.split()[1]) * 1024)
                    time.sleep(0.002)
        except (OSError, ValueError):
            pass  # it ended

    def wait(self):
        code = self.child.wait()
        for thread in self.threads:
            thread.join()
        if code != 0:
            with open(self.log) as log:
                sys.exit(f"memory: loom ended with {code}: {log.read().strip()[-500:]}")
        return self.peak

    def event(self, kind):
        while self.child.poll() is None:
            for event in self.events:
                if event.get("event") == kind:
                    return event
            time.sleep(0.01)
        return self.wait()


def alone(loom, folder):
    return Process([loom, "train", "run.toml", "--dir", "alone"], folder, "alone").wait()


def swarm(loom, folder):
    host = Process([loom, "host", "run.toml", "--dir", "host", "--listen", "127.0.0.1:0"], folder, "host")
    other = Process([loom, "join", host.event("invite")["invite"], "--dir", "join"], folder, "join")
    return max(host.wait(), other.wait())


def measure(loom, model, settings, peers):
    with tempfile.TemporaryDirectory() as folder:
        letters = random.Random(1)
        with open(os.path.join(folder, "story.txt"), "w") as text:
            text.write("".join(chr(32 + letters.randrange(64)) for _ in range(60_000)))
        with open(os.path.join(folder, "run.toml"), "w") as run:
            shape, batch = MODELS[model]
            # A joiner is listed within the first rounds; the later ones are those of two.
            run.write(f'[model]\n{shape}[data]\npaths = ["story.txt"]\ntokenizer = "bytes"\nval_fraction = 0.05\n'
                      f'[optim]\nbatch = {batch}\n[sync]\nrounds = {ROUNDS * peers}\n{SETTINGS[settings]}'
                      '[local]\nthreads = 1\ncheckpoint_every = 2\n')
        plan = json.loads(subprocess.run([loom, "train", "run.toml", "--dry-run", "--peers", str(peers), "--json"],
                                         cwd=folder, capture_output=True, text=True, check=True).stdout)
        peak = (alone if peers == 1 else swarm)(loom, folder)
    bound = plan["total"] - plan["base"] + SLACK
    ratio = peak / plan["total"]
    print(f"{model:>5}  {settings:<12} {'alone' if peers == 1 else 'swarm':<6} {plan['total'] / 1e6:>9.0f} MB {peak / 1e6:>9.0f} MB"
          f" {ratio:>8.2f}  {'yes' if abs(ratio - 1) <= 0.15 else 'NO':<7} {bound / 1e6:>9.0f} MB  {'yes' if peak <= bound else 'NO'}",
          flush=True)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    loom = os.path.abspath(sys.argv[1])
    print("model  settings     as       forecast     measured    ratio  in 15 %      bound     kept")
    for model in sys.argv[2:] or MODELS:
        for settings in SETTINGS:
            for peers in (1, 2):
                measure(loom, model, settings, peers)


main()
