"""What is trained of a language model, as the host asks for it."""

from __future__ import annotations

from math import isfinite

from cowmlx.errors import InvalidArgument, OutOfRange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LORA, DORA, FULL = KINDS = ("lora", "dora", "full")
MAX_RANK = 1 << 16
MAX_SCALE = 1000.0
MAX_KEYS = 1 << 16


class LanguageOptions:
    """LoRA, DoRA or all weights, and of which layers; names and defaults are mlx-lm's.

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
    """

    def __init__(
        self,
        *,
        kind: str = LORA,
        rank: int = 8,
        scale: float = 20.0,
        dropout: float = 0.0,
        num_layers: int = -1,
        keys: tuple[str, ...] | None = None,
        checkpointing: bool = False,
        seed: int = 0,
    ) -> None:
        self.kind = kind
        self.rank = rank
        self.scale = scale
        self.dropout = dropout
        self.num_layers = num_layers
        self.keys = keys
        self.checkpointing = checkpointing
        self.seed = seed
        self._check()

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> LanguageOptions:
        """Read options.

        Args:
            given: ``type``, ``rank``, ``scale``, ``dropout``, ``num_layers``, ``keys``,
                ``grad_checkpoint`` and ``seed``; each may be left out.

        Raises:
            InvalidArgument: another key, a value of another type or out of range, or a value for
                what is not trained.
        """
        for name in given:
            if name not in _NAMES:
                raise InvalidArgument(
                    f"{name!r} is no option of training a language model; there are "
                    f"{', '.join(_NAMES)}",
                    reason="unknown_option",
                    argument=name,
                    accepted=", ".join(_NAMES),
                )
        for name, value in given.items():
            _check_type(name, value)
        found = cls(**{_NAMES[name][0]: value for name, value in given.items()})
        if found.kind == FULL:
            for name in ("rank", "scale", "dropout", "keys"):
                if name in given:
                    raise InvalidArgument(
                        f"{name} is an option of adapters; with type {FULL!r} there is none",
                        reason="conflict",
                        argument=name,
                        other="type",
                    )
        return found

    def _check(self) -> None:
        if self.kind not in KINDS:
            raise OutOfRange("type", self.kind, f"one of {', '.join(KINDS)}")
        if not 1 <= self.rank <= MAX_RANK:
            raise OutOfRange("rank", self.rank, f"1 to {MAX_RANK}")
        self.scale = float(self.scale)
        if not (isfinite(self.scale) and 0 < abs(self.scale) <= MAX_SCALE):
            raise OutOfRange("scale", self.scale, f"within {MAX_SCALE:g} of 0, and not 0")
        self.dropout = float(self.dropout)
        if not 0 <= self.dropout < 1:
            raise OutOfRange("dropout", self.dropout, "0 or more, and below 1")
        if self.num_layers != -1 and self.num_layers < 1:
            raise OutOfRange("num_layers", self.num_layers, "1 or more, or -1 for all")
        if self.keys is not None:
            self.keys = tuple(self.keys)
            if not 0 < len(self.keys) <= MAX_KEYS or not all(
                isinstance(key, str) and key for key in self.keys
            ):
                raise OutOfRange("keys", list(self.keys)[:5], "names of layers, at least one")

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


# Of options: the attribute, its types, and how a message calls them.
_NAMES: dict[str, tuple[str, tuple[type, ...], str]] = {
    "type": ("kind", (str,), "a string"),
    "rank": ("rank", (int,), "a whole number"),
    "scale": ("scale", (int, float), "a number"),
    "dropout": ("dropout", (int, float), "a number"),
    "num_layers": ("num_layers", (int,), "a whole number"),
    "keys": ("keys", (list, tuple, type(None)), "an array of names"),
    "grad_checkpoint": ("checkpointing", (bool,), "true or false"),
    "seed": ("seed", (int,), "a whole number"),
}


def _check_type(name: str, value: object) -> None:
    _, types, told = _NAMES[name]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise InvalidArgument(
            f"{name} is {repr(value)[:60]}; it must be {told}",
            reason="wrong_type",
            argument=name,
            accepted=told,
        )
