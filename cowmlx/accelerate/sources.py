"""Where weights lie on disk: kernels read them from there, in the form that they compute with."""

from __future__ import annotations

from cowmlx.accelerate import kernels
from cowmlx.folders import safetensors, weights

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mlx.core as mx


class Sources:
    """Where arrays lie that were read lazily; nothing without kernels, which alone read them.

    Args:
        files: the shards.
        arrays: theirs, as :func:`weights.read` returns them, before anything changes them.
    """

    def __init__(self, files: list[str], arrays: dict[str, mx.array]) -> None:
        self._places: dict[int, tuple[mx.array, mx.array, str, int]] = {}
        if not kernels.usable():
            return
        for file in files:
            if weights.is_of_torch(file):
                continue  # it is read at once
            header, begin = safetensors.read_header(file)
            for name, entry in header.items():
                array = arrays.get(name)
                if name != "__metadata__" and array is not None:
                    # The arrays are kept, so that no other one gets their identity.
                    stored = kernels.module().held(array)
                    place = begin + entry["data_offsets"][0]
                    self._places[id(array)] = array, stored, file, place

    def of(self, array: mx.array) -> tuple[str, int] | None:
        """Return the file and the byte where an array begins; None if it has other numbers.

        ``a *= 2`` gives the same object other numbers.
        """
        place = self._places.get(id(array))
        if place is None or not kernels.module().same(array, place[1]):
            return None
        return place[2:]
