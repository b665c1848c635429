"""Messages with images, and prompts of them."""

from __future__ import annotations

import numpy as np
import pytest
from support.library import StatusError
from support.paths import ROOT

RECORDED = ROOT / "tests/fixtures/images"


def said(*parts):
    """A message of a user, of texts and handles of images."""
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image", "media": part}
        for part in parts
    ]
    return [{"role": "user", "content": content}]


def images_of(tokens):
    """The runs of positions of images in a prompt, each a list of ids."""
    found, last = [], 0
    for token in tokens:
        if token < 0:
            if last != token + 1 or not found:
                found.append([])
            found[-1].append(token)
        last = token
    return found


def logits(lib, context):
    return np.array(lib.logits(context))


def begun(lib, context, tokens, **params):
    lib.begin(context, tokens, max_tokens=0, **params)
    return logits(lib, context)


def refused(status, call, *arguments, **options):
    with pytest.raises(StatusError) as error:
        call(*arguments, **options)
    assert error.value.status == status, error.value
    return error.value.message


def prompt_of(lib, model, media, recorded):
    images = [
        images_of(lib.chat_prompt(model, said(media(recorded[name]))))[0]
        for name in ("first", "second")
    ]
    prompt = []
    for token in recorded["prompt"].tolist():
        prompt += images[-1 - token] if token < 0 else [token]
    assert len(prompt) == len(recorded["tokens"])
    return prompt
