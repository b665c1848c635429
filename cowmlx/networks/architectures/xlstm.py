"""``model_type: "xlstm"``: xLSTM with mLSTM blocks, as Hugging Face has it (arXiv 2503.13427)."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

from cowmlx.errors import BadFormat
from cowmlx.networks.wiring import WiredModel, Wiring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import mlx.core as mx

# Newer names of a config's keys, and older ones.
_ALIASES = {"hidden_size": "embedding_dim", "num_hidden_layers": "num_blocks"}
# Where stored weights are in the wiring.
_PLACES = (
    (re.compile(r"(?:backbone\.embeddings|embedding)\."), "blocks.embedding.table."),
    (re.compile(r"backbone\.blocks\.(\d+)\."), r"blocks.xlstm_\1."),
    (re.compile(r"backbone\.out_norm\."), "blocks.out_norm."),
    (re.compile(r"lm_head\."), "blocks.lm_head.linear."),
)

_CHECKS: tuple[tuple[tuple[str, ...], str, Callable[[Any], bool]], ...] = (
    (
        ("add_out_norm", "tie_word_embeddings"),
        "true or false",
        lambda value: isinstance(value, bool),
    ),
    (
        ("hidden_size", "num_hidden_layers", "ffn_round_up_to_multiple_of"),
        "a positive integer",
        lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1,
    ),
    (
        ("qk_dim_factor", "v_dim_factor", "ffn_proj_factor"),
        "a positive number",
        lambda value: isinstance(value, int | float) and 0 < value < 1e6,
    ),
)
_GATES = (".igate_preact", ".fgate_preact", ".ifgate_preact")


@dataclass
class ModelArgs:
    """A config; the defaults are those of xLSTM 7B."""

    vocab_size: int = 50304
    hidden_size: int = 4096
    num_hidden_layers: int = 32
    num_heads: int = 8
    qk_dim_factor: float = 0.5
    v_dim_factor: float = 1.0
    ffn_proj_factor: float = 2.667
    ffn_round_up_to_multiple_of: int = 64
    norm_eps: float = 1e-6
    eps: float = 1e-6
    norm_reduction_force_float32: bool = True
    add_out_norm: bool = True
    gate_soft_cap: float | None = 15.0
    output_logit_soft_cap: float | None = 30.0
    chunk_size: int = 64
    use_bias: bool = False
    weight_mode: str = "single"
    tie_word_embeddings: bool = False

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> ModelArgs:
        """Read a config.

        Raises:
            BadFormat: a value is of the wrong type or out of range.
        """
        given = dict(config)
        for name, alias in _ALIASES.items():
            if alias in given and given.setdefault(name, given[alias]) != given[alias]:
                message = f"{name} is {given[name]!r}, but {alias} is {given[alias]!r}"
                raise _invalid(message, name, given[name])
        known = inspect.signature(cls).parameters
        args = cls(**{name: value for name, value in given.items() if name in known})
        args.check()
        return args

    def check(self) -> None:
        """Require what the wiring does not check by itself."""
        if self.weight_mode not in ("single", "fused"):
            message = f'weight_mode is {self.weight_mode!r}; it can be "single" or "fused"'
            raise _invalid(message, "weight_mode", self.weight_mode)
        for names, kind, accepts in _CHECKS:
            for name in names:
                value = getattr(self, name)
                if not accepts(value):
                    raise _invalid(f"{name} is {value!r}, not {kind}", name, value)

    @property
    def hidden_dims(self) -> int:
        """Values between the layers of an FFN: rounded up as the reference does, in floats."""
        multiple = self.ffn_round_up_to_multiple_of
        wanted = self.hidden_size * self.ffn_proj_factor
        return int(((wanted + multiple - 1) // multiple) * multiple)


def create_xlstm_wiring(args: ModelArgs | dict[str, Any]) -> Wiring:
    """Make the wiring of a Hugging Face config: embedding → xlstm_0 → … → out_norm → lm_head.

    Raises:
        BadFormat: a value of the config is of the wrong type or out of range.
    """
    if isinstance(args, dict):
        args = ModelArgs.from_dict(args)
    dims, vocabulary = args.hidden_size, args.vocab_size
    wiring = Wiring().add_block("embedding", "embedding", num_embeddings=vocabulary, dims=dims)
    for index in range(args.num_hidden_layers):
        wiring.add_block(
            f"xlstm_{index}",
            "mlstm",
            dims=dims,
            num_heads=args.num_heads,
            qk_dims=int(dims * args.qk_dim_factor),
            v_dims=int(dims * args.v_dim_factor),
            hidden_dims=args.hidden_dims,
            chunk_size=args.chunk_size,
            gate_soft_cap=args.gate_soft_cap,
            norm_eps=args.norm_eps,
            eps=args.eps,
            norm_float32=args.norm_reduction_force_float32,
            bias=args.use_bias,
            fused=args.weight_mode == "fused",
        )
    if args.add_out_norm:
        wiring.add_block(
            "out_norm",
            "rms_norm",
            dims=dims,
            eps=args.norm_eps,
            float32=args.norm_reduction_force_float32,
        )
    wiring.add_block(
        "lm_head",
        "lm_head",
        dims=dims,
        num_embeddings=vocabulary,
        soft_cap=args.output_logit_soft_cap,
        embedding="embedding" if args.tie_word_embeddings else None,
    )
    return wiring.chain(*(spec.name for spec in wiring.blocks))


class Model(WiredModel):
    """The network, and where its stored weights go."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(create_xlstm_wiring(args))
        self._tied = args.tie_word_embeddings

    def sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        """Give stored weights their names in the wiring."""
        placed = {_placed(name): array for name, array in weights.items()}
        if len(placed) != len(weights):
            raise BadFormat(
                "the embedding is stored under both of its names", reason="weights_mismatch"
            )
        for name, array in placed.items():
            if name.endswith("multihead_norm.weight"):
                placed[name] = array.reshape(-1)
        if self._tied:
            placed.pop("blocks.lm_head.linear.weight", None)
        return placed

    def quant_predicate(self, path: str, module: Any) -> bool:
        """Whether a layer is quantized: the gates are small, and decide over everything."""
        return hasattr(module, "to_quantized") and not path.endswith(_GATES)


def _invalid(message: str, key: str, value: object) -> BadFormat:
    return BadFormat(
        f"config.json: {message}", reason="invalid_config", file="config.json", key=key, value=value
    )


def _placed(name: str) -> str:
    for pattern, place in _PLACES:
        renamed, count = pattern.subn(place, name, count=1) if pattern.match(name) else (name, 0)
        if count:
            return renamed
    return name
