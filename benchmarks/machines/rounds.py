"""Loads a model on two ranks, kills one of them, and loads it again: what is left behind.

python -m benchmarks.machines.rounds [ROUNDS]
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import tiny_models
from support.library import Library, StatusError
from support.signatures import ELOST
from support.workers import SECRET, Worker, local_ranks, on

TOLD = 20  # rounds between lines
PROMPT = [*range(20, 40)]


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/dev/fd"))


def resident() -> float:
    """Megabytes of this process."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1e3


def one(lib: Library, folder: Path, worker: Worker, secret: Path, number: int) -> None:
    """Load, generate, kill, see that it is lost, and free all."""
    model = lib.load(folder, **on([worker], secret, silence_timeout_ms=20000))
    context = lib.context(model)
    lib.begin(context, PROMPT, max_tokens=1 << 40)
    lib.next(context)
    (victim,) = local_ranks() if number % 2 else worker.ranks()
    os.kill(victim, signal.SIGKILL)
    try:
        while True:
            lib.next(context)
    except StatusError as error:
        if error.status != ELOST:
            raise
    lib.free(context)
    lib.free_model(model)
    worker.says("it is gone|its rank has ended")


def main() -> None:
    """Tell what grows."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    lib = Library()
    lib.start()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / "secret").write_text(SECRET)
        folder = tiny_models.make(root / "models/tiny", "qwen2")
        worker = Worker(root / "models", root / "secret")
        for number in range(1, rounds + 1):
            one(lib, folder, worker, root / "secret", number)
            if number == 1 or number % TOLD == 0:
                ranks = len(local_ranks()) + len(worker.ranks())
                outcome = f"{descriptors()} descriptors, {resident():.1f} MB, {ranks} ranks left"
                print(f"round {number}: {outcome}", flush=True)
        worker.end()


if __name__ == "__main__":
    main()
