#!/usr/bin/env python3
"""Ask a trained calf with eyes about held-out pictures, through the C ABI, and write its card.

python tools/calf/eyes_card.py models/calf-eyes     # only asks, and shows each wrong answer
"""

import json
import sys
import textwrap
from collections import defaultdict
from ctypes import byref, c_int32, sizeof
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.calf.pictures import COLOURS, GROUNDS, SHAPES, SIDE
from tools.calf.sights import heldout

HELDOUT_SEED, ASKED = 2, 1000
CARD = """\
---
license: mit
language: en
library_name: mlx
pipeline_tag: image-text-to-text
---

# calf with eyes

A very small chat model that sees, in the form of Gemma 3, trained from nothing by the project's
own `tools/calf/train_eyes.py`. It is there to try images with: it loads at once, runs anywhere and
answers a few kinds of question about drawn pictures rightly. It knows nothing else: no photographs,
and no other words.

## What it can do

Pictures have up to five things on a plain light ground, one in each of nine places, or a large one
in the middle. A thing is a {shapes} or a digit; its colour is {colours}.

| question | answer |
| --- | --- |
{samples}

It answers several questions about a picture in a conversation, and about a second picture in it.
Pictures of any size work; they are resized to {side} by {side}.

## Corpus

`tools/calf/pictures.py` draws pictures from a seed, on {grounds} grounds, with things that vary in
place, size, angle and tint; `tools/calf/sights.py` asks about them. No picture, no text and no
weights come from anywhere else. Of all arrangements of two or more things one in ten, chosen by the
checksum of its description, is held out: training never shows it.

## Architecture

{parameters:,} parameters in {dtype}: a SigLIP tower of {eyes[num_hidden_layers]} layers of width
{eyes[hidden_size]} over patches of {eyes[patch_size]} by {eyes[patch_size]} pixels; {positions}
positions of an image; a text network of {text[num_hidden_layers]} layers of width
{text[hidden_size]}, all with full attention; {text[vocab_size]} byte-level BPE entries. Turns are
marked as those of [calf](../calf/README.md).

## Training

    pip install "mlx[cpu]=={mlx}" mlx-lm=={mlx_lm} tokenizers numpy jinja2 scipy-openblas32
    python tools/calf/train_eyes.py --seed {seed} --steps {steps} --workers {workers}

{steps} steps of {images} conversations took {minutes:.1f} minutes on two shared cores. In training
two more layers name the shape and the colour in each patch, so that the tower learns faster; they
are not in the folder.

## Results

Answers to questions about {asked} held-out pictures, the likeliest words, through the C ABI. An
answer is right if all of its text is.

{accuracy}

## Licence

MIT, as the project.
"""


def ask(library, model, picture, text):
    """The likeliest answer to a question about a picture (H, W, 3)."""
    from cowmlx.host.generated import declarations as abi

    height, width, channels = picture.shape
    media, context = c_int32(), c_int32()
    pixels = picture.ctypes.data
    library.call(
        "media_from_pixels", pixels, width, height, channels, width * channels, byref(media)
    )
    library.call("context_create", model, None, byref(context))
    content = [{"type": "image", "media": media.value}, {"type": "text", "text": text}]
    messages = json.dumps([{"role": "user", "content": content}]).encode()
    params = library.params("generation", temperature=0.0)
    library.call("context_chat_async", context, messages, len(messages), byref(params), None)
    event, said = abi.STRUCTS["cow_mlx_event"](), b""
    event.struct_size = sizeof(event)
    while library.call("context_next_event", context, byref(event)) == 0:
        if event.kind == abi.EVENT_TEXT:
            said += event.text[: event.length]
    library.call("context_free", context)
    library.call("media_free", media)
    return said.decode()


def examine(library, model):
    """Ask about all held-out pictures; return the tally by kind, and a question of each kind."""
    from tools.calf.pictures import paint

    tally, samples = defaultdict(lambda: [0, 0]), {}
    for scene, question in heldout(HELDOUT_SEED, ASKED):
        said = ask(library, model, paint(scene), question.text)
        tally[question.kind][0] += said == question.answer
        tally[question.kind][1] += 1
        if said != question.answer:
            wanted = f"not {question.answer!r}"
            print(f"wrong ({question.kind}): {question.text!r} -> {said!r}, {wanted}")
        elif len(scene.things) > 2:
            samples.setdefault(question.kind, question)
    return dict(tally), samples


def examined(folder):
    """What `examine` returns for the model in a folder."""
    from cowmlx.commands import installation
    from cowmlx.host.library import Library

    with Library(installation.library()) as library:
        model = c_int32()
        library.call("model_load", str(folder).encode(), None, byref(model))
        return examine(library, model)


def wrapped(card):
    """Wrap the paragraphs of a card at 100 columns; blocks of other kinds stay."""
    blocks = [
        block
        if block.startswith(("---", "#", "|", "    "))
        else textwrap.fill(block, 100, break_long_words=False, break_on_hyphens=False)
        for block in card.split("\n\n")
    ]
    return "\n\n".join(blocks).rstrip("\n") + "\n"


def write_card(folder, training):
    """Write `README.md` beside the weights; `training` has the run's facts."""
    from importlib.metadata import version

    import mlx.core as mx

    config = json.loads((folder / "config.json").read_text())
    tally, samples = examined(folder)
    right, asked = (sum(column) for column in zip(*tally.values(), strict=True))
    rows = [f"| {kind} | {good} of {all_} |" for kind, (good, all_) in tally.items()]
    rows.append(f"| all | {right} of {asked} ({right / asked:.1%}) |")
    weights = mx.load(str(folder / "model.safetensors")).values()
    colours = list(COLOURS)
    card = CARD.format(
        shapes=", ".join(SHAPES), colours=f"{', '.join(colours[:-1])} or {colours[-1]}", side=SIDE,
        samples="\n".join(f"| {own.text} | {own.answer} |" for own in samples.values()),
        grounds=len(GROUNDS), parameters=sum(array.size for array in weights),
        dtype=config["torch_dtype"], eyes=config["vision_config"], text=config["text_config"],
        positions=config["mm_tokens_per_image"], asked=asked,
        accuracy="\n".join(["| kind | right |", "| --- | --- |", *rows]),
        mlx=version("mlx"), mlx_lm=version("mlx-lm"), **training,
    )  # fmt: skip
    (folder / "README.md").write_text(wrapped(card))
    print(f"held-out: {right} of {asked} right")


if __name__ == "__main__":
    print(examined(Path(sys.argv[1]))[0])
