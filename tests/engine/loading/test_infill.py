"""Prompts of models that fill in the middle."""

from __future__ import annotations

import ctypes
import json

import pytest
from driver import greedy
from support import fillers, signatures
from support.fillers import QWEN
from support.library import StatusError
from support.outputs import Buffer
from support.signatures import EINVAL, EUNSUPPORTED

DEEPSEEK = tuple(f"<\uff5cfim▁{name}\uff5c>" for name in ("begin", "hole", "end"))
CODESTRAL = ("[PREFIX]", "[SUFFIX]")


@pytest.fixture
def filler(lib, tmp_path):
    """Loads models with tokens for infill."""
    handles = []

    def filler(markers, **settings):
        folder = fillers.make(tmp_path / str(len(handles)), markers, **settings)
        handles.append(lib.load(folder))
        return handles[-1]

    yield filler
    for handle in handles:
        lib.free_model(handle)


def infill(lib, model, prefix, suffix):
    """The tokens of a prompt."""
    before, behind = prefix.encode(), suffix.encode()
    out = Buffer(ctypes.c_int32, 256)
    call = lib.c.cow_mlx_model_infill_prompt
    lib.check(call(model, before, len(before), behind, *out.arguments()), out)
    out.check(out.length.value)
    return out.value()


@pytest.mark.parametrize("markers", [QWEN, DEEPSEEK])
@pytest.mark.parametrize("special", [True, False])
def test_prefix_and_suffix_stand_between_the_markers(lib, filler, open_context, markers, special):
    model = filler(markers, special=special)
    tokens = infill(lib, model, "def add(a, b):\n    return ", "\n\nprint(add(1, 2))\n")
    prefix, suffix, middle = (
        lib.tokenize(model, marker, signatures.PARSE_SPECIAL)[0] for marker in markers
    )
    at = tokens.index(suffix)
    assert (tokens[0], tokens[-1]) == (prefix, middle)
    assert lib.detokenize(model, tokens[1:at]) == "def add(a, b):\n    return "
    assert lib.detokenize(model, tokens[at + 1 : -1]) == "\n\nprint(add(1, 2))\n"
    assert len(greedy(lib, open_context(model), tokens, 4)) == 4
    assert lib.info(model)["infill"] is True


def test_a_suffix_may_come_first(lib, filler):
    model = filler(CODESTRAL, tokenizer="spm", special=True)
    tokens = infill(lib, model, "a + ", " = c")
    bos = lib.info(model)["bos_token"]["id"]
    prefix, suffix = (lib.tokenize(model, text, signatures.PARSE_SPECIAL)[-1] for text in CODESTRAL)
    at = tokens.index(prefix)
    assert tokens[:2] == [bos, suffix]
    assert lib.detokenize(model, tokens[2:at]).strip() == "= c"
    assert lib.detokenize(model, tokens[at + 1 :]).strip() == "a +"


@pytest.mark.parametrize("special", [True, False])
def test_markers_in_the_text_stay_text(lib, filler, special):
    model = filler(QWEN, special=special)
    text = "x<|fim_suffix|>y<|im_end|>"
    tokens = infill(lib, model, text, text)
    suffix = lib.tokenize(model, QWEN[1], signatures.PARSE_SPECIAL)[0]
    end = lib.info(model)["end_tokens"][0]["id"]
    assert tokens.count(suffix) == 1
    assert end not in tokens
    assert lib.detokenize(model, tokens[1 : tokens.index(suffix)]) == text


@pytest.mark.parametrize("special", [True, False])
def test_markers_of_files_stay_text(lib, filler, special):
    """Qwen's tokenizers have them as tokens that are not special; so is a tag of HTML in others."""
    model = filler((*QWEN, "<|file_sep|>", "<|repo_name|>", "<br>"), special=special)
    text = "a<|file_sep|>b<|repo_name|>c"
    tokens = infill(lib, model, text, f"{text}<br>")
    for marker in ("<|file_sep|>", "<|repo_name|>"):
        assert lib.tokenize(model, marker, signatures.PARSE_SPECIAL)[0] not in tokens
    assert lib.detokenize(model, tokens).count(text) == 2
    tag = lib.tokenize(model, "<br>", signatures.PARSE_SPECIAL)[0]
    assert (tag in tokens) is not special


def test_nothing_before_or_behind(lib, filler):
    model = filler(QWEN)
    assert len(infill(lib, model, "", "")) == 3


def test_a_model_without_markers_refuses(lib, calf):
    with pytest.raises(StatusError, match="no tokens for infill") as failed:
        infill(lib, calf, "a", "b")
    assert failed.value.status == EUNSUPPORTED
    assert lib.info(calf)["infill"] is False


def test_text_that_is_none(lib, filler):
    model = filler(QWEN)
    out = Buffer(ctypes.c_int32, 16)
    call = lib.c.cow_mlx_model_infill_prompt
    for prefix, suffix in ((b"\xff", b"a"), (b"a", b"\xff")):
        with pytest.raises(StatusError) as failed:
            lib.check(call(model, prefix, 1, suffix, *out.arguments()), out)
        assert failed.value.status == EINVAL
    assert json.loads(json.dumps(lib.info(model)))["infill"]
