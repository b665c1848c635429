"""``model_type: "bert"`` (arXiv 1810.04805), as Hugging Face has it."""

from __future__ import annotations

from cowmlx.networks.encoders.model import Encoder, EncoderArgs, Names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LAYER_NAMES: Names = (
    (r"encoder\.layer\.(\d+)\.attention\.self", r"layers.\1.attention"),
    (r"encoder\.layer\.(\d+)\.attention\.output\.dense", r"layers.\1.attention.out"),
    (r"encoder\.layer\.(\d+)\.attention\.output\.LayerNorm", r"layers.\1.attention_norm"),
    (r"encoder\.layer\.(\d+)\.intermediate\.dense", r"layers.\1.mlp.up"),
    (r"encoder\.layer\.(\d+)\.output\.dense", r"layers.\1.mlp.down"),
    (r"encoder\.layer\.(\d+)\.output\.LayerNorm", r"layers.\1.mlp_norm"),
)
EMBEDDING_NAMES: Names = (
    (r"embeddings\.word_embeddings", "embeddings.word"),
    (r"embeddings\.position_embeddings", "embeddings.position"),
    (r"embeddings\.token_type_embeddings", "embeddings.token_type"),
    (r"embeddings\.LayerNorm", "embeddings.norm"),
)
# Heads for tokens that were masked, and tables that follow from the config.
UNUSED = ("pooler.", "cls.", "lm_head.", "embeddings.position_ids", "embeddings.token_type_ids")


class ModelArgs(EncoderArgs):
    """A config."""

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> EncoderArgs:
        """Read a config.

        Raises:
            BadFormat: a value is missing or odd.
        """
        return cls.read(config)


class Model(Encoder):
    """The network, and where its stored weights go."""

    prefixes: tuple[str, ...] = ("bert.",)
    names = (*EMBEDDING_NAMES, *LAYER_NAMES)
    head_names = ((r"pooler\.dense", "dense"), ("classifier", "out"))
    unused: tuple[str, ...] = UNUSED

    def place(self, name: str) -> str | None:
        """Return the name of a stored weight here; a classifier of tokens has no pooler."""
        if self.labels is not None and self.labels.of_tokens and "pooler." in name:
            return None
        return super().place(name)
