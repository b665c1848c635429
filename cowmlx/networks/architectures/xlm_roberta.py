"""``model_type: "xlm-roberta"`` (arXiv 1911.02116): RoBERTa with a vocabulary of 100 languages."""

from __future__ import annotations

from cowmlx.networks.architectures.roberta import Model, ModelArgs

__all__ = ["Model", "ModelArgs"]
