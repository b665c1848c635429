"""The example that asks about an image says what the library answers."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from PIL import Image
from support import tiny_vision_models
from support.compiler import compile_c, run
from support.paths import CALF, LIBRARY, ROOT

QUESTION = 'What is "it"?'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_vision_models.make(tmp_path_factory.mktemp("vision"))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    rpath = f"-Wl,-rpath,{LIBRARY.parent}"
    made = tmp_path_factory.mktemp("describe") / "describe"
    return compile_c([ROOT / "examples/c/describe.c"], made, str(LIBRARY), rpath)


def answer(lib, folder, file, question):
    """The likeliest answer to a question about an encoded image."""
    url = "data:;base64," + base64.b64encode(file).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
    model = lib.load(folder)
    context = lib.context(model)
    said = lib.chat(context, [{"role": "user", "content": content}], temperature=0.0).said()
    lib.c.cow_mlx_context_free(context)
    lib.free_model(model)
    return said


@pytest.mark.parametrize("kind", ["png", "bmp"])
def test_it_answers_about_a_file(lib, folder, program, tmp_path, kind):
    array = np.random.default_rng(1).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    path = tmp_path / f"image.{kind}"
    Image.fromarray(array).save(path)
    for question in (QUESTION, "Describe the picture."):
        told = [question] if question == QUESTION else []
        done = run([program, folder, path, *told])
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == answer(lib, folder, path.read_bytes(), question) + "\n"


def test_it_draws_a_picture(program, folder):
    done = run([program, folder])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def test_what_is_no_image_ends_it(program, folder, tmp_path):
    (tmp_path / "text").write_text("no image")
    done = run([program, folder, tmp_path / "text"])
    assert done.returncode == 1
    assert "PNG, JPEG, WebP, BMP or GIF" in done.stderr
    assert run([program, folder, tmp_path / "missing"]).returncode == 1
    assert run([program]).returncode == 2
    done = run([program, CALF])
    assert done.returncode == 1
    assert "takes text only" in done.stderr
