"""The networks of GGUF files: config, and the names and forms that weights have elsewhere."""

from __future__ import annotations

import math
from typing import NamedTuple

from cowmlx.errors import BadFormat, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import numpy as np

    from cowmlx.folders.gguf_file import Contents, Tensor

    Change = Callable[[np.ndarray], np.ndarray]

_MAX_NUMBER = 1 << 31
_MAX_LAYERS = 4096
# Names of a layer's modules, in every family unless it has others.
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_FOUR_NORMS = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_FUSED = {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}
_OUTER = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_EMBEDDING, _HEAD = "token_embd.weight", "output.weight"
# Factors of RoPE, which belong into the config.
_ROPE, _LONG, _SHORT = (
    f"rope_{name}.weight" for name in ("freqs", "factors_long", "factors_short")
)
# Of Llama 3.1 and later, from which llama.cpp computes the factors of rope_freqs.
_LOW, _HIGH, _ORIGINAL = 1.0, 4.0, 8192


class Family(NamedTuple):
    """The differences of a family of networks.

    Attributes:
        model_type: in config.json.
        architecture: the class that config.json names.
        layer: names of modules of a layer that differ from :data:`_LAYER`.
        rotated: whether rows of queries and keys lie in pairs.
        norms_plus_one: whether norms are stored with 1 added.
        more: returns further keys of the config.
    """

    model_type: str
    architecture: str
    layer: dict[str, str]
    rotated: bool = False
    norms_plus_one: bool = False
    more: Callable[[Facts], dict[str, Any]] = lambda _: {}


class Facts:
    """The metadata of a network, checked.

    Args:
        contents: of the file.
    """

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.architecture = contents.metadata.get("general.architecture")

    def has(self, key: str) -> bool:
        """Whether there is a value for a key of the architecture."""
        return self._full(key) in self.contents.metadata

    def count(self, key: str, default: int | None = None, most: int = _MAX_NUMBER) -> int:
        """Return a positive integer.

        Raises:
            BadFormat: it is none, or missing without a default.
        """
        value = self.contents.metadata.get(self._full(key), default)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise self.bad(f"{self._full(key)} is {_shown(value)}, no integer from 1 to {most}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a finite number above 0.

        Raises:
            BadFormat: it is none, or missing without a default.
        """
        value = self.contents.metadata.get(self._full(key), default)
        good = isinstance(value, int | float) and not isinstance(value, bool)
        number = float(value) if good and value is not None else math.nan
        if not math.isfinite(number) or number <= 0:
            raise self.bad(f"{self._full(key)} is {_shown(value)}, no number above 0")
        return number

    def rope_type(self) -> str:
        """Return the kind of RoPE scaling, "none" without one."""
        value = self.contents.metadata.get(self._full("rope.scaling.type"), "none")
        return value if isinstance(value, str) else "none"

    def floats(self, name: str) -> list[float] | None:
        """Return the numbers of a small tensor, None if there is none."""
        tensor = self.contents.tensors.get(name)
        if tensor is None:
            return None
        if len(tensor.shape) != 1 or tensor.shape[0] > _MAX_LAYERS:
            raise self.bad(f"tensor {name!r} has the shape {list(tensor.shape)}")
        return [float(value) for value in self.contents.numbers(tensor)]

    def bad(self, reason: str) -> BadFormat:
        """Return an error of the file."""
        return BadFormat(f"{self.contents.path}: {reason}", file=self.contents.path)

    def unsupported(self, reason: str) -> Unsupported:
        """Return an error of a network that cannot be converted."""
        return Unsupported(f"{self.contents.path}: {reason}", file=self.contents.path)

    def _full(self, key: str) -> str:
        return f"{self.architecture}.{key}"

    # Sizes that several keys of a config depend on.

    @property
    def heads(self) -> int:
        """Attention heads."""
        return self.count("attention.head_count")

    @property
    def width(self) -> int:
        """Numbers of a hidden state."""
        return self.count("embedding_length")

    @property
    def head_size(self) -> int:
        """Numbers of a head."""
        return self.count("attention.key_length", max(1, self.width // self.heads))

    @property
    def layers(self) -> int:
        """Layers."""
        return self.count("block_count", most=_MAX_LAYERS)


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)[:60]


# ------------------------------------------------------------------- Families


def _llama(facts: Facts) -> dict[str, Any]:
    return {
        "attention_bias": "blk.0.attn_q.bias" in facts.contents.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in facts.contents.tensors,
        "rope_scaling": _llama_rope(facts),
    }


def _llama_rope(facts: Facts) -> dict[str, Any] | None:
    """Return the parameters that the factors of the file were computed from.

    Raises:
        Unsupported: they were computed from others than Llama 3's.
    """
    factors = facts.floats(_ROPE)
    if factors is None:
        return _linear(facts)
    factor = round(max(factors), 4)
    scaling = {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": _LOW,
        "high_freq_factor": _HIGH,
        "original_max_position_embeddings": _ORIGINAL,
    }
    base, size = facts.number("rope.freq_base", 10000.0), facts.head_size
    expected = [_llama3_factor(base ** (2 * index / size), factor) for index in range(len(factors))]
    if not all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(factors, expected, strict=True)):
        raise facts.unsupported(f"{_ROPE} has other factors than Llama 3's")
    return scaling


def _llama3_factor(period: float, factor: float) -> float:
    wavelength = 2 * math.pi * period
    if wavelength < _ORIGINAL / _HIGH:
        return 1.0
    if wavelength > _ORIGINAL / _LOW:
        return factor
    smooth = (_ORIGINAL / wavelength - _LOW) / (_HIGH - _LOW)
    return 1 / ((1 - smooth) / factor + smooth)


def _linear(facts: Facts) -> dict[str, Any] | None:
    """Return a RoPE scaling by one factor, None for none.

    Raises:
        Unsupported: the scaling is of another kind.
    """
    kind = facts.rope_type()
    if kind == "linear":
        return {"rope_type": "linear", "factor": facts.number("rope.scaling.factor")}
    if kind not in ("none", ""):
        raise facts.unsupported(f"RoPE scaling {kind!r} cannot be converted")
    return None


def _rope_alone(facts: Facts) -> dict[str, Any]:
    return {"rope_scaling": _linear(facts)}


def _gemma2(facts: Facts) -> dict[str, Any]:
    largest = 46  # layers of the one whose queries are scaled otherwise
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "attn_logit_softcapping": facts.number("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": facts.number("final_logit_softcapping", 30.0),
        "query_pre_attn_scalar": _query_scalar(facts, largest),
        "sliding_window": facts.count("attention.sliding_window", 4096),
    }


def _gemma3(facts: Facts) -> dict[str, Any]:
    largest, pattern = 62, 6
    if facts.has("final_logit_softcapping"):
        raise facts.unsupported("a Gemma 3 network with a soft cap of its logits is not known")
    return {
        "hidden_activation": "gelu_pytorch_tanh",
        "query_pre_attn_scalar": _query_scalar(facts, largest),
        "sliding_window": facts.count("attention.sliding_window"),
        "sliding_window_pattern": pattern,
        "rope_local_base_freq": facts.number("rope.freq_base_swa", 10000.0),
        "rope_scaling": _linear(facts),
        "layer_types": [
            "sliding_attention" if (index + 1) % pattern else "full_attention"
            for index in range(facts.layers)
        ],
    }


def _query_scalar(facts: Facts, largest: int) -> int:
    return facts.width // facts.heads if facts.layers == largest else facts.head_size


def _phi3(facts: Facts) -> dict[str, Any]:
    long, short = facts.floats(_LONG), facts.floats(_SHORT)
    original = facts.count("rope.scaling.original_context_length", facts.count("context_length"))
    scaling = None
    if long is not None:
        scaling = {"type": "longrope", "long_factor": long, "short_factor": short or long}
    return {
        "rope_scaling": scaling,
        "original_max_position_embeddings": original,
        "partial_rotary_factor": facts.count("rope.dimension_count", facts.head_size)
        / facts.head_size,
    }


FAMILIES = {
    "llama": Family("llama", "LlamaForCausalLM", {}, rotated=True, more=_llama),
    "qwen2": Family("qwen2", "Qwen2ForCausalLM", {}, more=_rope_alone),
    "qwen3": Family("qwen3", "Qwen3ForCausalLM", {}, more=_rope_alone),
    "gemma2": Family("gemma2", "Gemma2ForCausalLM", _FOUR_NORMS, norms_plus_one=True, more=_gemma2),
    "gemma3": Family(
        "gemma3_text", "Gemma3ForCausalLM", _FOUR_NORMS, norms_plus_one=True, more=_gemma3
    ),
    "phi3": Family("phi3", "Phi3ForCausalLM", _FUSED, more=_phi3),
}
"""By ``general.architecture``. SmolLM and Mistral are of the family llama."""


# -------------------------------------------------------------------- Networks


class Weight(NamedTuple):
    """A weight of the network that is made.

    Attributes:
        tensor: of the file.
        change: from the file's numbers to the network's, or None.
    """

    tensor: Tensor
    change: Change | None


def family(facts: Facts) -> Family:
    """Return the family of a file's network.

    Raises:
        Unsupported: it is none that can be converted.
    """
    known = FAMILIES.get(facts.architecture) if isinstance(facts.architecture, str) else None
    if known is None:
        raise facts.unsupported(
            f"networks of the architecture {facts.architecture!r} cannot be converted; it can be "
            f"{', '.join(FAMILIES)}"
        )
    if facts.has("expert_count") and facts.count("expert_count", 1) > 1:
        raise facts.unsupported("networks with experts cannot be converted")
    if known.model_type != "phi3" and facts.count("rope.dimension_count", facts.head_size) != (
        facts.head_size
    ):
        raise facts.unsupported(
            f"{facts.architecture}.rope.dimension_count is not {facts.head_size}, a head's size"
        )
    return known


def config(facts: Facts, kind: Family) -> dict[str, Any]:
    """Return ``config.json`` of a file's network, without tokens.

    Raises:
        BadFormat: the metadata are incomplete or out of range.
        Unsupported: the network cannot be converted.
    """
    tensors = facts.contents.tensors
    if _EMBEDDING not in tensors:
        raise facts.bad(f"it has no tensor {_EMBEDDING!r}")
    heads = facts.heads
    known: dict[str, Any] = {
        "architectures": [kind.architecture],
        "model_type": kind.model_type,
        "hidden_size": facts.width,
        "intermediate_size": facts.count("feed_forward_length"),
        "num_hidden_layers": facts.layers,
        "num_attention_heads": heads,
        "num_key_value_heads": facts.count("attention.head_count_kv", heads),
        "head_dim": facts.head_size,
        "hidden_act": "silu",
        "rms_norm_eps": facts.number("attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": facts.count("context_length"),
        "rope_theta": facts.number("rope.freq_base", 10000.0),
        "tie_word_embeddings": _HEAD not in tensors,
        "vocab_size": tensors[_EMBEDDING].shape[0],
    }
    return {**known, **kind.more(facts)}


def weights(facts: Facts, kind: Family) -> dict[str, Weight]:
    """Return the weights by their names in the network.

    Raises:
        Unsupported: the file has a tensor that is not known.
    """
    heads = facts.heads
    pairs = {"attn_q": heads, "attn_k": facts.count("attention.head_count_kv", heads)}
    found: dict[str, Weight] = {}
    for tensor in facts.contents.tensors.values():
        if tensor.name in (_ROPE, _LONG, _SHORT):
            continue
        stem, _, leaf = tensor.name.rpartition(".")
        name, own = _name(stem, kind), stem.rpartition(".")[2]
        if not name or leaf not in ("weight", "bias"):
            raise facts.unsupported(
                f"tensor {tensor.name!r} is none that a {facts.architecture} network has"
            )
        change: Change | None = None
        if kind.rotated and own in pairs:
            change = _unpaired(facts, tensor, pairs[own])
        elif kind.norms_plus_one and own.endswith("norm"):
            change = _minus_one
        found[f"{name}.{leaf}"] = Weight(tensor, change)
    return found


def _name(stem: str, kind: Family) -> str:
    """Return the name of a module, "" if there is none."""
    if stem in _OUTER:
        return _OUTER[stem]
    parts = stem.split(".")
    if len(parts) != 3 or parts[0] != "blk" or not parts[1].isdecimal():
        return ""
    inner = {**_LAYER, **kind.layer}.get(parts[2])
    return f"model.layers.{int(parts[1])}.{inner}" if inner else ""


def _unpaired(facts: Facts, tensor: Tensor, heads: int) -> Change:
    """Return what puts rows that lie in pairs into halves of a head.

    Raises:
        BadFormat: there are no such heads.
    """
    rows = tensor.shape[0]
    if rows % (2 * heads):
        raise facts.bad(f"tensor {tensor.name!r} has {rows} rows, which are no {heads} heads")

    def change(numbers: np.ndarray) -> np.ndarray:
        rest = numbers.shape[1:]
        return numbers.reshape(heads, -1, 2, *rest).swapaxes(1, 2).reshape(rows, *rest)

    return change


def _minus_one(numbers: np.ndarray) -> np.ndarray:
    return numbers - 1
