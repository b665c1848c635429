"""Chat templates of untrusted folders neither stop the other contexts nor fill the memory."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import hostile_templates, scripted
from support.callbacks import StatusError
from support.paths import ROOT

HOST = ROOT / "tests/engine/hosts/hostile_templates.py"
# 64 MB of a render, as much again for what the host itself and malloc keep, and Python's compiler.
MAX_GROWTH = 192 << 20


# One host renders all of them, half a minute long: not once for every worker.
pytestmark = [pytest.mark.xdist_group("hostile templates"), pytest.mark.long]


@pytest.fixture(scope="module")
def harmless(tmp_path_factory) -> Path:
    """A small model with a harmless template."""
    folder = tmp_path_factory.mktemp("harmless") / "model"
    return scripted.make(folder, scripted.CHATML)


@pytest.fixture(scope="module")
def told(harmless, tmp_path_factory) -> dict[Any, Any]:
    """What the host told: by kind and name the status and the message, and its last line."""
    command = [sys.executable, HOST, harmless, tmp_path_factory.mktemp("hostile") / "model"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-4000:]
    *lines, last = [json.loads(line) for line in done.stdout.splitlines()]
    found: dict[Any, Any] = {(kind, name): rest for kind, name, *rest in lines}
    return {**found, "end": last}


def check(status: str, message: str, bound: str | None) -> None:
    if bound is None:
        assert status in ("OK", "EINVAL", "EFORMAT"), message
    else:
        assert status == "EFORMAT", message
        assert re.search(bound, message), message
    assert len(message) < 1200


@pytest.mark.parametrize("name", hostile_templates.RENDERS)
def test_a_render_without_end_fails_with_its_bound(name, told):
    check(*told["render", name], hostile_templates.RENDERS[name][1])


@pytest.mark.parametrize("name", hostile_templates.COMPILES)
def test_a_template_without_end_to_compile_fails_with_its_bound(name, told):
    check(*told["compile", name], hostile_templates.COMPILES[name][1])


def test_a_chat_that_its_template_fails_leaves_the_context_as_it_was(lib, tmp_path):
    template = "{% if messages|length > 1 %}{{ 'a' * 10 ** 9 }}{% endif %}" + scripted.CHATML
    model = lib.load(scripted.make(tmp_path / "model", template))
    context = lib.context(model)
    first = {"role": "user", "content": "Hello"}
    lib.chat(context, [first], max_tokens=5)
    held = lib.tokens(context)
    with pytest.raises(StatusError) as failure:
        lib.chat(context, [first, first], max_tokens=5)
    assert failure.value.name == "EFORMAT"
    assert failure.value.message.endswith("makes more than 67108864 bytes (line 1)")
    assert lib.tokens(context) == held
    lib.free(context)
    lib.free_model(model)


def test_another_context_generates_meanwhile_what_it_generates_alone(told):
    solo, tokens, _ = told["end"]
    assert len(solo) == 300
    assert tokens == solo


def test_the_process_does_not_grow_by_more_than_a_render_may_make(told):
    assert told["end"][2] < MAX_GROWTH
