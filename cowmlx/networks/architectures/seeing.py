"""Vision models whose text network is one of mlx-lm's: its weights without those of the tower.

``text_config`` says which one. Weights have the names that Hugging Face stores, of one version or
another, or those of mlx.
"""

from __future__ import annotations

from mlx.nn.layers.base import Module

from cowmlx.errors import Unsupported
from cowmlx.networks import light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

    import mlx.core as mx

# The types of text networks, and what transformers assumes where a config says nothing.
_TEXTS: dict[str, dict[str, Any]] = {
    "lfm2": {
        **{"hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 32},
        **{"num_attention_heads": 32, "num_key_value_heads": 8, "norm_eps": 1e-5},
        **{"vocab_size": 65536, "max_position_embeddings": 128000},
        **{"conv_bias": False, "conv_L_cache": 3, "block_multiple_of": 256},
        **{"block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": True},
    },
    "llama": {
        **{"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32},
        **{"num_attention_heads": 32, "rms_norm_eps": 1e-6, "vocab_size": 32000},
        "rope_theta": 10000.0,
    },
    "mistral": {
        **{"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32},
        **{"num_attention_heads": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-6},
        **{"vocab_size": 32000, "rope_theta": 10000.0},
    },
}
_DEFAULTS = {"lfm2-vl": "lfm2", "lfm2_vl": "lfm2"}
_OWN = "language_model."
_BEGINS = {
    "model.language_model.": f"{_OWN}model.",
    "model.text_model.": f"{_OWN}model.",
    "text_model.": f"{_OWN}model.",
    "language_model.model.": f"{_OWN}model.",
    "language_model.lm_head.": f"{_OWN}lm_head.",
    "language_model.": f"{_OWN}model.",
    "lm_head.": f"{_OWN}lm_head.",
}
_HEAD, _TABLE = f"{_OWN}lm_head.", f"{_OWN}model.embed_tokens."


class ModelArgs:
    """What the config of such a model holds.

    Attributes:
        model_type: of the whole.
        text_config: of its text network, with what transformers assumes.
    """

    def __init__(self, model_type: str, text_config: dict[str, Any]) -> None:
        self.model_type = model_type
        self.text_config = text_config

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> ModelArgs:
        """Read a config.

        Raises:
            Unsupported: its text network is of a type that is not known here.
        """
        text = config["text_config"]
        kind = text.get("model_type", _DEFAULTS.get(config["model_type"], "llama"))
        if kind not in _TEXTS:
            raise Unsupported(
                f"config.json: model_type of text_config is {kind!r}; a {config['model_type']} "
                f"model's can be {', '.join(_TEXTS)}",
                reason="unknown_architecture",
                value=str(kind),
            )
        tied = config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
        own = {**_TEXTS[kind], **text, "model_type": kind, "tie_word_embeddings": tied}
        own.setdefault("block_dim", own["hidden_size"])
        return cls(config["model_type"], own)


class Model(Module):
    """The text network.

    Args:
        args: of the model.
    """

    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        self.args = args
        self.model_type = args.model_type
        own = _module(args.text_config["model_type"])
        self.language_model = own.Model(own.ModelArgs.from_dict(args.text_config))

    def __call__(
        self,
        inputs: mx.array,
        cache: list[Any] | None = None,
        input_embeddings: mx.array | None = None,
    ) -> mx.array:
        """Return logits (B, S, V) of tokens (B, S)."""
        logits: mx.array = self.language_model(inputs, cache, input_embeddings)
        return logits

    @property
    def layers(self) -> list[Module]:
        """The decoder layers."""
        layers: list[Module] = self.language_model.layers
        return layers

    def make_cache(self) -> list[Any]:
        """Return a cache for each layer."""
        caches = light_route.import_module("models.cache")
        made: list[Any] = caches.make_prompt_cache(self.language_model)
        return made

    def sanitize(self, weights: dict[str, mx.array]) -> dict[str, mx.array]:
        """Return a folder's weights of the text network, under its names."""
        found = {}
        for name, array in weights.items():
            for begin, own in _BEGINS.items():
                if name.startswith(begin):
                    found[own + name.removeprefix(begin)] = array
                    break
        if "lm_head" not in self.language_model:
            found = {name: array for name, array in found.items() if not name.startswith(_HEAD)}
        elif not any(name.startswith(_HEAD) for name in found):  # a config may not say that it is
            tables = [name for name in found if name.startswith(_TABLE)]
            found |= {name.replace(_TABLE, _HEAD): found[name] for name in tables}
        inner = {name.removeprefix(_OWN): array for name, array in found.items()}
        own = self.language_model.sanitize(inner)
        return {_OWN + name: array for name, array in own.items()}


def _module(kind: str) -> ModuleType:
    return light_route.import_module(
        f"models.{light_route.architecture_name({'model_type': kind})}"
    )
