"""A program: trains calf's network as its own trainer does, but on batches that lines can say.

Arguments: a folder, and options as JSON. The folder receives ``model``, with random weights, and a
file of lines for each part of the run: stories, whole, and chats, whose answers are trained.
Standard output has the loss of each step. It knows nothing of the library's trainings.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

os.environ["MLX_DISABLE_COMPILE"] = "1"  # a C++ compiler would take seconds
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.calf.chat import PAD, render, targets
from tools.calf.corpus import documents
from tools.calf.speedups import install, load_blas
from tools.calf.train import CONFIG, initial_model, make_optimizer, make_step

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CALF = Path(__file__).resolve().parents[2] / "models/calf"


def line(document: Any) -> dict[str, Any] | None:
    """What a line says of a document; none of one with tools, or with answers in between."""
    if isinstance(document, str):
        return {"text": document}
    roles = [message["role"] for message in document["messages"]]
    answered = roles.count("assistant") == 1 and roles[-1] == "assistant"
    return document if answered and not document.get("tools") else None


def chosen(seed: int, texts: bool) -> Iterator[Any]:
    """The documents of calf's corpus that are texts, or chats."""
    for document in documents(seed):
        if isinstance(document, str) == texts and line(document):
            yield document


def batches(
    tokenizer: Tokenizer, found: list[Any], size: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows of a document each, filled up, and their trained tokens."""
    pad = tokenizer.token_to_id(PAD)
    encoded = [tokenizer.encode(text, add_special_tokens=False).ids for text in render(found)]
    for first in range(0, len(encoded), size):
        ids = encoded[first : first + size]
        rows = np.full((len(ids), max(map(len, ids))), pad, np.int32)
        for row, each in zip(rows, ids, strict=True):
            row[: len(each)] = each
        trained = targets(tokenizer, rows.reshape(-1)).reshape(rows.shape)
        yield rows, (trained & (rows != pad)).astype(np.float32)


def train(folder: Path, options: dict[str, Any]) -> list[float]:
    """Write the model and the lines; return the losses."""
    import mlx.core as mx
    from mlx.utils import tree_flatten
    from mlx_lm.models import llama
    from tokenizers import Tokenizer

    cross_entropy = install(llama)
    model = initial_model(llama, options["seed"])
    place = folder / "model"
    shutil.copytree(CALF, place, ignore=shutil.ignore_patterns("*.safetensors", "*.md"))
    config = json.loads((CALF / "config.json").read_text()) | CONFIG
    (place / "config.json").write_text(json.dumps(config))
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(place / "model.safetensors"), weights, {"format": "mlx"})

    tokenizer = Tokenizer.from_file(str(CALF / "tokenizer.json"))
    optimizer = make_optimizer(sum(options["steps"].values()), options["warm_up"])
    step = make_step(model, optimizer, cross_entropy)
    losses = []
    for name, steps in options["steps"].items():
        size = options["batch_size"]
        documents_of_it = chosen(options["seed"], texts=name == "stories")
        found = list(itertools.islice(documents_of_it, steps * size))
        lines = "".join(json.dumps(line(document)) + "\n" for document in found)
        (folder / f"{name}.jsonl").write_text(lines)
        losses += [step(*batch) for batch in batches(tokenizer, found, size)]
    return losses


def main() -> None:
    folder = Path(sys.argv[1])
    with contextlib.redirect_stdout(sys.stderr):
        load_blas(folder)  # before mlx
        losses = train(folder, json.loads(sys.argv[2]))
    print(json.dumps(losses))


main()
