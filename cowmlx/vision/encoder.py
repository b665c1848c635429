"""What image encoders of all families have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from mlx.nn.layers.base import Module

from cowmlx.vision.towers import load_steps
from cowmlx.vision.turns import Turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, ClassVar

    import mlx.core as mx

    from cowmlx.accelerate.positions import Axes
    from cowmlx.text.image_places import Written
    from cowmlx.vision.pixels import Pixels

T = TypeVar("T", bound=Module)


class ImageEncoder(ABC, Generic[T]):
    """Turns the images of a family's models into embeddings.

    A family's encoder is made of a folder's path, its ``config.json`` and its tokenizer. Its tower
    is read when the first image needs it.

    Attributes:
        both_ways: whether the positions of an image attend to each other both ways.
        axes: how positions of three axes are turned by; None where they have one.
        depth: for how many of the network's first layers rows have features behind them.
        key: a text that is equal where equal pixels give equal embeddings.
        written: how prompts have images.
        turns: of its work.
    """

    both_ways = False
    axes: Axes | None = None
    depth = 0
    key: str
    written: Written
    places: ClassVar[dict[str, str]]
    """Parts of the names of stored weights, and what they are in the tower."""

    def __init__(self, path: str, config: dict[str, Any]) -> None:
        self._path, self._config = path, config
        self.turns = Turns()
        self._tower: T | None = None

    @abstractmethod
    def _new_tower(self) -> T:
        """Return the tower, without its weights."""

    def _read_tower(self) -> Generator[None, None, T]:
        """Return the tower, read in bounded parts if it was not read before."""
        if self._tower is None:
            tower = self._new_tower()
            yield from load_steps(tower, self._path, self._config, self.places)
            self._tower = tower
        return self._tower

    def grid(self, width: int, height: int) -> tuple[int, int] | None:
        """Return the rows and columns of a part's positions; None where these have one axis."""
        return None

    def parts(self, pixels: Pixels) -> list[Pixels]:
        """Return the parts of an image in a prompt, as separate images: the whole, and crops."""
        return [pixels]

    def text(self, width: int, height: int) -> str:
        """Return what replaces the marker of an image in a prompt: a token for each part."""
        return self.written.text

    @abstractmethod
    def layout(self, width: int, height: int) -> list[int]:
        """Return for each position of a part a token that is looked up there; -1: a row."""

    @abstractmethod
    def tokens(self, width: int, height: int) -> int:
        """Return how many positions an image has, with those of tokens around its parts."""

    @abstractmethod
    def steps(self, pixels: Pixels) -> Generator[None, None, mx.array]:
        """Return the rows (N, D) of a part of an image, yielding between bounded steps.

        They are what the network's table of embeddings would give, for the positions without a
        token.
        """

    @abstractmethod
    def info(self) -> dict[str, Any]:
        """Return what ``model_info`` reports of it."""
