"""Weights that are quantized while they are read."""

from __future__ import annotations

import json
import subprocess
import sys
from ctypes import byref, c_int32
from pathlib import Path

import pytest
from driver import Oracle, delivered, generate_at_once, greedy, opened, prompt
from support import tiny_models
from support.library import StatusError
from support.paths import ROOT
from support.signatures import (
    ECANCELED,
    EINVAL,
    EUNSUPPORTED,
    QUANTIZE_AFFINE,
    QUANTIZE_MXFP4,
    QUANTIZE_MXFP8,
    QUANTIZE_NVFP4,
)

from cowmlx.accelerate import kernels

WIDE = {"hidden_size": 256, "head_dim": 64, "intermediate_size": 256}
PLAIN = {"quantize_bits": 4}
FORMATS = [
    (PLAIN, {"group_size": 64, "bits": 4}),
    ({"quantize_bits": 8, "quantize_group": 32}, {"group_size": 32, "bits": 8}),
    ({"quantize_bits": 3, "quantize_mode": QUANTIZE_AFFINE}, {"group_size": 64, "bits": 3}),
    (
        {"quantize_bits": 4, "quantize_mode": QUANTIZE_MXFP4},
        {"group_size": 32, "bits": 4, "mode": "mxfp4"},
    ),
    (
        {"quantize_bits": 4, "quantize_mode": QUANTIZE_NVFP4},
        {"group_size": 16, "bits": 4, "mode": "nvfp4"},
    ),
    (
        {"quantize_bits": 8, "quantize_mode": QUANTIZE_MXFP8},
        {"group_size": 32, "bits": 8, "mode": "mxfp8"},
    ),
]
START = prompt(20)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return tiny_models.make(tmp_path_factory.mktemp("original"), "llama", config=WIDE)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder with the original's weights, quantized."""

    def stored(settings):
        folder = tmp_path_factory.mktemp("stored")
        return tiny_models.make(folder, "llama", config=WIDE, quantize=settings)

    return stored


@pytest.fixture
def load(lib):
    """Loads models, which are freed afterwards."""
    loaded = []

    def load(path, **params):
        loaded.append(lib.load(path, **params))
        return loaded[-1]

    yield load
    for model in loaded:
        lib.free_model(model)


def logits(lib, model):
    with opened(lib, model) as context:
        lib.begin(context, START, max_tokens=0)
        return lib.logits(context)


@pytest.mark.parametrize(("params", "settings"), FORMATS, ids=str)
def test_the_weights_are_those_of_a_quantized_folder(lib, load, original, stored, params, settings):
    own, other = load(original, **params), load(stored(settings))
    assert logits(lib, own) == logits(lib, other)
    infos = [lib.info(model) for model in (own, other)]
    assert infos[0]["quantization"] == {"mode": "affine", **settings}
    for name in ("bytes", "parameters", "activations"):
        assert infos[0][name] == infos[1][name], name


@pytest.mark.parametrize("family", ["qwen3_moe", "gemma3_text", "qwen3_next"])
def test_layers_that_an_architecture_excludes_stay(lib, load, tmp_path, family):
    """Experts, layers with a sliding window, recurrent layers."""
    config = {**WIDE, "moe_intermediate_size": 64}
    model = load(tiny_models.make(tmp_path, family, config=config), **PLAIN)
    settings = lib.info(model)["quantization"]
    named = [value for value in settings.values() if isinstance(value, dict)]
    assert bool(named) == (family in ("qwen3_moe", "qwen3_next")), "a router has eight bits"
    with opened(lib, model) as context:
        assert len(greedy(lib, context, START)) == 16


def test_contexts_in_a_batch_get_the_tokens_that_they_get_alone(lib, load, original, stored):
    model = load(original, **PLAIN)
    alone = Oracle(lib, load(stored(FORMATS[0][1])))
    prompts = [prompt(length) for length in (5, 20, 33)]
    contexts = [lib.context(model) for _ in prompts]
    try:
        given = generate_at_once(lib, contexts, prompts, max_tokens=16)
        assert given == [alone.after(tokens) for tokens in prompts]
        fork = lib.fork(contexts[0])
        assert lib.tokens(fork) == lib.tokens(contexts[0])
        lib.free(fork)
    finally:
        for context in contexts:
            lib.free(context)


def test_a_saved_context_goes_with_the_converted_folder(lib, load, original, tmp_path):
    from cowmlx.models.converting import output, sources
    from cowmlx.models.quantizing import Quantizing
    from cowmlx.steps import finished

    source = sources.read(str(original), Quantizing(4, 64, "affine"), None)
    finished(output.write(source, str(tmp_path / "converted"), {}))
    models = load(original, **PLAIN), load(tmp_path / "converted")
    with opened(lib, models[0]) as first, opened(lib, models[1]) as second:
        expected = greedy(lib, first, START)
        lib.save(first, tmp_path / "saved")
        lib.restore(second, tmp_path / "saved")
        assert lib.tokens(second) == lib.tokens(first)
        assert greedy(lib, second, START) == expected
    with opened(lib, load(original)) as other, pytest.raises(StatusError, match="another model"):
        lib.restore(other, tmp_path / "saved")


def test_a_lazy_load_quantizes_at_the_first_use(lib, load, original):
    lazy, eager = load(original, lazy=True, **PLAIN), load(original, **PLAIN)
    assert lib.info(lazy)["kernels"] is None
    assert logits(lib, lazy) == logits(lib, eager)


def test_a_load_in_the_background_quantizes_while_contexts_generate(lib, load, original, context):
    expected = greedy(lib, context, START)
    out = c_int32()
    params = lib.params("model", **PLAIN)
    lib.check(lib.c.cow_mlx_model_load_async(str(original).encode(), params, byref(out)))
    assert greedy(lib, context, START) == expected
    lib.check(lib.c.cow_mlx_model_poll(out, 2**32 - 1))
    assert lib.info(out.value)["quantization"]["bits"] == 4
    lib.free_model(out.value)


def test_a_load_can_be_cancelled_between_layers(lib, original):
    fractions = []

    def progress(fraction, stage):
        fractions.append(fraction)
        return stage != "weights"

    with pytest.raises(StatusError) as error:
        lib.load(original, progress, **PLAIN)
    assert error.value.status == ECANCELED
    assert 0 < fractions[-1] < 1


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"quantize_bits": 1}, "quantize_bits is 1, must be 0, or 2, 3, 4, 5, 6 or 8"),
        ({"quantize_bits": -4}, "quantize_bits is -4"),
        ({"quantize_bits": 2**40}, f"quantize_bits is {2**40}"),
        ({"quantize_bits": 8, "quantize_mode": QUANTIZE_MXFP4}, "must be 0, or 4 with the mode"),
        ({"quantize_bits": 4, "quantize_group": 48}, "must be 0, or 32, 64 or 128 with affine"),
        (
            {"quantize_bits": 4, "quantize_group": 64, "quantize_mode": QUANTIZE_NVFP4},
            "must be 0, or 16 with nvfp4",
        ),
        ({"quantize_mode": 4}, "quantize_mode is 4, must be 0 (affine), 1 (mxfp4)"),
        ({"quantize_mode": QUANTIZE_MXFP4}, "quantize_mode is 1, but quantize_bits is 0"),
        ({"quantize_group": 64}, "quantize_group is 64, but quantize_bits is 0"),
    ],
    ids=str,
)
def test_numbers_that_no_format_has_are_refused(lib, original, params, words):
    with pytest.raises(StatusError) as error:
        lib.load(original, **params)
    assert error.value.status == EINVAL
    assert words in error.value.message


def test_quantized_weights_are_refused(lib, stored):
    folder = stored(FORMATS[0][1])
    with pytest.raises(StatusError, match="quantized already") as error:
        lib.load(folder, quantize_bits=8)
    assert error.value.status == EUNSUPPORTED


def test_a_network_without_a_layer_that_fits_is_refused(lib, tmp_path):
    folder = tiny_models.make(tmp_path, "llama", config={"intermediate_size": 96})
    with pytest.raises(StatusError, match=r"no layer of .* multiple of 128") as error:
        lib.load(folder, quantize_bits=4, quantize_group=128)
    assert error.value.status == EUNSUPPORTED


def test_machines_read_their_own_folders(lib, original, tmp_path):
    (tmp_path / "secret").write_text("0" * 32)
    with pytest.raises(StatusError, match="quantize_bits is 4, but workers are given") as error:
        lib.load(original, workers=["localhost:1"], secret_path=tmp_path / "secret", **PLAIN)
    assert error.value.status == EUNSUPPORTED


def test_the_folder_is_left_as_it_is(lib, load, original):
    before = json.loads((original / "config.json").read_text())
    with opened(lib, load(original, **PLAIN)) as context:
        lib.begin(context, START, max_tokens=1)
        assert len(delivered(lib.drain(context))) == 1
    assert json.loads((original / "config.json").read_text()) == before


MEMORY = Path("/proc/self/status")


def resident(kind):
    """A size of this process in MB: what is resident, or the most that was."""
    (line,) = [line for line in MEMORY.read_text().splitlines() if line.startswith(kind)]
    return int(line.split()[1]) / 1024


@pytest.mark.skipif(not kernels.available(), reason="there are no kernels here")
@pytest.mark.skipif(not MEMORY.exists(), reason="there is no /proc/self/status here")
def test_a_large_matrix_is_never_in_memory_as_a_whole(lib, load, tmp_path):
    """Its parts are read one by one; results are those of a folder that was quantized."""
    config = {**WIDE, "vocab_size": 30_000, "tie_word_embeddings": True}
    settings = {"group_size": 64, "bits": 8}
    folder = tiny_models.make(tmp_path / "original", "llama", config=config, dtype="float32")
    whole = 30_000 * 256 * 4 / 2**20
    load(folder, quantize_bits=8)  # whatever the first load takes
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    model = load(folder, quantize_bits=8)
    assert resident("VmHWM") - before < whole
    stored = tiny_models.make(
        tmp_path / "stored", "llama", config=config, dtype="float32", quantize=settings
    )
    assert logits(lib, model) == logits(lib, load(stored))


# Prints by how many MB the process was larger than before, at most.
FIRST_LOAD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from support.library import Library

def resident(kind):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(kind)) / 1024

lib = Library()
lib.start(device="cpu")
before = resident("VmRSS")
Path("/proc/self/clear_refs").write_text("5")
lib.load(sys.argv[2], quantize_bits=4)
print(resident("VmHWM") - before)
lib.stop()
"""


@pytest.mark.skipif(not kernels.available(), reason="there are no kernels here")
@pytest.mark.skipif(not MEMORY.exists(), reason="there is no /proc/self/status here")
def test_nor_when_the_first_model_is_loaded(tmp_path):
    """That load starts the threads that read large arrays."""
    config = {**WIDE, "vocab_size": 100_000, "tie_word_embeddings": True}
    folder = tiny_models.make(tmp_path / "large", "llama", config=config, dtype="float32")
    command = [sys.executable, "-c", FIRST_LOAD, str(ROOT / "tests"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.75 * 100_000 * 256 * 4 / 2**20
