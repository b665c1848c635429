"""Tiny models that see, of each family, and their images."""

from __future__ import annotations

from ctypes import byref, c_int32

import numpy as np
import pytest
from seeing import RECORDED, prompt_of
from support import tiny_vision_models


@pytest.fixture(scope="module", params=list(tiny_vision_models.FAMILIES))
def family(request):
    return tiny_vision_models.FAMILIES[request.param]


@pytest.fixture(scope="module")
def recorded(family):
    return dict(np.load(RECORDED / f"{family.name}.npz"))


@pytest.fixture(scope="module")
def seer(lib, tmp_path_factory, family):
    model = lib.load(tiny_vision_models.make(tmp_path_factory.mktemp("vision"), family.name))
    yield model
    lib.free_model(model)


@pytest.fixture
def folder(tmp_path, family):
    """A folder of a test's own."""
    return tiny_vision_models.make(tmp_path / "vision", family.name)


@pytest.fixture
def media(lib):
    """Opens images of arrays (H, W, C)."""
    opened = []

    def media(array):
        height, width, channels = array.shape
        out = c_int32()
        data = np.ascontiguousarray(array).ctypes.data
        call = lib.c.cow_mlx_media_from_pixels
        lib.check(call(data, width, height, channels, width * channels, byref(out)))
        opened.append(out.value)
        return out.value

    yield media
    for handle in opened:
        lib.c.cow_mlx_media_free(handle)


@pytest.fixture
def prompt(lib, seer, media, recorded):
    """The recorded prompt, with hosts' ids in the places of images."""
    return prompt_of(lib, seer, media, recorded)
