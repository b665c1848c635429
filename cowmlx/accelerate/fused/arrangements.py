"""How the parts of a decoder layer are put together: declared for known layers, or searched for.

A declaration saves the search alone: a layer of each kind is still proved (:mod:`.proof`).
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

ACTIVATIONS = ("silu", "gelu_tanh", "gelu", "relu", "relu2")
_SLOTS = ("before", "after", "inner_before", "inner_after")
_PRE = ("before", "inner_before")
_POST = ("after", "inner_after")
_USUAL = {2: _PRE, 4: _SLOTS}


class Arrangement(NamedTuple):
    """Which norm stands where in a layer, and what its MLP's activation is."""

    slots: tuple[str, ...]
    """For each of the layer's norms, the name of its place."""
    activation: str
    """Of the MLP; "" where there is none that kernels have."""
    residual: float
    """Both halves are multiplied by it before they are added."""
    turns: bool
    """Whether heads turn with their position."""


# Layer classes of mlx-lm by the places of their norms, in the order in which layers have them, and
# by the activation of their MLP, where they have one that kernels compute.
_CLASSES: dict[tuple[tuple[str, ...], str], str] = {
    (_PRE, "silu"): """
        apertus.ApertusDecoderLayer bailing_moe.BailingMoeDecoderLayer
        deepseek.DeepseekDecoderLayer dots1.Dots1DecoderLayer ernie4_5.DecoderLayer
        ernie4_5_moe.Ernie4_5_DecoderLayer exaone_moe.DecoderLayer glm.GLMBlock
        glm4_moe.DecoderLayer gpt_oss.TransformerBlock granite.TransformerBlock
        granitemoe.GraniteMoeDecoderLayer helium.HeliumDecoderLayer internlm3.TransformerBlock
        jamba.JambaDecoderLayer Klear.KlearDecoderLayer lfm2.Lfm2DecoderLayer
        lfm2_moe.Lfm2DecoderLayer llama.TransformerBlock mellum.MellumDecoderLayer
        mimo.TransformerBlock minimax.MiniMaxDecoderLayer mixtral.MixtralDecoderLayer
        nemotron.TransformerBlock olmoe.TransformerBlock phi3.TransformerBlock
        phimoe.PhiMoEDecoderLayer qwen2.TransformerBlock qwen2_moe.Qwen2MoeDecoderLayer
        qwen3.TransformerBlock qwen3_moe.Qwen3MoeDecoderLayer seed_oss.TransformerBlock
        stablelm.DecoderLayer starcoder2.TransformerBlock telechat3.Telechat3DecoderLayer
    """,
    (_PRE, "gelu"): "gemma.TransformerBlock",
    (("inner_before", "before"), ""): "openelm.TransformerBlock",
    (_POST, "silu"): """
        exaone4.TransformerBlock olmo2.TransformerBlock olmo3.Olmo3DecoderLayer
        olmo_hybrid.FullAttentionDecoderLayer
    """,
    (_SLOTS, "gelu_tanh"): "gear.DecoderLayer gemma3_text.TransformerBlock",
    (("before", "inner_before", "inner_after", "after"), "gelu_tanh"): "gemma2.TransformerBlock",
    (("before", "inner_before", "after", "inner_after"), "silu"): "glm4.Glm4DecoderLayer",
}
DECLARED = {name: how for how, names in _CLASSES.items() for name in names.split()}


def declared(block: Any, has_mlp: bool, turns: bool) -> Iterator[Arrangement]:
    """Yield the arrangements that a layer of a known class may have: few, or none.

    Args:
        block: the layer.
        has_mlp: whether kernels have its MLP.
        turns: whether it has a rotation, which some of an architecture's layers may not apply.
    """
    if name_of(block) in DECLARED:
        slots, activation = DECLARED[name_of(block)]
        for with_turns in (True, False) if turns else (False,):
            yield Arrangement(
                slots, activation if has_mlp else "", _residuals(block)[0], with_turns
            )


def name_of(block: Any) -> str:
    """Return the name of a layer's class, with that of mlx-lm's module."""
    kind = type(block)
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def searched(block: Any, norms: int, turns: bool) -> Iterator[tuple[tuple[str, ...], float, bool]]:
    """Yield slots, residual and whether heads turn: all that a layer may have, the usual first."""
    orders = list(permutations(_SLOTS, norms)) if norms <= len(_SLOTS) else []
    orders.sort(key=lambda slots: slots != _USUAL.get(norms))
    for with_turns in (True, False) if turns else (False,):
        for residual in _residuals(block):
            for slots in orders:
                yield slots, residual, with_turns


def _residuals(block: Any) -> list[float]:
    own = getattr(block, "residual_multiplier", None)
    return [own, 1.0] if isinstance(own, float) else [1.0]
