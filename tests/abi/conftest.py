"""A call of any function, with right arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ctypes import byref, c_int32, c_int64
from pathlib import Path

import mlx.core as mx
import pytest
from support import fillers, tiny_adapters, tiny_encoders, tiny_vision_models
from support.arguments import PROGRAM, PROMPT, TRAINABLE, Call, tensor
from support.c_programs import Programs
from support.library import Library
from support.paths import CALF
from support.signatures import FUNCTIONS
from support.trainings import Trainings

# Language models, for calls that trainings of programs do not have.
SMALL = {"rank": 1, "num_layers": 1}
OF_MODELS = ("cow_mlx_training_adapter", "cow_mlx_training_export")


@pytest.fixture(scope="session")
def paths(lib: Library, calf: int, tmp_path_factory) -> dict[str, Path]:
    """What functions read and write, if it is no model: by function."""
    folder = tmp_path_factory.mktemp("paths")
    context = lib.context(calf)
    lib.begin(context, PROMPT, max_tokens=0)
    lib.save(context, folder / "saved")
    lib.free(context)
    mx.save_safetensors(str(folder / "arrays.safetensors"), {"a": mx.arange(3)})
    return {
        "cow_mlx_adapter_load": tiny_adapters.make(folder / "adapter", CALF, ["q_proj"]),
        "cow_mlx_context_save": folder / "written",
        "cow_mlx_context_load": folder / "saved",
        "cow_mlx_training_save": folder / "training",
        "cow_mlx_training_load": folder / "trained",
        "cow_mlx_training_export": folder / "exported",
        "cow_mlx_arrays_save": folder / "written.safetensors",
        "cow_mlx_arrays_load": folder / "arrays.safetensors",
        "cow_mlx_arrays_info": folder / "arrays.safetensors",
    }


@pytest.fixture(scope="session")
def filler(lib: Library, tmp_path_factory) -> int:
    """A model with tokens for infill, which calf has none of."""
    return lib.load(fillers.make(tmp_path_factory.mktemp("filler")))


@pytest.fixture(scope="session")
def classifier(lib: Library, tmp_path_factory) -> int:
    """A model with a head for labels."""
    folder = tmp_path_factory.mktemp("classifier")
    return lib.load(tiny_encoders.make(folder, "bert", "SequenceClassification"))


@pytest.fixture(scope="session")
def seer(lib: Library, tmp_path_factory) -> int:
    """A model that takes images."""
    return lib.load(tiny_vision_models.make(tmp_path_factory.mktemp("vision")))


@pytest.fixture
def call_of(
    lib: Library, calf: int, filler: int, classifier: int, seer: int, paths
) -> Iterator[Callable[[str], Call]]:
    """Makes a call of a function, on a context whose generation has given a piece."""
    context = lib.context(calf)
    lib.begin(context, PROMPT, max_tokens=32, logprobs=2)
    lib.next(context)
    adapters: list[int] = []
    array = c_int64()
    lib.check(lib.c.cow_mlx_array_create(byref(tensor()), byref(array)))

    media = c_int32()
    lib.check(lib.c.cow_mlx_media_from_pixels(b"a", 1, 1, 1, 1, byref(media)))
    program, trainable = (Programs(lib).create(text) for text in (PROGRAM, TRAINABLE))
    trainings = Trainings(lib)
    training = trainings.create(trainable)
    trainings.save(training, paths["cow_mlx_training_load"])
    of_models: list[int] = []

    def call_of(function: str) -> Call:
        handles = {"model": calf, "context": context, "array": array.value, "program": program}
        handles |= {"training": training, "media": media.value}
        if function == "cow_mlx_model_infill_prompt":
            handles["model"] = filler
        if function == "cow_mlx_model_classify":
            handles["model"] = classifier
        if function == "cow_mlx_model_media_tokens":
            handles["model"] = seer
        if function == "cow_mlx_training_create":
            handles["program"] = trainable
        if function in OF_MODELS:
            of_models.append(trainings.create_for_model(calf, fine_tune=SMALL))
            handles["training"] = of_models[-1]
        names = [name for name, _ in FUNCTIONS[function][1]]
        if "adapter" in names:
            adapters.append(lib.load_adapter(calf, paths["cow_mlx_adapter_load"]))
            handles["adapter"] = adapters[-1]
        if function == "cow_mlx_context_next_event":
            Call(lib, "cow_mlx_context_chat_async", handles)()
        if function == "cow_mlx_media_free":
            lib.check(lib.c.cow_mlx_media_from_pixels(b"a", 1, 1, 1, 1, byref(media)))
            handles["media"] = media.value
        if "arrays" in names:
            handles["array"] = array.value
        if "checkpoint" in names:
            handles["checkpoint"] = lib.checkpoint(context)
        return Call(lib, function, handles, paths.get(function))

    yield call_of
    lib.c.cow_mlx_context_free(context)
    lib.c.cow_mlx_array_free(array)
    lib.c.cow_mlx_media_free(media)
    for handle in (training, *of_models):
        lib.c.cow_mlx_training_free(handle)
    for handle in (program, trainable):
        lib.c.cow_mlx_program_free(handle)
    for adapter in adapters:
        lib.c.cow_mlx_adapter_free(adapter)
