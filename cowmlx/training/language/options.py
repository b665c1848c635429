"""What is trained of a language model, as the host asks for it."""

from __future__ import annotations

from cowmlx.errors import InvalidArgument
from cowmlx.training.language import option_types
from cowmlx.training.language.option_types import Choice, Names
from cowmlx.training.options import Flag, Number, out_of_range

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LORA, DORA, FULL = KINDS = ("lora", "dora", "full")
_ADAPTERS_ONLY = ("rank", "scale", "dropout", "keys")
OPTIONS: dict[str, Any] = {
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
        scale: what the adapter's effect is multiplied by.
        dropout: probability that an input of an adapter's matrices is 0 in training.
        num_layers: how many blocks are trained, counted from the last one; -1: all, and with
            "full" the embedding, the last norm and the head, too.
        keys: names of the layers that get an adapter, as in one block or in full; None: all that
            can have one.
        checkpointing: whether a block's activations are computed again for the gradients, which
            takes less memory and more time.
        seed: of the adapter's first values.

    Args:
        value: an object with keys of ``OPTIONS``; None: none of them.
        place: what it is, for messages.

    Raises:
        InvalidArgument: another key, a value of another type or out of range, or a value for what
            is not trained.
    """

    def __init__(self, value: object = None, place: str = "options") -> None:
        given = {} if value is None else value
        found = option_types.read(given, place, OPTIONS)
        self.kind: str = found["type"]
        self.rank: int = found["rank"]
        self.scale = float(found["scale"])
        self.dropout = float(found["dropout"])
        self.num_layers: int = found["num_layers"]
        self.keys: tuple[str, ...] | None = found["keys"]
        self.checkpointing: bool = found["grad_checkpoint"]
        self.seed: int = found["seed"]
        if self.num_layers == 0:
            raise out_of_range(f"{place}.num_layers", 0, OPTIONS["num_layers"].accepted)
        if self.kind == FULL and isinstance(given, dict):
            self._check_full(given, place)

    def _check_full(self, given: dict[str, Any], place: str) -> None:
        for name in _ADAPTERS_ONLY:
            if name in given:
                raise InvalidArgument(
                    f"{place}.{name} is an option of adapters, and {place}.type {FULL} makes none",
                    reason="conflict",
                    argument=f"{place}.{name}",
                    other=f"{place}.type",
                )

    def adapter_config(self, blocks: int) -> dict[str, Any]:
        """Return the ``adapter_config.json`` of an adapter of this kind.

        Args:
            blocks: how many the network has.
        """
        # mlx-lm takes -1 for all of them, and slices a larger number as all, too.
        count = blocks if self.num_layers == -1 else self.num_layers
        found: dict[str, Any] = {"fine_tune_type": self.kind, "num_layers": count}
        if self.kind != FULL:
            parameters: dict[str, Any] = {
                "rank": self.rank,
                "scale": self.scale,
                "dropout": self.dropout,
            }
            if self.keys is not None:
                parameters["keys"] = list(self.keys)
            found["lora_parameters"] = parameters
        return found
