"""Handles: one that is not open is EHANDLE for every function, and never another object."""

from __future__ import annotations

import random
import threading
from ctypes import byref, c_int32, c_int64

import pytest
from support import details
from support.arguments import HANDLES, PROGRAM, PROMPT, TRAINABLE, parameters, tensor
from support.c_programs import Programs
from support.library import SILENT, Library, StatusError
from support.signatures import COMPAT, EHANDLE
from support.trainings import Trainings

TAKES_HANDLE = parameters(lambda name, _: name in HANDLES)
NONE = {("cow_mlx_context_set_adapter", "adapter")}  # where 0 means that there is none
INT32_MAX = 2**31 - 1
THREADS, ROUNDS = 16, 24


@pytest.fixture(scope="module")
def foreign(lib: Library, calf: int, paths) -> dict[str, list[int]]:
    """For each kind: values that are no such open handle."""
    context = lib.context(calf)
    adapter = lib.load_adapter(calf, paths["cow_mlx_adapter_load"])
    arrays = (c_int64(), c_int64())
    for array in arrays:
        lib.check(lib.c.cow_mlx_array_create(byref(tensor()), byref(array)))
    lib.check(lib.c.cow_mlx_array_free(arrays[1]))
    media = c_int32()
    lib.check(lib.c.cow_mlx_media_from_pixels(b"a", 1, 1, 1, 1, byref(media)))
    opened = {
        "model": calf,
        "context": context,
        "adapter": adapter,
        "checkpoint": lib.checkpoint(context),
        "array": arrays[0].value,
        "program": Programs(lib).create(PROGRAM),
        "training": Trainings(lib).create(TRAINABLE),
        "media": media.value,
    }
    freed = [lib.context(calf), lib.load_adapter(calf, paths["cow_mlx_adapter_load"])]
    freed.append(lib.checkpoint(freed[0]))
    lib.free_checkpoint(freed[2])
    lib.free_adapter(freed[1])
    lib.free(freed[0])
    source = random.Random(7)
    values = [0, -1, 1, INT32_MAX, -INT32_MAX - 1, *freed, -freed[0], freed[0] - (2 << 28)]
    values += [handle + (1 << 16) for handle in opened.values()]
    values += [context + 1, 5 << 28]
    values += [source.randint(-INT32_MAX - 1, INT32_MAX) for _ in range(32)]
    values = [value if value <= INT32_MAX else 2 for value in values]
    wide = [arrays[1].value, arrays[0].value + 1, arrays[0].value + (1 << 24), 2**53, 2**63 - 1]
    wide += [-arrays[0].value, -(2**63), *(source.randint(0, 2**53) for _ in range(32))]
    return {
        # Every kind has separate slots, so another kind's value may look like this one's.
        kind: [
            value
            for value in (
                *values,
                *(opened[other] for other in HANDLES if other not in (kind, "array")),
                *(wide if kind == "array" else ()),
            )
            if value != opened[kind]
        ]
        for kind in HANDLES
    }


@pytest.mark.parametrize(("function", "parameter"), TAKES_HANDLE)
def test_foreign_value(lib, call_of, foreign, function, parameter):
    call = call_of(function)
    for value in foreign[parameter]:
        if value == 0 and (function, parameter) in NONE:
            continue
        result = call(**{parameter: value})
        assert call.failed(result, EHANDLE), f"{value}: {result}"
        assert str(value) in lib.message() or function in COMPAT or function in SILENT
        assert call.untouched()
        if function not in COMPAT and function not in SILENT:
            found = details.read(lib.c)
            assert found["reason"] == "unknown_handle"
            assert found["details"] == {"handle": value, "kind": parameter}


def test_a_context_s_checkpoints_are_freed_with_it(lib, calf):
    contexts = [lib.context(calf), lib.context(calf)]
    checkpoint = lib.checkpoint(contexts[0])
    lib.free(contexts[0])
    for call in (lib.free_checkpoint, lambda stale: lib.rewind(contexts[1], stale)):
        with pytest.raises(StatusError) as error:
            call(checkpoint)
        assert error.value.status == EHANDLE
    lib.free(contexts[1])


def test_freed_model_keeps_its_contexts(lib, calf):
    model = lib.load(lib.info(calf)["path"])
    context = lib.context(model)
    lib.free_model(model)
    with pytest.raises(StatusError) as error:
        lib.info(model)
    assert error.value.status == EHANDLE
    lib.generate(context, PROMPT, max_tokens=2)
    lib.free(context)


def test_freed_handle_is_never_another_object(lib, calf):
    """Many threads open and free contexts; what one has freed stays unknown to all."""
    freed: list[int] = []
    opened: list[int] = []
    failures: list[str] = []
    barrier = threading.Barrier(THREADS)

    def work(seed: int) -> None:
        source = random.Random(seed)
        barrier.wait()
        for _ in range(ROUNDS):
            context = lib.context(calf)
            opened.append(context)
            if lib.c.cow_mlx_context_reset(context) != 0:
                failures.append(f"{context} is open, but {lib.message()}")
            stale = source.choice(freed) if freed else 0
            for function in ("reset", "cancel", "free"):
                status = getattr(lib.c, f"cow_mlx_context_{function}")(stale)
                if status != EHANDLE:
                    failures.append(f"{function} took {stale}, which was freed: {status}")
            lib.free(context)
            freed.append(context)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(set(opened)) == len(opened) == THREADS * ROUNDS
