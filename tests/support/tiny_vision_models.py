"""Tiny random models that see, on disk, in the format of real ones."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from . import tokenizers
from .vision_families import (
    Family,
    Random,
    gemma3,
    idefics3,
    lfm2_vl,
    pixtral,
    qwen2_5_vl,
    qwen2_vl,
    qwen3_5,
    qwen3_vl,
)

QWEN = (
    qwen2_5_vl.FAMILY,
    qwen2_vl.FAMILY,
    qwen3_vl.FAMILY,
    qwen3_vl.EXPERT,
    qwen3_5.FAMILY,
    qwen3_5.EXPERT,
)
_OTHERS = (gemma3.FAMILY, *idefics3.FAMILIES, *pixtral.FAMILIES, lfm2_vl.FAMILY)
FAMILIES = {family.name: family for family in (*_OTHERS, *QWEN)}
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}"
    "{% else %}{% for item in message['content'] %}"
    "{% if item['type'] == 'image' %}MARKER"
    "{% elif item['type'] == 'text' %}{{ item['text'] }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer(family: Family) -> tuple[str, dict[str, Any], int]:
    """Return tokenizer.json, tokenizer_config.json and the number of tokens."""
    from tokenizers import AddedToken, Tokenizer

    text, settings = tokenizers.build("bpe")
    made = Tokenizer.from_str(text)
    marks = [AddedToken(mark, special=True, normalized=False) for mark in family.marks]
    made.add_special_tokens(marks)
    template = TEMPLATE.replace("MARKER", family.marker)
    return made.to_str(), json.loads(settings) | {"chat_template": template}, made.get_vocab_size()


def make(folder: pathlib.Path, name: str = "gemma3", seed: int = 0) -> pathlib.Path:
    """Write a tiny model of a family into a folder, which is made if need be, and return it."""
    import mlx.core as mx

    family = FAMILIES[name]
    folder.mkdir(parents=True, exist_ok=True)
    text, settings, size = tokenizer(family)
    ids = {mark: size - len(family.marks) + at for at, mark in enumerate(family.marks)}
    (folder / "tokenizer.json").write_text(text)
    files = {
        "tokenizer_config": settings,
        "config": family.config(ids, size),
        "preprocessor_config": family.preprocessing,
        "processor_config": family.processing,
    }
    for file, contents in files.items():
        if contents is not None:
            (folder / f"{file}.json").write_text(json.dumps(contents))
    draw = Random(seed)
    family.weights(draw, size)
    arrays = {key: mx.array(array) for key, array in draw.made.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), arrays, {"format": "pt"})
    return folder
