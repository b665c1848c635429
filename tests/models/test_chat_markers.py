"""The rules of chat markers are mlx-lm's."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.compiler import run

from cowmlx.models import chat_format

HOST = Path(__file__).with_name("mlx_lm_markers.py")


@pytest.fixture(scope="module")
def told() -> dict:
    done = run([sys.executable, HOST])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_every_text_that_mlx_lm_looks_for_leads_to_the_same(told):
    assert len(told["marks"]) > 20
    for case in told["answers"]:
        vocabulary, template = case["vocabulary"], case["template"]
        found = chat_format.thinking_texts(vocabulary)
        assert (list(found) if found else None) == case["thinking"], case
        assert chat_format.parser_for(vocabulary, template) == case["parser"], case
        assert list(chat_format.structural_texts(vocabulary)) == case["structural"], case


def test_the_cases_reach_every_rule(told):
    """And every parser that has one."""
    found = {case["parser"] for case in told["answers"]}
    assert {parser for parser, _ in chat_format._PARSERS} | {"kimi_k3", None} == found
    assert len({tuple(case["thinking"] or ()) for case in told["answers"]}) == 6
