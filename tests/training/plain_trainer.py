"""A program: what plain mlx-lm's own trainer does with models and data. Knows nothing of cowmlx.

Standard input has requests as JSON, the last line of standard output the answers.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import sys
import types
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
os.environ["MLX_DISABLE_COMPILE"] = "1"  # a C++ compiler would take seconds for each graph

import mlx.core as mx
import mlx.optimizers
import numpy as np
from mlx_lm import load
from mlx_lm.tuner import trainer
from mlx_lm.tuner.datasets import CacheDataset, create_dataset
from mlx_lm.tuner.utils import linear_to_lora_layers

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from mlx.utils import tree_flatten, tree_map
from support.float64 import in_float64


class Losses:
    """Takes the place of a callback."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_loss_report(self, info: dict[str, Any]) -> None:
        self.values.append(info["train_loss"])


def answer(request: dict[str, Any], place: pathlib.Path) -> dict[str, Any]:
    model, tokenizer = load(request["path"])
    lines = [json.loads(line) for line in pathlib.Path(request["data"]).read_text().splitlines()]
    config = types.SimpleNamespace(mask_prompt=request["mask_prompt"])
    kinds = [create_dataset([line], tokenizer, config) for line in lines]
    rows = [kind.process(line) for kind, line in zip(kinds, lines, strict=True)]
    model.freeze()
    if request["type"] == "full":
        model.unfreeze()
    else:
        parameters = request["parameters"]
        linear_to_lora_layers(model, -1, parameters, use_dora=request["type"] == "dora")
    model.load_weights(request["begin"], strict=False)
    # The targets, as in mlx-lm's batches.
    batches: list[mx.array] = []
    lengths: list[mx.array] = []

    def recorded(*arguments: Any, **named: Any) -> Any:
        for batch, spans in trainer.iterate_batches(*arguments, **named):
            batches.append(batch)
            lengths.append(spans)
            yield batch, spans

    np.random.seed(request["seed"])
    losses = Losses()
    trainer.train(
        model,
        mlx.optimizers.Adam(learning_rate=request["learning_rate"]),
        CacheDataset(Rows(rows)),
        args=trainer.TrainingArgs(
            batch_size=request["batch_size"],
            iters=request["steps"],
            steps_per_report=1,
            steps_per_save=1 if request.get("states") else 10**9,
            max_seq_length=request["window"],
            adapter_file=str(place / "adapters.safetensors"),
            grad_accumulation_steps=request["accumulation"],
            grad_checkpoint=request["checkpointing"],
        ),
        iterate_batches=recorded,
        training_callback=losses,
    )
    arrays = {f"batch.{index}": batch for index, batch in enumerate(batches)}
    arrays |= {f"lengths.{index}": spans for index, spans in enumerate(lengths)}
    mx.save_safetensors(str(place / "batches.safetensors"), arrays)
    return {
        "losses": losses.values,
        "rows": [[list(tokens), offset] for tokens, offset in rows],
        "batches": str(place / "batches.safetensors"),
        "trained": str(place / "adapters.safetensors"),
        "states": [
            at_state(model, request, place, step, batches[step], lengths[step])
            for step in request.get("states", [])
        ],
    }


def at_state(
    model: Any,
    request: dict[str, Any],
    place: pathlib.Path,
    step: int,
    batch: mx.array,
    spans: mx.array,
) -> dict[str, Any]:
    """The loss and gradients with the parameters before a step, and their errors.

    The errors are what float32 has more than float64.
    """
    saved = request["begin"] if step == 0 else str(place / f"{step:07d}_adapters.safetensors")
    model.load_weights(saved, strict=False)

    def loss(parameters: Any) -> mx.array:
        model.update(parameters)
        return trainer.default_loss(model, batch, spans)[0]

    value, found = mx.value_and_grad(loss)(model.trainable_parameters())
    mx.eval(value, found)
    with in_float64(model):
        exact, gradients = mx.value_and_grad(loss)(model.trainable_parameters())
        mx.eval(exact, gradients)
        error = tree_map(
            lambda a, b: (a.astype(mx.float64) - b).astype(mx.float32), found, gradients
        )
        off = value.item() - exact.item()
    files = {}
    for name, tree in (("gradients", found), ("errors", error)):
        files[name] = str(place / f"{name}-{step}.safetensors")
        mx.save_safetensors(files[name], dict(tree_flatten(tree)))
    return {"step": step, "parameters": saved, "loss": value.item(), "error": off, **files}


class Rows:
    """A data set whose rows are made."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def __getitem__(self, index: int) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def process(self, row: Any) -> Any:
        return row


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    answers = []
    with contextlib.redirect_stdout(sys.stderr):
        for index, request in enumerate(json.load(sys.stdin)):
            place = folder / f"plain-{index}"
            place.mkdir()
            answers.append(answer(request, place))
    print(json.dumps(answers))


main()
