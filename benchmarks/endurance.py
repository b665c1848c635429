"""Everything at once for as long as asked: ``python -m benchmarks.endurance SECONDS [SEED]``.

The host of tests/engine/faults/test_soak.py: threads, contexts and models, whose streams must all
be what the same task gives alone. With ``--refusals`` that of test_endurance.py: memory and threads
are refused at random, in a control group if one can be made. It measures nothing, so it is not one
of the benchmarks; it ends with what went wrong, or with how often each kind of work was done.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile

from benchmarks.support.paths import ROOT

# Hybrid, with sliding windows whose caches can be quantized, and with a head that drafts.
MAKE = """
import sys
from pathlib import Path
from support import heads, tiny_models

folder, *names = sys.argv[1:]
for name in names:
    config = {"head_dim": 64} if name == "gemma3_text" else None
    made = tiny_models.make(Path(folder, name), name, config=config)
    if name in heads.ARCHITECTURES:
        heads.add(made, name)
"""


def main() -> int:
    """Make tiny models and run the host on them and calf."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.endurance", description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("--refusals", action="store_true")
    arguments = parser.parse_args()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    if arguments.refusals:
        chosen = [str(arguments.seconds), str(arguments.seed)]
        settings = ("COWMLX_ENDURANCE_SECONDS", "COWMLX_ENDURANCE_SEED")
        environment |= dict(zip(settings, chosen, strict=True))
        test = "tests/engine/faults/test_endurance.py"
        command = [sys.executable, "-m", "pytest", "-q", "-m", "long", "-p", "no:cacheprovider"]
        return subprocess.run([*command, test], cwd=ROOT, env=environment).returncode
    with tempfile.TemporaryDirectory() as folder:
        names = ["falcon_h1", "gemma3_text", "mimo"]
        subprocess.run([sys.executable, "-c", MAKE, folder, *names], env=environment, check=True)
        host = [sys.executable, str(ROOT / "tests/engine/hosts/soak.py")]
        given = [str(arguments.seconds), str(arguments.seed), folder]
        models = [str(ROOT / "models/calf"), *(os.path.join(folder, name) for name in names)]
        return subprocess.run([*host, *given, *models], env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
