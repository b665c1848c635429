"""What comes of calls that return at once, in each runtime: what C gives, until it is ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from support.library import Library
from support.outside import command
from support.paths import ROOT
from support.signatures import ADD_SPECIAL

from tools.bindings.generate import PUBLIC
from tools.bindings.header import read_headers
from tools.bindings.own_names import GO, JAVA, NODE, calls

HOSTS = ROOT / "tests/runtimes/hosts"
MINE = ["mine"]
ABORTED = ["AbortError", "This operation was aborted", ""]

pytestmark = pytest.mark.xdist_group("runtimes")


@pytest.fixture(scope="session")
def told(lib, calf) -> dict[str, Any]:
    """What hosts say in every language."""
    prompt = lib.tokenize(calf, "Once upon a time", flags=ADD_SPECIAL)
    begins = drawn(lib, calf, prompt)[0]
    return {
        "missing": ["ENOENT", "file_not_found", "model_load_async"],
        "refused": ["ECANCELED", "callback_refused", "model_load_async"],
        "tokens": [drawn(lib, calf, prompt, seed) for seed in range(8)],
        "answers": ["3 + 4 = 7."] * 8,
        "again": begins,
        "before": ["ESTATE", "context_busy", "context_begin_async"],
        "busy": ["ESTATE", "context_busy", "context_chat_async"],
        "event": "3",
        "beside": ["ESTATE", "context_busy", "context_begin"],
        "replaced": 20,
        "begun": ["EUNSUPPORTED", "conflict", "context_begin"],
        "range": ["EINVAL", "out_of_range", "context_begin_async"],
        "usable": begins,
        "freed": ["ECANCELED", "freed", "context_begin_async"],
        "stopped": ["ESTATE", "not_running", "context_begin_async"],
    }


def own(told: dict[str, Any], language: str) -> dict[str, Any]:
    """The same with what a language calls the calls."""
    names = calls(language, read_headers([PUBLIC])[0])
    return {
        name: [names.get(each, each) for each in said]
        if isinstance(said, list) and isinstance(said[0], str)
        else said
        for name, said in told.items()
    }


def drawn(lib: Library, calf: int, prompt: Sequence[int], seed: int | None = None) -> list[int]:
    """The tokens that C gives: greedy ones without a seed."""
    sampling = {} if seed is None else {"temperature": 0.9, "seed": seed}
    context = lib.context(calf)
    lib.begin(context, prompt, max_tokens=16, **sampling)
    tokens = [piece.token for piece in lib.drain(context)[:-1]]
    lib.free(context)
    return tokens


def test_node_follows_in_its_event_loop(node_folder, arguments, told):
    host = node_folder / "following.mjs"
    host.write_text((HOSTS / host.name).read_text())
    done = command("node", host, *arguments[:2], cwd=node_folder)
    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        **own(told, NODE),
        "given": ["Error", "mine", ""],
        "left": ABORTED,
        "thrown": ["Error", "mine", ""],
        "length": "length",
        "at_once": "3 + 4 = 7.stop",
        "canceled": ABORTED,
        "early": ["Error", "mine", ""],
        "finish": "canceled",
        "progress": ["Error", "mine", ""],
        "forced": 40,
        "option": ["EINVAL", "unknown_option", "Context.generate"],
        "late": ABORTED,
        "events": 3,
        "descriptors": 0,
        "closed": ["EHANDLE", "unknown_handle", "Context.generate"],
    }


def test_go_follows_without_a_thread_for_each(go_programs, arguments, told):
    done = command(go_programs / "following", *arguments[:2], cwd=go_programs)
    assert done.stderr == ""
    assert json.loads(done.stdout) == {
        **own(told, GO),
        "given": MINE,
        "left": MINE,
        "panicked": "mine",
        "canceled": MINE,
        "early": MINE,
        "behind": "mine",
        "whole": 1000,
        "events": 3,
        "progress": "mine",
        "forced": 40,
        "threads": True,
    }


def test_java_follows_with_one_thread_for_all(java_said, told):
    assert json.loads(java_said[1]) == {
        **own(told, JAVA),
        "left": ["canceled"],
        "thrown": MINE,
        "length": "[LENGTH]",
        "threads": True,
        "stop": "[STOP]",
        "pool": True,
        "large": ["EINVAL", "out_of_range", "Model.context"],
        "canceled": ["canceled"],
        "after": "STOP",
        "itself": "CANCELED",
        "heard": MINE,
        "progress": MINE,
        "forced": 40,
        "own": ["EINVAL", "out_of_range", "Model.context"],
        "begun_too": ["EUNSUPPORTED", "conflict", "Context.generate"],
        "closed": ["EHANDLE", "unknown_handle", "Context.generateAsync"],
    }
