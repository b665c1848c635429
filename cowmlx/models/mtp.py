"""Multi-token prediction: a layer of a model that drafts the token behind the next one.

It makes a hidden state of the model's last one and of the next token (arXiv 2412.19437, 2.2).
Folders of Hugging Face have its weights, which mlx-lm leaves out.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.normalization import RMSNorm

from cowmlx.errors import Unsupported
from cowmlx.folders import quantization, weights
from cowmlx.networks import light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.models.model import Model


class _Form(NamedTuple):
    """How an architecture stores its first head.

    Attributes:
        begins: a pattern of what names begin with, in which N is the number of layers.
        layer: the class of its decoder layer.
        names: of the norms of tokens and hidden states, the projection and the last norm; other
            names are the layer's, behind ``inner``.
        inner: see ``names``.
        by_index: whether the class takes the index of a layer.
        hidden_first: whether the hidden state comes before the token in the projection.
        shifted: whether Hugging Face stores norms less 1.
    """

    begins: str
    layer: str
    names: tuple[str, str, str, str]
    inner: str = ""
    by_index: bool = True
    hidden_first: bool = False
    shifted: bool = False


_DEEPSEEK = _Form(
    r"model\.layers\.N\.",
    "DeepseekV3DecoderLayer",
    ("enorm", "hnorm", "eh_proj", "shared_head.norm"),
)
_QWEN = _Form(
    r"(?:model\.|language_model\.)*mtp\.",
    "DecoderLayer",
    ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"),
    inner="layers.0.",
    shifted=True,
)
FORMS = {
    "deepseek_v3": _DEEPSEEK,
    "glm4_moe": _DEEPSEEK._replace(layer="DecoderLayer"),
    "mimo": _Form(
        r"model\.mtp_layers\.0\.",
        "TransformerBlock",
        ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"),
        by_index=False,
        hidden_first=True,
    ),
    "qwen3_5": _QWEN,
    "qwen3_5_moe": _QWEN,
    "qwen3_next": _QWEN._replace(layer="Qwen3NextDecoderLayer"),
}
_OWN = ("token_norm", "hidden_norm", "project", "norm")
_SHARED = ("embed_tokens.", "shared_head.head.")  # copies of the model's


class Head(Module):
    """Makes the hidden state that the head of the vocabulary takes for the token after the next.

    Args:
        dims: of hidden states.
        eps: of the norms.
        layer: a decoder layer.
        hidden_first: see :class:`_Form`.
    """

    def __init__(self, dims: int, eps: float, layer: Module, hidden_first: bool) -> None:
        super().__init__()
        self.token_norm = RMSNorm(dims, eps)
        self.hidden_norm = RMSNorm(dims, eps)
        self.project = Linear(2 * dims, dims, bias=False)
        self.layer = layer
        self.norm = RMSNorm(dims, eps)
        self._hidden_first = hidden_first

    def __call__(self, hidden: mx.array, embedded: mx.array, cache: Any) -> mx.array:
        """Return hidden states (B, S, D) of those (B, S, D), and of the tokens behind them."""
        parts = [self.token_norm(embedded), self.hidden_norm(hidden)]
        if self._hidden_first:
            parts.reverse()
        x = self.project(mx.concatenate(parts, axis=-1))
        base = light_route.import_module("models.base")
        mask = base.create_attention_mask(x, cache, return_array=True)
        return self.norm(self.layer(x, mask=mask, cache=cache))


def is_of_head(name: str, config: dict[str, Any]) -> bool:
    """Whether a stored weight is one of a head, which the network itself does not have."""
    form = FORMS.get(config["model_type"])
    return form is not None and _behind(form, config, name) is not None


def _behind(form: _Form, config: dict[str, Any], name: str) -> str | None:
    """Return a stored name without its beginning; None if it is not of the head."""
    layers = str(config.get("num_hidden_layers", "N"))
    found = re.match(form.begins.replace("N", layers), name)
    return None if found is None else name[found.end() :]


def head_of(model: Model) -> Head:
    """Return a model's head; its weights are read when they are first used.

    Raises:
        Unsupported: there is none.
        BadFormat: its weights do not fit.
    """
    head: Head = model.remembered.once("mtp head", lambda: _read(model))
    return head


def unread_bytes(model: Model) -> int:
    """Return the bytes of the weights of a model's head that are still on disk."""
    form = FORMS.get(model.architecture)
    if form is None or "mtp head" in model.remembered:
        return 0
    stored = weights.read(weights.shards(model.path))
    return sum(array.nbytes for array in _own(form, model.config, stored).values())


def _read(model: Model) -> Head:
    form = FORMS.get(model.architecture)
    if form is None:
        raise Unsupported(
            f"draft_heads is 1, but a {model.architecture} model has no heads that draft tokens; "
            f"there are some of {', '.join(FORMS)} models",
            argument="draft_heads",
            value=1,
        )
    stored = weights.read(weights.shards(model.path))
    own = _own(form, model.config, stored)
    if not own:
        raise Unsupported(
            f"draft_heads is 1, but {model.path} has no weights of a head: conversions of mlx-lm "
            "leave them out; load the folder that was converted",
            argument="draft_heads",
            value=1,
        )
    return _filled(form, model.network, model.config, own, stored, model.path)


def _own(form: _Form, config: dict[str, Any], stored: dict[str, mx.array]) -> dict[str, mx.array]:
    """Return the stored weights of a head, by their names without its beginning."""
    return {
        name: array
        for full, array in stored.items()
        if (name := _behind(form, config, full)) and not name.startswith(_SHARED)
    }


def _filled(
    form: _Form,
    network: Any,
    config: dict[str, Any],
    own: dict[str, mx.array],
    stored: dict[str, mx.array],
    path: str,
) -> Head:
    """Return a head with its weights, which are not evaluated."""
    head = _made(form, network)
    named = _named(form, network, own, stored)
    settings = config.get("quantization")
    if settings is not None:
        plain = {key: value for key, value in settings.items() if not isinstance(value, dict)}
        quantization.apply(head, {"quantization": plain}, named)
    weights.assign(head, named, path)
    head.eval()
    return head


def stored_head(
    network: Any, config: dict[str, Any], architecture: str, files: list[str], path: str
) -> tuple[Head, Callable[[str], str]] | None:
    """Return the head in a folder's files, and how a converted folder names its weights.

    None if there is none.

    Args:
        network: that reads the files.
        config: of the folder; a quantization is that of its weights.
        architecture: the network's.
        files: with weights.
        path: the folder, for messages.

    Raises:
        BadFormat: the head's weights do not fit.
    """
    form = FORMS.get(architecture)
    if form is None:
        return None
    stored = weights.read(files)
    own = _own(form, config, stored)
    if not own:
        return None
    head = _filled(form, network, config, own, stored, path)
    begins = next(full[: -len(name)] for full in stored if (name := _behind(form, config, full)))

    def name_of(name: str) -> str:
        module, _, parameter = name.rpartition(".")
        if module in _OWN:
            return f"{begins}{form.names[_OWN.index(module)]}.{parameter}"
        return f"{begins}{form.inner}{name.removeprefix('layer.')}"

    return head, name_of


def _made(form: _Form, network: Any) -> Head:
    """Return a head with initial weights."""
    import sys

    arguments = network.language_model.args if "language_model" in network else network.args
    kind: Any = getattr(sys.modules[type(network).__module__], form.layer, None)
    if kind is None:  # an architecture that is derived from another one's module
        kind = getattr(sys.modules[type(network).__mro__[1].__module__], form.layer)
    index = getattr(arguments, "full_attention_interval", arguments.num_hidden_layers + 1) - 1
    layer = kind(arguments, layer_idx=index) if form.by_index else kind(arguments)
    return Head(arguments.hidden_size, arguments.rms_norm_eps, layer, form.hidden_first)


def _named(
    form: _Form, network: Any, own: dict[str, mx.array], stored: dict[str, mx.array]
) -> dict[str, mx.array]:
    """Return stored weights by the names that a head has for them."""
    named: dict[str, mx.array] = {}
    layer: dict[str, mx.array] = {}
    for name, array in own.items():
        module, _, parameter = name.rpartition(".")
        if module in form.names:
            named[f"{_OWN[form.names.index(module)]}.{parameter}"] = array
        else:
            layer[f"model.layers.0.{name.removeprefix(form.inner)}"] = array
    if form.shifted:
        # A convolution as Hugging Face stores it marks a folder whose norms are stored less 1.
        raw = [v for k, v in stored.items() if k.endswith("conv1d.weight") and v.shape[-1] != 1]
        if raw:
            layer["model.layers.1.linear_attn.conv1d.weight"] = raw[0]
            norms = [name for name in named if name.startswith(("token_", "hidden_", "norm."))]
            named |= {name: named[name] + 1.0 for name in norms}
    for name, array in network.sanitize(layer).items():
        _, found, rest = name.partition("model.layers.0.")
        if found:
            named[f"layer.{rest}"] = array
    return named
