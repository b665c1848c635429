"""Activations that are multiplied with quantized weights: exact, or of eight bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from math import dist, hypot

import mlx.core as mx
import pytest
from driver import greedy, prompt
from support import tiny_models
from support.library import StatusError
from support.paths import ROOT
from support.signatures import (
    ACTIVATIONS_DEFAULT,
    ACTIVATIONS_EXACT,
    ACTIVATIONS_INT8,
    EINVAL,
    EUNSUPPORTED,
)

from cowmlx.accelerate import kernels

PACKED = {"group_size": 64, "bits": 4}
START = prompt(40)
# What eight bits for activations may change, of what four bits for weights do.
NEAR = 0.25
WARNING = 1

rounds = pytest.mark.skipif(not kernels.available(), reason=kernels.reason() or "there are kernels")


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return tiny_models.make(tmp_path_factory.mktemp("packed"), "llama", quantize=PACKED)


@pytest.fixture
def load(lib):
    """Loads models, which are freed afterwards."""
    loaded = []

    def load(path, activations):
        loaded.append(lib.load(path, activations=activations))
        return loaded[-1]

    yield load
    for model in loaded:
        lib.free_model(model)


def logits(lib, open_context, model):
    context = open_context(model)
    lib.begin(context, START, max_tokens=0)
    return lib.logits(context)


def test_the_default_rounds_where_weights_are_packed_and_kernels_compute(lib, load, packed):
    model = load(packed, ACTIVATIONS_DEFAULT)
    expected = "int8" if kernels.available() else "exact"
    assert lib.info(model)["activations"] == expected


def test_the_default_is_exact_where_weights_are_not_packed(lib, load, folder):
    assert lib.info(load(folder("llama"), ACTIVATIONS_DEFAULT))["activations"] == "exact"


def test_exact_is_exact(lib, load, packed):
    assert lib.info(load(packed, ACTIVATIONS_EXACT))["activations"] == "exact"


def test_activations_of_bfloat16_are_rounded_where_a_processor_multiplies_them(
    lib, load, open_context, tmp_path
):
    """To eight bits of precision, as mlx's are."""
    tiny_models.make(tmp_path, "llama", dtype="bfloat16")
    default, exact = (load(tmp_path, how) for how in (ACTIVATIONS_DEFAULT, ACTIVATIONS_EXACT))
    multiplies = kernels.available() and kernels.instruction_set() in kernels.BFLOAT16
    assert lib.info(default)["activations"] == ("bfloat16" if multiplies else "exact")
    assert lib.info(exact)["activations"] == "exact"
    rounded, right = (logits(lib, open_context, model) for model in (default, exact))
    assert dist(rounded, right) < 0.05 * hypot(*right)
    assert (rounded != right) == multiplies


@rounds
def test_int8_changes_little_beside_what_packing_does(lib, load, open_context, packed, tmp_path):
    exact, rounded = (
        logits(lib, open_context, load(packed, how))
        for how in (ACTIVATIONS_EXACT, ACTIVATIONS_INT8)
    )
    tiny_models.make(tmp_path, "llama")
    plain = logits(lib, open_context, load(tmp_path, ACTIVATIONS_DEFAULT))
    assert 0 < dist(exact, rounded) < NEAR * dist(plain, exact)


@rounds
def test_int8_gives_the_same_every_time(lib, load, open_context, packed):
    model = load(packed, ACTIVATIONS_INT8)
    assert lib.info(model)["activations"] == "int8"
    first, second = (greedy(lib, open_context(model), START) for _ in range(2))
    assert first == second


def test_int8_without_packed_weights_is_refused(lib, folder):
    with pytest.raises(StatusError) as refused:
        lib.load(folder("llama"), activations=ACTIVATIONS_INT8)
    assert refused.value.status == EUNSUPPORTED
    assert "activations is 2 (int8), but" in refused.value.message


@pytest.mark.parametrize("value", [3, -1])
def test_other_values_are_refused(lib, packed, value):
    with pytest.raises(StatusError) as refused:
        lib.load(packed, activations=value)
    assert refused.value.status == EINVAL
    assert f"activations is {value}, must be" in refused.value.message


WITHOUT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from support.library import Library, StatusError

lib, said = Library(), []
lib.start(device="cpu", log=lambda level, message: said.append((level, message.decode())))
told = {"info": lib.info(lib.load(sys.argv[2], activations=0)), "said": said}
try:
    lib.load(sys.argv[2], activations=2)
except StatusError as error:
    told["refused"] = [error.status, error.message]
lib.stop()
print(json.dumps(told))
"""


def without_kernels(folder):
    """The info of a model in a process that uses no kernels."""
    command = [sys.executable, "-c", WITHOUT, str(ROOT / "tests"), str(folder)]
    env = {**os.environ, "COWMLX_KERNELS": "off"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_without_kernels_int8_is_refused_and_the_reason_told(packed):
    told = without_kernels(packed)
    assert told["info"]["activations"] == "exact"
    assert told["info"]["kernels"]["instruction_set"] is None
    assert told["info"]["kernels"]["why_not"] == [
        {"reason": "there are no kernels: COWMLX_KERNELS is off"}
    ]
    status, message = told["refused"]
    assert status == EUNSUPPORTED
    assert "COWMLX_KERNELS is off" in message
    (warning,) = [message for level, message in told["said"] if level == WARNING]
    assert "computed slowly" in warning
    assert "COWMLX_KERNELS is off" in warning


def test_without_kernels_a_load_warns_of_weights_of_16_bits(tmp_path):
    tiny_models.make(tmp_path, "llama")
    weights = mx.load(str(tmp_path / "model.safetensors"))
    halves = {name: array.astype(mx.bfloat16) for name, array in weights.items()}
    mx.save_safetensors(str(tmp_path / "model.safetensors"), halves, metadata={"format": "mlx"})
    slow = [m for level, m in without_kernels(tmp_path)["said"] if level == WARNING]
    assert len(slow) == 1
    assert "computed slowly" in slow[0]
    assert "COWMLX_KERNELS is off" in slow[0]
