"""Where the time of a decode step goes, without the library around it: split.py MODEL.

Answers each line "KIND COUNT TOKEN..." with the microseconds per token of building the step's
graph in Python and of evaluating it.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import ctypes

from cowmlx import blas

library = Path(blas.__file__).parent / "lib" / blas.SHIM
wanted = blas.wanted()
if wanted is not None:
    ctypes.CDLL(str(library)).cow_blas_open(wanted.encode(), blas.threads())
    ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)

import mlx.core as mx  # noqa: E402

from cowmlx.models import registry  # noqa: E402

if mx.default_device() == mx.Device(mx.cpu):
    mx.disable_compile()


def load(path):
    """Load a model folder."""
    loading = registry.load(path, adapter_path=None, lazy=False, trust_remote_code=False)
    while True:
        try:
            next(loading)
        except StopIteration as done:
            return done.value


model = load(sys.argv[1])
print("ready", flush=True)

for line in sys.stdin:
    count, *prompt = map(int, line.split()[1:])
    layers = model.make_cache()
    token = mx.argmax(model.network(mx.array([prompt]), cache=layers)[:, -1], axis=-1)
    mx.eval(token)
    building = evaluating = 0.0
    for _ in range(count):
        begun = time.perf_counter()
        token = mx.argmax(model.network(token[:, None], cache=layers)[:, -1], axis=-1)
        built = time.perf_counter()
        mx.eval(token)
        building += built - begun
        evaluating += time.perf_counter() - built
    print(1e6 * building / count, 1e6 * evaluating / count, flush=True)
