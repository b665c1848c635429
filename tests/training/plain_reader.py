"""A program: the logits that plain mlx-lm gets of folders. Knows nothing of cowmlx.

Standard input has requests as JSON, the last line of standard output the answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"

import mlx.core as mx
from mlx_lm import load


def answer(request: dict[str, Any], place: pathlib.Path) -> str:
    model, tokenizer = load(request["path"], adapter_path=request.get("adapter"))
    assert tokenizer.encode("a")
    mx.save_safetensors(str(place), {"logits": model(mx.array([request["tokens"]]))})
    return str(place)


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):
        answers = [
            answer(request, folder / f"read-{index}.safetensors")
            for index, request in enumerate(json.load(sys.stdin))
        ]
    print(json.dumps(answers))


main()
