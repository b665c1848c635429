"""What models/calf-eyes was trained for: held-out pictures, asked over the C ABI."""

from __future__ import annotations

import json
import re
from collections import Counter
from ctypes import byref, c_int32

import numpy as np
import pytest
from PIL import Image
from support.compiler import compile_c, run
from support.paths import EYES, LIBRARY, ROOT

from tools.calf.pictures import SIDE, paint
from tools.calf.sights import describe, held_out, heldout

SEED, FEW, MANY = 3, 240, 2000
RIGHT = 0.95
PICTURE = ROOT / "docs/assets/calf-eyes.png"


@pytest.fixture(scope="module")
def eyes(lib):
    model = lib.load(EYES)
    yield model
    lib.free_model(model)


@pytest.fixture
def image(lib):
    """Opens images of arrays (H, W, 3)."""
    opened = []

    def image(array):
        height, width, channels = array.shape
        data, out = np.ascontiguousarray(array), c_int32()
        call = lib.c.cow_mlx_media_from_pixels
        lib.check(call(data.ctypes.data, width, height, channels, width * channels, byref(out)))
        opened.append(out.value)
        return {"type": "image", "media": out.value}

    yield image
    for handle in opened:
        lib.c.cow_mlx_media_free(handle)


def text(said):
    return {"type": "text", "text": said}


def asks(*content):
    return {"role": "user", "content": list(content)}


def answered(lib, context, *messages):
    return lib.chat(context, list(messages), temperature=0.0).said()


def wrong_of(lib, eyes, image, open_context, count, side=SIDE):
    """The held-out questions that are answered wrong, each with its kind."""
    wrong = []
    for scene, question in heldout(SEED, count):
        picture = image(paint(scene, side))
        context = open_context(eyes)
        said = answered(lib, context, asks(picture, text(question.text)))
        lib.c.cow_mlx_context_free(context)
        if said != question.answer:
            wrong.append((question.kind, question.text, said, question.answer))
    return wrong


def test_held_out_pictures_are_seen(lib, eyes, image, open_context):
    wrong = wrong_of(lib, eyes, image, open_context, FEW)
    assert len(wrong) <= (1 - RIGHT) * FEW, wrong


@pytest.mark.long
def test_every_kind_of_question_is_answered(lib, eyes, image, open_context):
    wrong = wrong_of(lib, eyes, image, open_context, MANY)
    assert len(wrong) <= (1 - RIGHT) * MANY, wrong
    asked = Counter(question.kind for _, question in heldout(SEED, MANY))
    missed = Counter(kind for kind, *_ in wrong)
    assert all(missed[kind] <= 0.1 * asked[kind] for kind in asked), missed


def test_larger_pictures_are_seen(lib, eyes, image, open_context):
    wrong = wrong_of(lib, eyes, image, open_context, FEW // 4, 3 * SIDE)
    assert len(wrong) <= 2 * (1 - RIGHT) * FEW // 4, wrong


def test_held_out_scenes_are_drawn_alike_everywhere(lib, image):
    """Seeds stand for the pictures, so what they give must not change."""
    asked = list(heldout(SEED, 24))
    assert all(held_out(scene) for scene, _ in asked if scene.things[1:])
    again = list(heldout(SEED, 24))
    assert asked == again
    for (scene, _), (other, _) in zip(asked, again, strict=True):
        assert (paint(scene) == paint(other)).all()


def test_a_conversation_is_about_its_pictures(lib, eyes, image, open_context):
    """A second question needs no second picture, and a second picture is another."""
    asked = [scene for scene, question in heldout(SEED, 64) if question.kind == "describe"][:6]
    right = 0
    for first, second in zip(asked[::2], asked[1::2], strict=True):
        context = open_context(eyes)
        messages = [asks(image(paint(first)), text("What do you see?"))]
        for scene in (first, second):
            said = answered(lib, context, *messages)
            right += said == describe(scene)
            messages += [{"role": "assistant", "content": said}]
            messages += [asks(image(paint(second)), text("Describe the picture."))]
    assert right >= 5


def test_it_says_that_there_is_no_picture(lib, eyes, open_context):
    said = answered(lib, open_context(eyes), asks(text("What do you see?")))
    assert said == "I see no picture yet."


def test_a_prompt_has_the_tokens_that_are_told(lib, eyes, image):
    info = lib.info(eyes)["images"]
    picture = image(np.zeros((SIDE, SIDE, 3), np.uint8))
    count = len(lib.chat_prompt(eyes, [asks(picture, text("Which digit is this?"))]))
    without = len(lib.chat_prompt(eyes, [asks(text("Which digit is this?"))]))
    assert count - without == info["tokens"]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("describe")
    rpath = f"-Wl,-rpath,{LIBRARY.parent}"
    return compile_c([ROOT / "examples/c/describe.c"], folder / "describe", str(LIBRARY), rpath)


def test_the_example_describes_what_it_draws(program):
    done = run([program, EYES])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "I see a red circle at the top left and a blue square at the bottom right.\n"
    )


def test_the_example_describes_files(program, tmp_path):
    array = np.zeros((90, 90, 3), np.uint8) + 255
    array[36:54, 36:54] = (28, 150, 52)
    for kind in ("png", "bmp"):
        Image.fromarray(array).save(tmp_path / f"square.{kind}")
        done = run([program, EYES, tmp_path / f"square.{kind}", 'Is there a "green" square?'])
        assert (done.returncode, done.stderr) == (0, "")
        done = run([program, EYES, tmp_path / f"square.{kind}"])
        assert done.stdout == "I see a green square in the middle.\n"
    (tmp_path / "text.png").write_text("no image")
    done = run([program, EYES, tmp_path / "text.png"])
    assert done.returncode == 1
    assert "PNG, JPEG, WebP, BMP or GIF" in done.stderr
    assert run([program]).returncode == 2


@pytest.mark.parametrize("page", ["README.md", "docs/guides/images.md"])
def test_the_answer_on_a_page_is_the_one_that_it_gives(program, page):
    shown = (ROOT / page).read_text().split("calf-eyes.png", 1)[1]
    told = re.search(r"I see [^.]*\.", shown)
    assert told
    done = run([program, EYES, PICTURE])
    assert done.stdout.strip() == " ".join(told[0].split())


def test_the_folder_is_small_and_says_what_it_is():
    assert sum(path.stat().st_size for path in EYES.iterdir()) < 8 << 20
    config = json.loads((EYES / "config.json").read_text())
    assert config["architectures"] == ["Gemma3ForConditionalGeneration"]
