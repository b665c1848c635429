"""What image encoders of all families have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from mlx.nn.layers.base import Module

from cowmlx.errors import InputOutput
from cowmlx.folders import weights
from cowmlx.vision.towers import hash_steps, load_steps
from cowmlx.vision.turns import Turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
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
        make_room: makes room for the tower's weights; see :func:`cowmlx.vision.towers.load_steps`.
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
        self.make_room: Callable[[int, int], Iterable[object]] | None = None
        self._tower: T | None = None
        self._loading: Generator[None, None, None] | None = None  # shared by all images
        self._hash: str | None = None  # of the tower that was read first

    @abstractmethod
    def _new_tower(self) -> T:
        """Return the tower, without its weights."""

    def _read_tower(self) -> Generator[None, None, T]:
        """Return the tower, read in bounded parts if it is not in memory.

        Raises:
            InputOutput: it is another one than before :meth:`drop_tower`.
            OutOfMemory: there is too little memory.
        """
        while self._tower is None:
            if self._loading is None:
                self._loading = self._load_steps()
            try:
                next(self._loading, None)
            except BaseException:
                self._loading = None
                raise
            yield
        return self._tower

    def _load_steps(self) -> Generator[None, None, None]:
        tower = self._new_tower()
        yield from load_steps(tower, self._path, self._config, self.places, self.make_room)
        found = yield from hash_steps(tower)
        if self._hash not in (None, found):
            raise InputOutput(
                f"{self._path} is another model than it was when this one fell asleep; load the "
                "model again"
            )
        self._tower, self._hash, self._loading = tower, found, None

    @property
    def nbytes(self) -> int:
        """Bytes of the tower in memory."""
        return 0 if self._tower is None else weights.nbytes(self._tower)

    def drop_tower(self) -> None:
        """Leave the tower on disk until the next image needs it."""
        self._tower = self._loading = None

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
