"""The trainer of calf with eyes: what it draws, and a folder that the library loads."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from ctypes import byref, c_int32

import numpy as np
import pytest
from support.paths import ROOT

from tools.calf import sights
from tools.calf.eyes import GRID, POSITIONS, patches_of
from tools.calf.pictures import COLOURS, KINDS, SIDE, labels, paint
from tools.calf.train_eyes import Writer, group, make_tokenizer


def test_seeds_stand_for_pictures_and_questions():
    for first, second in zip(sights.heldout(3, 40), sights.heldout(3, 40), strict=True):
        assert first == second
        assert (paint(first[0]) == paint(second[0])).all()
    asked = [question.kind for _, question in sights.heldout(3, 40)]
    assert asked == sights.ASKED * 5


def test_training_shows_no_arrangement_that_is_held_out():
    scenes = [scene for scene, _ in itertools.islice(sights.conversations(1), 500)]
    assert not any(sights.held_out(scene) for scene in scenes)
    asked = [scene for scene, _ in sights.heldout(1, 100)]
    assert all(sights.held_out(scene) for scene in asked if scene.things[1:])
    assert any(scene.things[1:] for scene in asked)


def test_pictures_show_what_labels_say():
    """The middle of each thing has its colour, at every size of the picture."""
    for scene, _ in itertools.islice(sights.heldout(2, 200), 60):
        kinds, colours = labels(scene, GRID)
        for thing in scene.things:
            if thing.radius > 0.14:  # a large one
                continue
            assert kinds[thing.place] == 1 + KINDS.index(thing.kind)
            assert colours[thing.place] == 1 + list(COLOURS).index(thing.colour)
        for side in (SIDE, 3 * SIDE):
            picture = paint(scene, side).astype(int)
            assert picture.shape == (side, side, 3)
            for thing in scene.things:
                near = np.abs(picture - np.array(thing.tint)).sum(-1)
                assert near.min() <= 3


def test_patches_are_those_of_the_library():
    picture = paint(next(sights.heldout(1, 1))[0])
    patches = patches_of([picture])[0]
    size = SIDE // GRID
    corner = picture[size : 2 * size, :size] / 127.5 - 1
    np.testing.assert_allclose(patches[GRID], corner.reshape(-1), atol=1e-6)


@pytest.mark.long
def test_a_trained_folder_is_a_model_that_sees(lib, tmp_path):
    program = ROOT / "tools/calf/train_eyes.py"
    folder = tmp_path / "model"
    told = ["--out", folder, "--scratch", tmp_path, "--steps", "2", "--workers", "1"]
    done = subprocess.run(
        [sys.executable, program, *told],
        env=os.environ | {"MLX_DISABLE_COMPILE": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    model = lib.load(folder)
    info = lib.info(model)["images"]
    assert (info["why_not"], info["width"], info["height"]) == (None, SIDE, SIDE)
    picture, out = paint(next(sights.heldout(1, 1))[0]), c_int32()
    call = lib.c.cow_mlx_media_from_pixels
    lib.check(call(picture.ctypes.data, SIDE, SIDE, 3, 3 * SIDE, byref(out)))
    question = {"type": "text", "text": "Which digit is this?"}
    seen = [{"role": "user", "content": [{"type": "image", "media": out.value}, question]}]
    blind = [{"role": "user", "content": [question]}]
    count = len(lib.chat_prompt(model, seen)) - len(lib.chat_prompt(model, blind))
    assert count == info["tokens"]
    lib.check(lib.c.cow_mlx_media_free(out.value))
    lib.free_model(model)


def test_a_row_has_all_pictures_that_are_trained_with_it():
    """A conversation that is cut to fit loses no picture, which would shift those of other rows."""
    writer = Writer(make_tokenizer(7))
    for number in range(200):
        scenes, rows = group(writer, f"rows {number}", number % 2)
        assert sum(row.count(writer.soft) for row in rows) == POSITIONS * len(scenes)
