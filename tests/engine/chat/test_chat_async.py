"""Chats without waiting: events are kept until they are taken."""

from __future__ import annotations

import json
import os
import sys

import pytest
from driver import prompt
from support.async_calls import begin, chat, events, held, next_event, poll
from support.callbacks import Callbacks, StatusError
from support.compiler import run
from support.paths import CALF, ROOT
from support.signatures import (
    DONE,
    ECANCELED,
    EHANDLE,
    EINVAL,
    ESTATE,
    ETIMEDOUT,
    EVENT_END,
    EVENT_TEXT,
    EVENT_TOOL_CALL,
    FINISH_LENGTH,
    FINISH_STOP,
    OK,
)
from support.wake import readable, wake_fd
from tasks import HELDOUT

FOX = [{"role": "user", "content": "What colour is a fox?"}]
STORY = [{"role": "user", "content": "Tell me a story about an owl."}]


def failure(lib, context):
    with pytest.raises(StatusError) as error:
        events(lib, context)
    return error.value


def said(given):
    return "".join(event.text for event in given if event.kind == EVENT_TEXT)


def test_the_events_are_those_of_chat(lib, calf, open_context):
    context, other = open_context(calf), open_context(calf)
    for messages, params in ((FOX, {}), (STORY, {"max_tokens": 40, "temperature": 0.8, "seed": 5})):
        chat(lib, context, messages, **params)
        given = events(lib, context)
        assert given == lib.chat(other, messages, **params).events
        status, last = next_event(lib, context)
        assert (status, last) == (DONE, given[-1]), "the end stays"


def test_tools(lib, calf, open_context):
    entry = next(e for e in json.loads(HELDOUT.read_text()) if e["kind"] == "tool_call")
    context, other = open_context(calf), open_context(calf)
    options = {"tools": entry["tools"], "tool_choice": "required"}
    chat(lib, context, entry["messages"], options=options)
    given = events(lib, context)
    assert [event.kind for event in given][-2:] == [EVENT_TOOL_CALL, EVENT_END]
    assert given == lib.chat(other, entry["messages"], options=options).events


def test_several_by_their_descriptors(lib, calf, open_context):
    contexts = [open_context(calf) for _ in range(4)]
    given = {context: [] for context in contexts}
    for context in contexts:
        chat(lib, context, FOX)
    under_way = list(contexts)
    while under_way:
        for context in list(under_way):
            if not readable(wake_fd(lib, context), 0.01):
                continue
            assert poll(lib, context, 0) == OK
            status, event = next_event(lib, context)
            given[context].append(event)
            if status == DONE:
                under_way.remove(context)
    assert [said(each) for each in given.values()] == ["A fox is red."] * 4


def test_nothing_waits_for_the_dispatch_thread(lib, calf, open_context):
    context = open_context(calf)
    with held(lib):
        chat(lib, context, FOX)
        assert poll(lib, context, 0) == ETIMEDOUT
        assert not readable(wake_fd(lib, context))
        with pytest.raises(StatusError) as busy:
            chat(lib, context, FOX)
        assert busy.value.status == ESTATE
    assert said(events(lib, context)) == "A fox is red."


def test_more_events_than_lie_ready(lib, calf, open_context):
    """The generation waits for its host, which takes nothing until it does."""
    context, other = open_context(calf), open_context(calf)
    chat(lib, context, STORY, max_tokens=200)
    for _ in range(4):  # others' turns
        lib.generate(other, prompt(9), max_tokens=100)
    assert events(lib, context) == lib.chat(other, STORY, max_tokens=200).events


def test_one_chat_after_the_other(lib, calf, open_context):
    """The end of one is the moment from which another may begin."""
    context = open_context(calf)
    for _ in range(20):
        chat(lib, context, FOX)
        assert said(events(lib, context)) == "A fox is red."


def test_a_cancel(lib, calf, open_context):
    """What lay ready is not given any more."""
    context = open_context(calf)
    chat(lib, context, STORY, max_tokens=200)
    assert next_event(lib, context)[0] == OK
    lib.cancel(context)
    error = failure(lib, context)
    assert (error.status, error.reason) == (ECANCELED, "canceled")
    assert failure(lib, context).status == ECANCELED, "until the next chat"
    assert lib.tokens(context)
    chat(lib, context, FOX)
    assert said(events(lib, context)) == "A fox is red."


def test_a_cancel_while_nothing_was_done_yet(lib, calf, open_context):
    context = open_context(calf)
    with held(lib):
        chat(lib, context, FOX)
        lib.cancel(context)
    assert failure(lib, context).status == ECANCELED


def test_progress_that_refuses(lib, calf, open_context):
    context = open_context(calf)
    callbacks = Callbacks()
    begin(lib, context, prompt(300), callbacks, prompt_progress=lambda *_: False)
    with pytest.raises(StatusError):
        lib.next(context)
    chat(lib, context, FOX)
    assert said(events(lib, context)) == "A fox is red."


@pytest.mark.parametrize(
    ("messages", "options", "params", "reason"),
    [
        ("[", None, {}, "invalid_json"),
        ("[{}]", None, {}, "missing"),
        (FOX, {"tool_choice": "nobody"}, {}, "out_of_range"),
        (FOX, None, {"logprobs": 2}, "conflict"),
        (FOX, None, {"top_p": -1.0}, "out_of_range"),
    ],
)
def test_a_failure(lib, calf, open_context, messages, options, params, reason):
    context = open_context(calf)
    chat(lib, context, messages, options=options, **params)
    assert poll(lib, context) == OK
    with pytest.raises(StatusError) as same:
        lib.chat(context, messages, options=options, **params)
    error = failure(lib, context)
    assert (error.status, error.reason) == (EINVAL, same.value.reason)
    assert error.message.startswith("context_chat_async: ")


def test_the_end_by_length(lib, calf, open_context):
    context = open_context(calf)
    chat(lib, context, STORY, max_tokens=5)
    assert events(lib, context)[-1].finish == FINISH_LENGTH


def test_pieces_and_events_are_not_mixed(lib, calf, open_context):
    context = open_context(calf)
    chat(lib, context, FOX)
    with pytest.raises(StatusError) as refused:
        lib.next(context)
    assert refused.value.status == ESTATE
    assert "next_event" in refused.value.message
    assert events(lib, context)[-1].finish == FINISH_STOP
    begin(lib, context, prompt(9), max_tokens=3)
    with pytest.raises(StatusError) as refused:
        next_event(lib, context)
    assert refused.value.status == ESTATE
    assert len(lib.drain(context)) == 4


def test_nothing_was_begun(lib, calf, open_context):
    context = open_context(calf)
    with pytest.raises(StatusError) as error:
        next_event(lib, context)
    assert (error.value.status, error.value.reason) == (ESTATE, "nothing_begun")
    lib.free(context)
    with pytest.raises(StatusError) as error:
        next_event(lib, context)
    assert error.value.status == EHANDLE


def test_a_thread_s_texts_outlive_the_context(calf):
    """Another thread may free it while they are copied. Freed memory is overwritten here."""
    host = ROOT / "tests/engine/hosts/kept_texts.py"
    overwritten = {"MALLOC_PERTURB_": "165", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
    done = run([sys.executable, host, CALF], env=os.environ | overwritten)
    assert done.returncode == 0, done.stderr
    before, after = done.stdout.split("\n")[:2]
    assert before == after != ""
