"""``model_type: "electra"`` (arXiv 2003.10555), as Hugging Face has it: its discriminator."""

from __future__ import annotations

from cowmlx.networks.architectures.bert import EMBEDDING_NAMES, LAYER_NAMES, UNUSED, ModelArgs
from cowmlx.networks.encoders.heads import ClassificationHead
from cowmlx.networks.encoders.model import Encoder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.networks.encoders.model import EncoderArgs
    from cowmlx.networks.encoders.options import Labels

__all__ = ["Model", "ModelArgs"]


class Model(Encoder):
    """The network, and where its stored weights go."""

    prefixes = ("electra.",)
    names = (*EMBEDDING_NAMES, ("embeddings_project", "embeddings.project"), *LAYER_NAMES)
    head_names = (
        (r"classifier\.dense", "dense"),
        (r"classifier\.out_proj", "out"),
        ("classifier", "out"),  # of tokens
    )
    unused = (
        *UNUSED,
        *("discriminator_predictions.", "generator_predictions.", "generator_lm_head."),
    )

    def make_head(self, args: EncoderArgs, labels: Labels) -> ClassificationHead:
        """Return the head of a classifier."""
        return ClassificationHead(args.dims, labels, None if labels.of_tokens else "gelu")
