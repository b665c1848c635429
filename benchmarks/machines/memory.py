"""What ranks take at most while they load their parts, on two ranks of this machine.

python -m benchmarks.machines.memory [MODEL]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.support.models import random_model

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import in_process
from support.workers import SECRET, Worker, local_ranks


def most(pid: int) -> int:
    """The peak memory of a process in bytes; 0 if unknown."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) << 10


def main() -> None:
    """Measure, and say so."""
    folder = random_model(sys.argv[1] if len(sys.argv) > 1 else "M")
    with tempfile.TemporaryDirectory() as place, in_process.started() as engine:
        secret = Path(place) / "secret"
        secret.write_text(SECRET)
        worker = Worker(folder.parent, secret)
        params: dict[str, Any] = {"workers": [worker.address], "secret_path": str(secret)}
        model = in_process.loaded(engine, folder, **params)
        group = engine.models.get(model).network.group
        rows = [
            {
                "rank": peer.rank,
                "bytes": peer.bytes,
                "peak": peer.peak,
                "quotient": round(peer.peak / peer.bytes, 3),
                "process": most(pid),
            }
            for peer, pid in zip(group.peers, [*local_ranks(), *worker.ranks()], strict=True)
        ]
        engine.model_free(model)
        worker.end()
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
