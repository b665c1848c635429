"""Makes a saved context as long as many: ``-m benchmarks.support.lengthen SAVED TIMES FILE``.

Processing 32k tokens takes a Llama minutes on a CPU. What a token costs behind them does not
depend on their values, so those of a short context are repeated: keys and values one after the
other; a recurrent state stays as it is.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Generator

import mlx.core as mx

from cowmlx.cache.disk import write
from cowmlx.cache.disk_reader import Reader


def lengthen(saved: str, times: int, path: str) -> None:
    """Write the lengthened context."""
    reader = Reader(saved)
    metadata = {
        key: value for key, value in reader.metadata.items() if key not in ("format", "version")
    }
    arrays = _finished(reader.read())
    reader.close()
    length = int(metadata["tokens"])
    kinds = json.loads(metadata["layers"])
    scalars = json.loads(metadata["scalars"])
    arrays["tokens"] = mx.tile(arrays["tokens"], times)
    for name, array in arrays.items():
        if name != "tokens" and kinds[int(name.split(".")[1])] == "KVCache":
            assert array.shape[2] == length
            arrays[name] = mx.tile(array, (1, 1, times, 1))
    for name, value in scalars.items():
        if kinds[int(name.split(".")[0])] == "KVCache":
            assert value == length
            scalars[name] = length * times
    metadata |= {"tokens": str(length * times), "scalars": json.dumps(scalars)}
    for _ in write(path, metadata, arrays):
        pass


def _finished(reading: Generator[None, None, dict[str, mx.array]]) -> dict[str, mx.array]:
    while True:
        try:
            next(reading)
        except StopIteration as done:
            arrays: dict[str, mx.array] = done.value
            return arrays


if __name__ == "__main__":
    lengthen(sys.argv[1], int(sys.argv[2]), sys.argv[3])
