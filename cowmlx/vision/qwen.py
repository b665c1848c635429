"""The image encoders of Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen 3.5: images of any size.

An image is resized to a multiple of what a position is made of, within bounds of its pixels.
"""

from __future__ import annotations

import math

from cowmlx.accelerate.positions import Axes
from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.text.image_places import Written
from cowmlx.vision.encoder import ImageEncoder
from cowmlx.vision.pixels import MAX_PIXELS
from cowmlx.vision.preprocessing import Preprocessing, patches_of
from cowmlx.vision.qwen_tower import QwenTower, QwenTowerOptions
from cowmlx.vision.towers import MOST_LAYERS, MOST_SIZE, is_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    import mlx.core as mx

    from cowmlx.text.tokenizer import Tokenizer
    from cowmlx.vision.pixels import Pixels

_AROUND = 2  # tokens: the marks of begin and end
_LONGEST = 200  # times the shorter side, as far as Qwen's preprocessing goes
_DEFAULTS = {
    "resample": 3,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],  # of CLIP
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "patch_size": 14,
    "merge_size": 2,
    "temporal_patch_size": 2,
}
_PIXELS = 56 * 56, 28 * 28 * 1280  # fewest and most, by default
_MOST_PATCHES = 1 << 19  # of an image
_SECTIONS = {"qwen2": [16, 24, 24], "qwen3_vl": [24, 20, 20], "qwen3_5": [11, 11, 10]}
_ACTIVATIONS = {"silu": "silu", "quick_gelu": "quick_gelu", "gelu": "gelu"}
_ACTIVATIONS |= {"gelu_pytorch_tanh": "gelu_tanh"}
_PLACES = {
    "visual.": "",
    "vision_tower.": "",
    "patch_embed.proj.": "patch_embedding.",
    "merger.mlp.0.": "merger.linear_fc1.",
    "merger.mlp.2.": "merger.linear_fc2.",
    "deepstack_merger_list.": "stacked.",
    ".attn.": ".",
    ".mlp.": ".",
    ".fc1.": ".linear_fc1.",
    ".fc2.": ".linear_fc2.",
    ".up_proj.": ".linear_fc1.",
    ".down_proj.": ".linear_fc2.",
    ".ln_q.": ".norm.",
}


class QwenImageEncoder(ImageEncoder[QwenTower]):
    """See :class:`cowmlx.vision.encoder.ImageEncoder`."""

    places = _PLACES

    def __init__(self, path: str, config: dict[str, Any], tokenizer: Tokenizer) -> None:
        super().__init__(path, config)
        text = config.get("text_config")
        text = text if isinstance(text, dict) else config  # of older folders
        family = config["model_type"]
        own = self._options = tower_options(family, config["vision_config"])
        self.depth = len(own.stacked)
        self.axes = _axes(family, text)
        if text.get("hidden_size") != own.out:
            raise _odd("out_hidden_size", own.out, f"{text.get('hidden_size')}, the text's width")
        layers = text.get("num_hidden_layers")
        if not isinstance(layers, int) or layers < self.depth:
            raise _odd("deepstack_visual_indexes", list(own.stacked), f"at most {layers} long")
        self._preprocessing = Preprocessing.read(path, _DEFAULTS)
        self._fewest, self._most = self._bounds()
        sizes = f"{self._fewest}-{self._most}"
        self.key = f"{family} {own} {self.axes} {sizes} {self._preprocessing.key}"
        self.written = _written(config, tokenizer)

    def _bounds(self) -> tuple[int, int]:
        """Return the fewest and the most pixels of an image after resizing."""
        own, settings = self._options, self._preprocessing.settings
        named = {"patch_size": own.patch, "merge_size": own.merge}
        self._preprocessing.require(**named, temporal_patch_size=own.frames)
        size = settings.get("size")
        size = size if isinstance(size, dict) else {}
        found = []
        for at, (name, edge) in enumerate((("min", "shortest_edge"), ("max", "longest_edge"))):
            key = f"{name}_pixels"
            given = (settings.get(key), size.get(edge), size.get(key), _PIXELS[at])
            found.append(next(value for value in given if value is not None))
        fewest, most = found
        limit = min(MAX_PIXELS, _MOST_PATCHES * own.patch**2)
        if not all(isinstance(value, int) and value > 0 for value in found) or not (
            fewest <= min(most, limit)
        ):
            raise Unsupported(
                f"{self._preprocessing.file}: images have {fewest!r} to {most!r} pixels; the "
                f"fewest must be at least 1 and at most {limit}, and not more than the most"
            )
        return fewest, min(most, limit)

    @property
    def _side(self) -> int:
        """Pixels along a side of a position."""
        return self._options.patch * self._options.merge

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        """Return the width and height that an image is resized to.

        Raises:
            InvalidArgument: it is too long and thin.
        """
        if max(width, height) > _LONGEST * min(width, height):
            raise InvalidArgument(
                f"an image of {width} x {height} is too long and thin: one side can be at most "
                f"{_LONGEST} times as long as the other",
                reason="limit_exceeded",
                limit=_LONGEST,
            )
        side = self._side
        sizes = [round(each / side) * side for each in (width, height)]
        pixels = sizes[0] * sizes[1]
        if pixels > self._most:
            by = math.sqrt(width * height / self._most)
            sizes = [max(1, math.floor(each / by / side)) * side for each in (width, height)]
        elif pixels < self._fewest:
            by = math.sqrt(self._fewest / (width * height))
            sizes = [math.ceil(each * by / side) * side for each in (width, height)]
        return sizes[0], sizes[1]

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """Return the rows and columns of an image's positions."""
        across, down = self._resized(width, height)
        return down // self._side, across // self._side

    def layout(self, width: int, height: int) -> list[int]:
        """Return -1 for each position of an image: it has a row."""
        return [-1] * math.prod(self.grid(width, height))

    def tokens(self, width: int, height: int) -> int:
        """Return how many positions there are, with those of tokens around the image."""
        return math.prod(self.grid(width, height)) + _AROUND

    def info(self) -> dict[str, Any]:
        """Return what ``model_info`` reports of it."""
        most = [self._most / self._side**2, math.sqrt(self._most * _LONGEST) / self._side]
        for longer in (1, _LONGEST):
            sides = math.sqrt(self._fewest / longer), math.sqrt(self._fewest * longer)
            most.append(math.prod(each / self._side + 1 for each in sides))  # sides are rounded up
        longest = int(math.sqrt(self._most * _LONGEST)) // self._side * self._side
        return {"tokens": int(max(most)) + _AROUND, "width": longest, "height": longest}

    def _new_tower(self) -> QwenTower:
        return QwenTower(self._options)

    def steps(self, pixels: Pixels) -> Generator[None, None, mx.array]:
        """Return the rows of an image."""
        own = self._options
        width, height = self._resized(pixels.width, pixels.height)
        image = yield from self._preprocessing.steps(pixels, height, width, self.turns)
        tower = yield from self._read_tower()
        grid = height // own.patch, width // own.patch
        return (yield from tower.steps(patches_of(image, own.patch), grid, self.turns))


def tower_options(family: str, config: dict[str, Any]) -> QwenTowerOptions:
    """Return the sizes of a family's tower.

    Raises:
        Unsupported: they make no tower.
    """
    is_third = family.startswith("qwen3")
    width = "embed_dim" if family == "qwen2_vl" else "hidden_size"
    out = "hidden_size" if family == "qwen2_vl" else "out_hidden_size"
    dims, heads = _size(config, width), _size(config, "num_heads")
    patch, merge = _size(config, "patch_size"), _size(config, "spatial_merge_size", 2)
    if dims % heads or dims // heads % 4:
        raise _odd(width, dims, f"{heads} heads of a multiple of 4 numbers")
    if patch * merge > 1 << 10:
        raise _odd("patch_size", patch, f"at most {(1 << 10) // merge}")
    if (channels := config.get("in_channels", config.get("in_chans", 3))) != 3:
        raise _odd("in_channels", channels, "3")
    kinds = {"qwen2_vl": "quick_gelu", "qwen2_5_vl": "silu"}
    kind = config.get("hidden_act", kinds.get(family, "gelu_pytorch_tanh"))
    if kind not in _ACTIVATIONS or (kind == "quick_gelu" and family == "qwen2_5_vl"):
        raise _odd("hidden_act", kind, ", ".join(_ACTIVATIONS))
    mlp = _size(config, "mlp_ratio", 4) * dims if family == "qwen2_vl" else None
    options = QwenTowerOptions(
        dims=dims,
        layers=_size(config, "depth", most=MOST_LAYERS),
        heads=heads,
        mlp=mlp or _size(config, "intermediate_size"),
        patch=patch,
        merge=merge,
        frames=_size(config, "temporal_patch_size", 2),
        out=_size(config, out),
        activation=_ACTIVATIONS[kind],
    )
    if family == "qwen2_5_vl":
        return _windowed(options, config)
    return _with_positions(options, family, config) if is_third else options


def _windowed(options: QwenTowerOptions, config: dict[str, Any]) -> QwenTowerOptions:
    size = _size(config, "window_size", 112)
    window = size // (options.patch * options.merge)
    if not window:
        raise _odd("window_size", size, f"at least {options.patch * options.merge}")
    full = _layers(config, "fullatt_block_indexes", [7, 15, 23, 31], options)
    return options._replace(gated=True, window=window, full=full)


def _with_positions(
    options: QwenTowerOptions, family: str, config: dict[str, Any]
) -> QwenTowerOptions:
    count = _size(config, "num_position_embeddings", 2304)
    side = math.isqrt(count)
    if side**2 != count:
        raise _odd("num_position_embeddings", count, "a square")
    default = [8, 16, 24] if family.startswith("qwen3_vl") else []
    stacked = _layers(config, "deepstack_visual_indexes", default, options)
    return options._replace(bias=True, side=side, stacked=stacked)


def _size(
    config: dict[str, Any], name: str, default: int | None = None, most: int = MOST_SIZE
) -> int:
    value = config.get(name, default)
    if not is_size(value, most):
        raise _odd(name, value, f"1 to {most}")
    return value


def _layers(
    config: dict[str, Any], name: str, default: list[int], options: QwenTowerOptions
) -> tuple[int, ...]:
    """Return the places of some of the tower's layers."""
    value = config.get(name, default)
    if (
        not isinstance(value, list)
        or not all(type(at) is int and 0 <= at < options.layers for at in value)
        or len(set(value)) != len(value)
    ):
        raise _odd(name, value, f"places of its {options.layers} layers")
    return tuple(value)


def _axes(family: str, text: dict[str, Any]) -> Axes:
    settings = text.get("rope_scaling") or text.get("rope_parameters")
    settings = settings if isinstance(settings, dict) else {}
    default = next(value for name, value in _SECTIONS.items() if family.startswith(name))
    value = settings.get("mrope_section", default)
    if (
        not isinstance(value, list)
        or len(value) != 3
        or not all(type(each) is int and 0 <= each <= 1 << 12 for each in value)
    ):
        raise Unsupported(f"config.json: mrope_section is {value!r}; it must be three numbers")
    return Axes((value[0], value[1], value[2]), family.startswith("qwen3"))


def _written(config: dict[str, Any], tokenizer: Tokenizer) -> Written:
    names = ("vision_start_token_id", "image_token_id", "vision_end_token_id")
    ids = [config.get(name) for name in names]
    if not all(isinstance(own, int) and own in tokenizer.added for own in ids):
        raise Unsupported(f"config.json: {', '.join(names)} are {ids}, which are no tokens")
    begin, soft, end = (tokenizer.added[own] for own in ids)  # type: ignore[index]
    text = f"{begin}{soft}{end}"
    return Written(text, text, ids[1], (begin, soft, end))  # type: ignore[arg-type]


def _odd(name: str, value: object, accepted: str) -> Unsupported:
    return Unsupported(
        f"config.json: {name} in vision_config is {value!r}; it must be {accepted}",
        value=str(value),
    )
