"""What was trained, for contexts: the model with the adapter as it is now."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.accelerate import blocks
from cowmlx.models import adapters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.models.model import Model
    from cowmlx.training.language.objective import LanguageObjective


def published(objective: LanguageObjective) -> Model:
    """Return the model with what was trained of it, for ``context_set_adapter``.

    All other weights are the model's own arrays. What is trained later does not change it.

    Raises:
        OutOfMemory: there is no memory for what was trained.
    """
    return adapters.adapted_by(objective.model, settings(objective), stored(objective))


def settings(objective: LanguageObjective) -> dict[str, Any]:
    """Return what was trained as an ``adapter_config.json`` says it."""
    return objective.options.adapter_config(len(objective.network.layers))


def stored(objective: LanguageObjective) -> dict[str, mx.array]:
    """Return what was trained, weights of the model's own in the types that they have there."""
    values = objective.parameters()
    own = blocks.parameters(objective.model.network)
    return {
        name: value.astype(own[name].dtype) if name in own else value
        for name, value in values.items()
    }
