"""Towers from folders: options of a config, and weights under the names of Hugging Face."""

from __future__ import annotations

from hashlib import blake2b
from typing import Generic, TypeVar

import mlx.core as mx
from mlx.nn.layers.base import Module

from cowmlx.accelerate.device import prepare_for_device
from cowmlx.errors import Unsupported
from cowmlx.folders import quantization, weight_samples, weights
from cowmlx.generated import constants
from cowmlx.vision.preprocessing import is_finite
from cowmlx.vision.siglip import SiglipOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from typing import Any, TypeGuard

MOST_LAYERS = 1 << 8
"""Of a tower: they are made in one turn."""
MOST_SIZE = 1 << 16
_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "silu": "silu"}
_GROUP_BYTES = 1 << 23  # of weights that are read in a turn
_CONV_AXES = (4, 5)  # of images; of frames of images

TowerT = TypeVar("TowerT", bound=Module)
ProjectorT = TypeVar("ProjectorT", bound=Module)


class TowerWithProjector(Module, Generic[TowerT, ProjectorT]):
    """A tower, and what maps its hidden states to rows of the text's network."""

    def __init__(self, tower: TowerT, projector: ProjectorT) -> None:
        super().__init__()
        self.tower, self.projector = tower, projector


def vision_options(
    config: dict[str, Any], kinds: tuple[str, ...] = ("siglip_vision_model",), **others: int
) -> SiglipOptions:
    """Return the sizes of a SigLIP tower, whose defaults are those of transformers.

    Args:
        config: the part of a config about the tower.
        kinds: what it may call itself.
        others: defaults that are not those of SigLIP.

    Raises:
        Unsupported: they make no tower.
    """
    defaults = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
    defaults |= {"intermediate_size": 3072, "patch_size": 16, "image_size": 224, **others}
    dims, layers, heads, mlp, patch, image = tower_sizes(config, kinds, defaults)
    eps = config.get("layer_norm_eps", 1e-6)
    require_fitting(dims % heads == 0 and image >= patch and is_rate(eps))
    kind = activation(config, "hidden_act", "gelu_pytorch_tanh")
    return SiglipOptions(dims, layers, heads, mlp, patch, image, eps, kind)


def tower_sizes(
    config: dict[str, Any], kinds: tuple[str, ...], defaults: dict[str, int]
) -> list[int]:
    """Return sizes of a tower.

    Args:
        config: the part of a config about it.
        kinds: what it may call itself; the first is the default.
        defaults: the sizes' names, and what they are by default.

    Raises:
        Unsupported: it is none that is known here.
    """
    kind = config.get("model_type", kinds[0])
    if kind not in kinds:
        raise Unsupported(f"config.json: vision_config is of a tower {kind!r}, not known here")
    sizes: list[int] = []
    for name, own in {**defaults, "num_channels": 3}.items():
        value = config.get(name, own)
        most = MOST_LAYERS if name == "num_hidden_layers" else MOST_SIZE
        if not is_size(value, most) or (name == "num_channels" and value != own):
            raise Unsupported(f"config.json: {name} of vision_config is {value!r}, of no tower")
        sizes.append(value)
    return sizes[:-1]


def require_fitting(fits: bool) -> None:
    """Refuse sizes that make no tower together.

    Raises:
        Unsupported: they do not fit.
    """
    if not fits:
        raise Unsupported("config.json: the sizes of vision_config do not fit each other")


def activation(config: dict[str, Any], name: str, default: str) -> str:
    """Return our name of the activation that a config names.

    Raises:
        Unsupported: it is none that is known here.
    """
    kind = config.get(name, default)
    if not isinstance(kind, str) or kind not in _ACTIVATIONS:
        raise Unsupported(f"config.json: {name} is {kind!r}; it can be {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[kind]


def is_rate(value: object) -> TypeGuard[float]:
    """Whether a value of a config is a number above 0 that float32 has."""
    return is_finite(value) and value > 0


def is_size(value: object, most: int = MOST_SIZE) -> TypeGuard[int]:
    """Whether a value of a config is a number of things, of which there is at least one."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most


def text_width(config: dict[str, Any], default: int) -> int:
    """Return the numbers of a row of the text's network.

    Raises:
        Unsupported: they are no number.
    """
    text = config.get("text_config")
    width = text.get("hidden_size", default) if isinstance(text, dict) else None
    if not is_size(width, 1 << 20):
        raise Unsupported(f"config.json: hidden_size of text_config is {width!r}, no size")
    return width


def siglip_places(prefix: str) -> dict[str, str]:
    """Return the names of SigLIP's weights behind a prefix, as :func:`load_steps` takes them."""
    return {
        f"{prefix}embeddings.patch_embedding.": "tower.patch_embedding.",
        f"{prefix}embeddings.position_embedding.": "tower.position_embedding.",
        f"{prefix}encoder.layers.": "tower.layers.",
        f"{prefix}post_layernorm.": "tower.post_layernorm.",
        ".self_attn.": ".",
        ".mlp.": ".",
    }


def is_stored(name: str, places: dict[str, str]) -> bool:
    """Whether a stored weight is a tower's, with places as of :func:`load_steps`."""
    first = {place.partition(".")[0] for place in places if not place.startswith(".")}
    return name.removeprefix("model.").partition(".")[0] in first


def load_steps(
    tower: Module,
    path: str,
    config: dict[str, Any],
    places: dict[str, str],
    make_room: Callable[[int, int], Iterable[object]] | None = None,
) -> Generator[None, None, None]:
    """Read a tower's weights and put them into the form of the device, in bounded parts.

    Args:
        tower: takes them.
        path: the folder.
        config: of the folder, for the format of quantized weights.
        places: parts of the names that are stored, and what they are in ``tower``.
        make_room: makes room for the weights; called with their bytes, and with those that reading
            them takes at its peak.

    Raises:
        NotFound, BadFormat, InputOutput, OutOfMemory: as for a model's load.
    """
    files = weights.shards(path)
    found: dict[str, mx.array] = {}
    for name, array in weights.read(files).items():
        if not is_stored(name, places):
            continue
        name = name.removeprefix("model.")
        for old, new in places.items():
            name = name.replace(old, new)
        found[name] = _flat(array)
    _quantize(tower, found, config)
    weights.assign(tower, found, path)
    tower.eval()  # kernels have no gradient
    form = prepare_for_device(tower, constants.ACTIVATIONS_EXACT)
    if make_room is not None:
        for _ in make_room(*weights.bytes_to_load(tower, form.passing, _GROUP_BYTES)):
            yield
    for _ in weights.evaluate(tower, path, _GROUP_BYTES):
        yield


def hash_steps(tower: Module) -> Generator[None, None, str]:
    """Return a hash of some values of each weight, in bounded steps."""
    digest = blake2b(digest_size=16)
    arrays = weights.flatten(tower.parameters()).items()
    yield from weight_samples.hash_steps([(name, array, digest) for name, array in arrays])
    return digest.hexdigest()


def _flat(array: mx.array) -> mx.array:
    """Return a convolution's weight as that of a linear layer over patches ([frames,] p, p, C)."""
    if array.ndim not in _CONV_AXES:
        return array
    if array.shape[-1] != 3:  # as torch has it
        array = array.moveaxis(1, -1)
    return array.reshape(array.shape[0], -1)


def _quantize(tower: Module, found: dict[str, mx.array], config: dict[str, Any]) -> None:
    settings = config.get("quantization")
    if not isinstance(settings, dict) or not any(name.endswith(".scales") for name in found):
        return
    # Settings of single layers have the files' names; the shapes of weights tell the same.
    general = {key: settings[key] for key in ("group_size", "bits", "mode") if key in settings}
    quantization.apply(tower, {"quantization": general}, found)
