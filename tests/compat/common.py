"""What the comparisons of model folders share: the programs they run, and how close logits must be."""

import os
import subprocess

HELPER = os.environ["LOOM_MAKE_FOLDERS"]
LOOM = os.environ.get("LOOM", "")
LOGIT_TOLERANCE = 1e-4


def run(*args):
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(args)}\n{done.stdout}\n{done.stderr}")
    return done.stdout
