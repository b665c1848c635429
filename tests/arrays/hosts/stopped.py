"""Arrays live on in nothing but their tensors when the runtime stops amid a wait."""

import threading

import mlx.core as mx
import numpy as np
from support import dlpack, on_dispatch
from support.arrays import Arrays
from support.library import Library
from support.signatures import ECANCELED, EHANDLE, ESTATE

from cowmlx.arrays.dtypes import value_of
from cowmlx.arrays.table import Submitted

lib = Library()
lib.start(device="cpu")
arrays = Arrays(lib)


def submit(service):
    value = Submitted()
    service._runtime.scheduler.add(on_dispatch.Run(value))
    return service._table.add(value, value_of(mx.int32), (3,))


with on_dispatch.runner(lib) as run:
    pending = run(submit)
    ended = []
    thread = threading.Thread(
        target=lambda: ended.append(arrays.c.cow_mlx_array_wait(pending, 2**32 - 1))
    )
    thread.start()
    while run(lambda service: len(service._runtime.scheduler.units)) < 2:
        pass
    handle = arrays.create(np.arange(1000))
    lazy = run(lambda service: service.add(mx.arange(1000)))
addresses = [arrays.to_dlpack(handle), arrays.to_dlpack(lazy)]
assert lib.info()["handles"]["array"] == 3
lib.stop()
thread.join()
assert ended == [ECANCELED]
assert arrays.c.cow_mlx_array_free(handle) == ESTATE
assert (np.from_dlpack(dlpack.Capsule(addresses[0])) == np.arange(1000)).all()
lib.start(device="cpu")
assert lib.info()["handles"]["array"] == 0
for stale in (handle, lazy, pending):
    assert arrays.c.cow_mlx_array_free(stale) == EHANDLE
assert arrays.create(np.arange(2)) not in (handle, lazy, pending)
lib.stop()
deleter = threading.Thread(target=dlpack.delete, args=(addresses[1],))
deleter.start()
deleter.join()
print("done")
