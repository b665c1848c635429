"""The types of blocks that a wiring can have.

A new type is a :class:`Block` and a line in :data:`BLOCKS`. The keyword arguments
of its ``__init__`` are its parameters, their annotations what a wiring may give.
"""

from __future__ import annotations

import importlib
import inspect

import mlx.core as mx
from mlx.nn.layers.base import Module

from cowmlx.errors import BadFormat, CowMlxError, WiringError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cowmlx.networks.wiring.declaration import BlockSpec, Wiring

__all__ = ["BLOCKS", "Block", "block_class", "check_vocabulary", "check_widths", "invalid", "make"]

# Modules of this package and the classes in them, by type.
BLOCKS = {
    "attention": "attention.Attention",
    "embedding": "simple.Embedding",
    "identity": "simple.Identity",
    "layer_norm": "simple.LayerNorm",
    "linear": "simple.Linear",
    "lm_head": "simple.LMHead",
    "mlp": "simple.MLP",
    "mlstm": "mlstm.MLSTMBlock",
    "rms_norm": "simple.RMSNorm",
    "slstm": "slstm.SLSTMBlock",
    "swiglu": "simple.SwiGLU",
}

_LARGEST = 2**31 - 1
_MAX_FLOAT = 3.4e38  # of float32
# What a parameter's annotation accepts, and how a message calls it.
_ACCEPTED: dict[str, tuple[str, Any]] = {
    "bool": ("true or false", lambda value: isinstance(value, bool)),
    "int": (
        f"an integer from 1 to {_LARGEST}",
        lambda value: (
            isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LARGEST
        ),
    ),
    "float": (
        "a positive number",
        lambda value: (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and 0 < value <= _MAX_FLOAT
        ),
    ),
    "str": ("a string", lambda value: isinstance(value, str)),
    "dict[str, Any]": ("an object", lambda value: isinstance(value, dict)),
}


class Block(Module):
    """One block of a wiring: (B, T, :attr:`input_dims`) to (B, T, :attr:`output_dims`).

    Attributes:
        stateful: whether it has a state between calls, a layer cache of mlx-lm's.
        input_dims: values per position that it takes; None if it takes tokens (B, T).
        output_dims: values per position that it gives.
    """

    stateful = False
    input_dims: int | None
    output_dims: int

    def __init__(self, input_dims: int | None, output_dims: int) -> None:
        super().__init__()
        self.input_dims = input_dims
        self.output_dims = output_dims

    @classmethod
    def borrowed(cls, spec: BlockSpec) -> tuple[str, ...]:
        """Return the names of the embeddings that calls are given behind the state."""
        return ()

    def make_state(self) -> Any:
        """Return a fresh state, if the block is stateful."""
        return None

    if TYPE_CHECKING:

        def __call__(self, x: mx.array, state: Any = None, *borrowed: Block) -> mx.array:
            """Map what arrives, and update the state in place."""


def invalid(message: str, key: str, value: object, **details: object) -> BadFormat:
    """Return the error of a parameter's value."""
    return BadFormat(message, reason="invalid_config", key=key, value=value, **details)


def block_class(type: str, name: str) -> type[Block]:
    """Return the class of a type of block.

    Args:
        type: a key of :data:`BLOCKS`.
        name: of the block that has it, for the message.

    Raises:
        WiringError: there is no such type.
    """
    if type not in BLOCKS:
        known = ", ".join(sorted(BLOCKS))
        raise WiringError(f"block {name}: there is no type {type!r}; it can be {known}", block=name)
    module, _, attribute = BLOCKS[type].partition(".")
    imported: Any = importlib.import_module(f"{__name__}.{module}")
    return getattr(imported, attribute)


def make(spec: BlockSpec, wiring: Wiring) -> Block:
    """Make a block.

    Raises:
        WiringError: the type is unknown, or a parameter is missing, unknown or out of range.
    """
    kind = block_class(spec.type, spec.name)
    label = f"block {spec.name} ({spec.type})"
    accepted = {
        name: parameter
        for name, parameter in inspect.signature(kind.__init__).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    for name in spec.parameters:
        if name not in accepted:
            known = ", ".join(accepted)
            raise WiringError(f"{label} has an unknown parameter {name!r}; it can have {known}")
    for name, parameter in accepted.items():
        if name in spec.parameters:
            _check(label, name, parameter, spec.parameters[name])
        elif parameter.default is inspect.Parameter.empty:
            raise WiringError(f"{label} lacks the parameter {name!r}")
    for other in kind.borrowed(spec):
        if other not in wiring or wiring[other].type != "embedding":
            raise WiringError(f"{label} names {other!r}, which is no embedding of the wiring")
    try:
        return kind(**spec.parameters)
    except CowMlxError as exc:
        raise WiringError(f"{label}: {exc}") from exc
    except Exception as exc:  # what mlx says to numbers it cannot use
        raise WiringError(f"{label} cannot be made: {type(exc).__name__}: {exc}") from exc


def _check(label: str, name: str, parameter: inspect.Parameter, value: Any) -> None:
    annotation = str(parameter.annotation)
    if value is None and annotation.endswith(" | None"):
        return
    kind, fits = _ACCEPTED[annotation.removesuffix(" | None")]
    if not fits(value):
        raise WiringError(f"{label}: {name} is {repr(value)[:60]}, not {kind}")


def check_vocabulary(wiring: Wiring, blocks: Mapping[str, Block]) -> None:
    """Require that the input block has a vector for every token that the output block may give.

    Raises:
        WiringError: the message names both blocks.
    """
    rows = getattr(blocks[wiring.input], "num_embeddings", 0)
    logits = blocks[wiring.output].output_dims
    if logits > rows:
        raise WiringError(
            f"the output block {wiring.output} gives logits of {logits} tokens, but the input "
            f"block {wiring.input} has vectors of {rows}"
        )


def check_widths(wiring: Wiring, blocks: Mapping[str, Block]) -> None:
    """Require that what arrives at every block is as wide as it takes it.

    Raises:
        WiringError: the message names both blocks.
    """
    first = blocks[wiring.input]
    if first.input_dims is not None:
        raise WiringError(f"the input block {wiring.input} takes vectors, not tokens")
    for source, target in wiring.edges:
        gives, takes = blocks[source].output_dims, blocks[target].input_dims
        if takes is None:
            raise WiringError(f"{target} takes tokens, but {source} is connected to it")
        if gives != takes:
            raise WiringError(
                f"{source} gives vectors of {gives} values, but {target} takes {takes}"
            )
    for name, block in blocks.items():
        for other in block.borrowed(wiring[name]):
            table: Any = blocks[other]
            if (table.num_embeddings, table.output_dims) != (block.output_dims, block.input_dims):
                raise WiringError(
                    f"{name} maps {block.input_dims} values to {block.output_dims}, but {other}, "
                    f"with which it is tied, has {table.num_embeddings} vectors of "
                    f"{table.output_dims}"
                )
