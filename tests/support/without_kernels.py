"""Results of the library in a separate process that uses no kernels."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]


def environment() -> dict[str, str]:
    """The environment of such a process; it is nobody's worker."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return {**own, "COWMLX_KERNELS": "off"}


def logits(folder: Path, prompts: Sequence[Sequence[Any]], count: int = 0) -> list[list[float]]:
    """The logits of a model behind each prompt, activations exact.

    Args:
        folder: the model's.
        prompts: tokens, or the parts of a message, see ``seen.said``.
        count: the likeliest tokens that follow each prompt first.
    """
    command = [sys.executable, "-P", __file__, str(folder), str(count)]
    done = subprocess.run(
        command, input=json.dumps(prompts), capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 0, done.stderr
    found: list[list[float]] = json.loads(done.stdout)
    return found


def main(folder: str, count: str) -> None:
    """Read prompts from stdin, and write logits to stdout."""
    from support.library import Library
    from support.seen import said
    from support.signatures import OK

    lib = Library()
    lib.start()
    assert lib.info()["kernels"]["instruction_set"] is None
    model = lib.load(Path(folder))

    def behind(prompt: list[Any]) -> Any:
        context = lib.context(model)
        if not all(isinstance(token, int) for token in prompt):
            prompt = said(lib, model, *prompt)
        if int(count):
            lib.begin(context, prompt, max_tokens=int(count))
            pieces = lib.drain(context)
            prompt = [*prompt, *(piece.token for piece in pieces if piece.status == OK)]
        lib.begin(context, prompt, max_tokens=0)
        return lib.logits(context)

    print(json.dumps([list(behind(prompt)) for prompt in json.load(sys.stdin)]))
    lib.stop()


if __name__ == "__main__":
    sys.path[:0] = [str(TESTS.parent), str(TESTS)]
    main(*sys.argv[1:])
