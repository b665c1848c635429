"""``model_type: "roberta"`` (arXiv 1907.11692), as Hugging Face has it."""

from __future__ import annotations

from cowmlx.networks.architectures.bert import EMBEDDING_NAMES, LAYER_NAMES, UNUSED
from cowmlx.networks.encoders.model import Encoder, EncoderArgs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ModelArgs(EncoderArgs):
    """A config."""

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> EncoderArgs:
        """Read a config.

        Raises:
            BadFormat: a value is missing or odd.
        """
        return cls.read(config, offset=True)


class Model(Encoder):
    """The network, and where its stored weights go."""

    prefixes = ("roberta.",)
    names = (*EMBEDDING_NAMES, *LAYER_NAMES)
    head_names = (
        (r"classifier\.dense", "dense"),
        (r"classifier\.out_proj", "out"),
        ("classifier", "out"),  # of tokens
    )
    unused: tuple[str, ...] = UNUSED
