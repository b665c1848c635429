"""Options of training a language model: which parameters are trained, and how."""

from __future__ import annotations

from typing import Any

from cowmlx.errors import InvalidArgument
from cowmlx.training.options import Choice, Flag, Names, Number, Option, out_of_range, read

LORA, DORA, FULL = KINDS = ("lora", "dora", "full")
_ADAPTERS_ONLY = ("rank", "scale", "dropout", "keys")
OPTIONS: dict[str, Option] = {
    "type": Choice(KINDS, LORA),
    "rank": Number("1 to 65536", 1, 1 << 16, integer=True, default=8),
    "scale": Number("above 0 and at most 1000", 0, 1000, open_low=True, default=20.0),
    "dropout": Number("0 or more, and below 1", 0, 1, open_high=True, default=0.0),
    "num_layers": Number("1 or more, or -1 for all", -1, 1 << 20, integer=True, default=-1),
    "keys": Names(),
    "grad_checkpoint": Flag(False),
    "seed": Number("0 to 2^63 - 1", 0, 2**63 - 1, integer=True, default=0),
}


class LanguageOptions:
    """LoRA, DoRA or all weights, and of which layers; names are mlx-lm's.

    Attributes:
        kind: "lora", "dora" or "full".
        rank: of the adapter's matrices.
        scale: factor of the adapter's output.
        dropout: probability that an input of an adapter's matrices is 0 in training.
        num_layers: number of blocks to train, counted from the last one; -1: all, and with
            "full" the embedding, the last norm and the head, too.
        keys: names of the layers that get an adapter, as in one block or in full; None: all that
            can have one.
        checkpointing: compute a block's activations again for the gradients: less memory, more
            time.
        seed: of the adapter's first values.

    Raises:
        InvalidArgument: another key, a value of another type or out of range, or an option of
            adapters with "full".
    """

    def __init__(self, value: object = None, place: str = "options") -> None:
        given = {} if value is None else value
        options = read(given, place, OPTIONS)
        self.kind: str = options["type"]
        self.rank: int = options["rank"]
        self.scale = float(options["scale"])
        self.dropout = float(options["dropout"])
        self.num_layers: int = options["num_layers"]
        self.keys: tuple[str, ...] | None = options["keys"]
        self.checkpointing: bool = options["grad_checkpoint"]
        self.seed: int = options["seed"]
        if self.num_layers == 0:
            raise out_of_range(f"{place}.num_layers", 0, OPTIONS["num_layers"].accepted)
        surplus = [name for name in _ADAPTERS_ONLY if isinstance(given, dict) and name in given]
        if self.kind == FULL and surplus:
            name = f"{place}.{surplus[0]}"
            text = f"{name} is an option of adapters, and {place}.type {FULL} makes none"
            raise InvalidArgument(text, reason="conflict", argument=name, other=f"{place}.type")

    def adapter_config(self, blocks: int) -> dict[str, Any]:
        """Return the ``adapter_config.json`` of an adapter of this kind."""
        # mlx-lm takes -1 for all of them, and slices a larger number as all, too.
        count = blocks if self.num_layers == -1 else self.num_layers
        config: dict[str, Any] = {"fine_tune_type": self.kind, "num_layers": count}
        if self.kind != FULL:
            names = ("rank", "scale", "dropout")
            config["lora_parameters"] = {name: getattr(self, name) for name in names}
            if self.keys is not None:
                config["lora_parameters"]["keys"] = list(self.keys)
        return config
