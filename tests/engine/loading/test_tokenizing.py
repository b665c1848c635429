"""Long texts are tokenized in turns, so that others step meanwhile and all of it can end."""

from __future__ import annotations

import subprocess
import sys
import threading
from ctypes import byref, c_size_t

import pytest
from driver import ENDLESS, greedy, prompt
from support.library import StatusError
from support.long_texts import CALLS, LONG, LONG_MESSAGE, PROSE, chat
from support.paths import CALF, ROOT
from support.signatures import ADD_SPECIAL, ECANCELED, EINVAL, ESTATE, PARSE_SPECIAL
from support.threads import Working

from cowmlx.text import tokenizer
from cowmlx.text.detokenizer import Detokenizer
from cowmlx.text.tokenizer import Tokenizer

FLAGS = [0, ADD_SPECIAL, ADD_SPECIAL | PARSE_SPECIAL]


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(tokenizer, "PART", 50)
    monkeypatch.setattr(tokenizer, "PART_TOKENS", 50)


@pytest.fixture
def under_way(monkeypatch):
    """Set once a text is in the middle of being encoded, or tokens of being decoded.

    Parts are small, so that there are many turns left.
    """
    begun = threading.Event()
    parts = []
    monkeypatch.setattr(tokenizer, "PART", 200)
    monkeypatch.setattr(tokenizer, "PART_TOKENS", 20)

    def watch(function):
        def watched(*args, **kwargs):
            parts.append(None)
            if len(parts) > 50:
                begun.set()
            return function(*args, **kwargs)

        return watched

    monkeypatch.setattr(Tokenizer, "_encode", watch(Tokenizer._encode))
    monkeypatch.setattr(Detokenizer, "add", watch(Detokenizer.add))
    return begun


# --------------------------------------------------------------------- The same


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize(
    "text", [PROSE * 7, PROSE[:60], "word " * 100, "x" * 300, "日本。" * 90, ""]
)
def test_parts_change_nothing(lib, calf, request, text, flags):
    tokens = lib.tokenize(calf, text, flags)
    said = lib.detokenize(calf, tokens)
    request.getfixturevalue("small_parts")
    assert lib.tokenize(calf, text, flags) == tokens
    assert lib.detokenize(calf, tokens) == said


@pytest.mark.parametrize("parse", [True, False])
def test_parts_of_a_chat_change_nothing(lib, calf, request, parse):
    messages = [*chat(PROSE * 5), {"role": "assistant", "content": PROSE}, *chat(PROSE * 2)]
    tokens = lib.chat_prompt(calf, messages, parse_special=parse)
    request.getfixturevalue("small_parts")
    assert lib.chat_prompt(calf, messages, parse_special=parse) == tokens


def test_a_long_chat_is_answered_as_ever(lib, calf, open_context, request):
    messages = chat("Is a fox red? " * 8)
    wanted = lib.chat(open_context(calf), messages, max_tokens=8)
    request.getfixturevalue("small_parts")
    got = lib.chat(open_context(calf), messages, max_tokens=8)
    assert got.events == wanted.events
    assert got.stats.prompt_tokens == wanted.stats.prompt_tokens > 50


def test_embeddings_of_texts_in_parts_are_the_same(lib, tiny, request):
    texts = [PROSE[:60] * 5, "a fox"]
    wanted = lib.embed(tiny("llama"), texts)
    request.getfixturevalue("small_parts")
    assert lib.embed(tiny("llama"), texts) == wanted


def test_a_word_without_end_is_refused(lib, calf, monkeypatch):
    monkeypatch.setattr(tokenizer, "MAX_PIECE", 100_000)
    assert lib.tokenize(calf, "x" * 100_000)
    with pytest.raises(StatusError) as refused:
        lib.tokenize(calf, PROSE + "x" * 200_000)
    assert refused.value.status == EINVAL
    assert "more than 100000 characters" in str(refused.value)
    with pytest.raises(StatusError) as refused:
        lib.chat_prompt(calf, chat("x" * 200_000))
    assert refused.value.status == EINVAL


# ------------------------------------------------------------------- Beside others


def test_a_context_generates_while_a_text_is_tokenized(lib, calf, tiny, open_context, monkeypatch):
    """It has a turn after every part; its host is as quick to take what comes."""
    events = []
    encode = Tokenizer._encode

    def watched(self, text, *args, **kwargs):
        if len(text) > 1000:
            events.append("part")
        return encode(self, text, *args, **kwargs)

    monkeypatch.setattr(Tokenizer, "_encode", watched)
    running = threading.Event()
    enough = threading.Event()

    def take(_):
        running.set()
        events.append("text")
        return not enough.is_set()

    context = open_context(tiny("llama"), overflow=1)
    generation = Working(lib.generate, context, prompt(9), take, max_tokens=ENDLESS)
    running.wait()
    data, count = LONG.encode(), c_size_t()
    lib.check(lib.c.cow_mlx_model_tokenize(calf, data, len(data), 0, None, 0, byref(count)))
    enough.set()
    assert generation.ended() == ECANCELED
    parts = [at for at, event in enumerate(events) if event == "part"]
    between = events[parts[0] : parts[-1]].count("text")
    assert count.value > 1_000_000
    assert len(parts) > 200
    assert between > len(parts) // 2


def test_other_calls_are_answered_while_tokens_become_text(lib, calf, under_way):
    work = Working(lib.detokenize, calf, list(range(300, 400)) * 1000)
    assert under_way.wait(300)
    answered = 0
    while work.status is None:
        assert lib.tokenize(calf, "a fox")
        answered += 1
    assert work.ended() == 0
    assert answered > 10


# ------------------------------------------------------------------------ The end


@pytest.mark.parametrize("call", CALLS)
def test_a_model_freed_meanwhile_cancels_the_call(lib, under_way, call):
    model = lib.load(CALF)
    work = Working(CALLS[call], lib, model)
    assert under_way.wait(300)
    lib.free_model(model)
    assert work.ended() == ECANCELED


def test_a_chat_is_cancelled_while_its_prompt_is_tokenized(lib, calf, open_context, under_way):
    context = open_context(calf)
    tokens = greedy(lib, context, prompt(9))
    held = lib.tokens(context)
    work = Working(lib.chat, context, chat(LONG_MESSAGE))
    assert under_way.wait(300)
    with pytest.raises(StatusError) as busy:
        lib.begin(context, prompt(3))
    assert busy.value.status == ESTATE
    lib.cancel(context)
    assert work.ended() == ECANCELED
    assert lib.tokens(context) == held
    assert greedy(lib, context, prompt(9)) == tokens


def test_a_context_freed_while_its_prompt_is_tokenized(lib, calf, under_way):
    context = lib.context(calf)
    work = Working(lib.chat, context, chat(LONG_MESSAGE))
    assert under_way.wait(300)
    lib.free(context)
    assert work.ended() == ECANCELED


STOPPING = """
import threading
from support.library import Library
from support.long_texts import CALLS, LONG_MESSAGE, chat
from support.paths import CALF
from support.threads import Working

from cowmlx.text import tokenizer
from cowmlx.text.detokenizer import Detokenizer

lib = Library()
tokenizer.PART, tokenizer.PART_TOKENS = 200, 20
begun, count = threading.Event(), 0

def watch(kind, name):
    function = getattr(kind, name)
    def watched(*args, **kwargs):
        global count
        count += 1
        if count > 50:
            begun.set()
        return function(*args, **kwargs)
    setattr(kind, name, watched)

watch(tokenizer.Tokenizer, "_encode")
watch(Detokenizer, "add")
ended = {}
CALLS["chat"] = lambda lib, model: lib.chat(lib.context(model), chat(LONG_MESSAGE))
for name, call in CALLS.items():
    lib.start()
    work = Working(call, lib, lib.load(CALF))
    assert begun.wait(60)
    lib.stop()
    ended[name] = work.ended()
    begun.clear()
    count = 0
print(ended)
"""


def test_a_stop_ends_all_of_it_at_once():
    """Each has more than ten thousand turns left."""
    path = [str(ROOT / "tests"), str(ROOT)]
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {path}\n{STOPPING}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(dict.fromkeys([*CALLS, "chat"], ECANCELED))
