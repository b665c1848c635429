"""Another instruction set is chosen while operations of the one before are under way."""

from __future__ import annotations

import threading
from itertools import cycle

import mlx.core as mx
import pytest
from support import tiny_models
from support.kernel_module import SETS, needed

from cowmlx.generated.constants import ACTIVATIONS_INT8
from cowmlx.models import registry

MODULE = needed()
ROUNDS = 40
PROMPT = [(7 * i) % 300 for i in range(400)]  # some ms


@pytest.fixture
def network(tmp_path):
    """A network of fused layers whose quantized weights are multiplied with eight bits."""
    path = tiny_models.make(tmp_path, "llama", quantize={"group_size": 32, "bits": 4})
    loading = registry.load(
        str(path),
        adapter_path=None,
        lazy=False,
        trust_remote_code=False,
        activations=ACTIVATIONS_INT8,
    )
    while True:
        try:
            next(loading)
        except StopIteration as end:
            assert end.value.info()["kernels"]["whole"]
            return end.value


@pytest.mark.skipif(len(SETS) < 2, reason="this processor knows one instruction set")
def test_an_operation_ends_with_the_instruction_set_that_it_began_with(network):
    """What is computed is what one of them gives, never a mixture."""

    def computed() -> bytes:
        """Keys of the last layer: of all layers, which are one operation, and of nothing else."""
        caches = network.make_cache()
        network.network(mx.array([PROMPT]), cache=caches)
        keys = caches[-1].keys[:, :, : len(PROMPT)]
        mx.eval(keys)
        return bytes(memoryview(keys))

    def of_each() -> set[bytes]:
        found = set()
        for name in SETS:
            MODULE.select(name)
            found.add(computed())
        return found

    ended = threading.Event()

    def choose() -> None:
        for name in cycle(SETS):
            if ended.is_set():
                return
            MODULE.select(name)

    chooser = threading.Thread(target=choose)
    try:
        expected = of_each()
        chooser.start()
        seen = {computed() for _ in range(ROUNDS)}
    finally:
        ended.set()
        chooser.join()
        MODULE.select("")
    assert len(expected) > 1, "the instruction sets give the same: nothing would show a mixture"
    assert seen <= expected
