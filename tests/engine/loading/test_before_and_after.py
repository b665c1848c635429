"""Calls before the runtime has started and after it was stopped, in a separate process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from support.paths import CALF, ROOT
from support.signatures import ENOMEM

PROLOGUE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from ctypes import byref, c_bool, c_char, c_float, c_int32, c_size_t
from support import signatures
from support.library import Library, StatusError
from support.outputs import poisoned, poisoned_struct, untouched

folder = sys.argv[2]
lib = Library()
ADAPTER = (3 << 28) | 1

def name_of(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except StatusError as error:
        assert error.message, "a failure without a message"
        return error.name
    return "OK"

def every_call(model, context):
    return {
        "load": name_of(lib.load, folder),
        "model_info": name_of(lib.info, model),
        "tokenize": name_of(lib.tokenize, model, "fox"),
        "detokenize": name_of(lib.detokenize, model, [11]),
        "is_end": name_of(lib.is_end, model, 11),
        "chat_prompt": name_of(lib.chat_prompt, model, [{"role": "user", "content": "hi"}]),
        "context": name_of(lib.context, model),
        "begin": name_of(lib.begin, context, [11, 12], max_tokens=3),
        "next": name_of(lib.next, context),
        "generate": name_of(lib.generate, context, [11, 12], max_tokens=3),
        "tokens": name_of(lib.tokens, context),
        "context_info": name_of(lib.info, context),
        "stats": name_of(lib.stats, context),
        "trim_end": name_of(lib.trim_end, context, 1),
        "trim_front": name_of(lib.trim_front, context, 1),
        "cancel": name_of(lib.cancel, context),
        "reset": name_of(lib.reset, context),
        "free": name_of(lib.free, context),
        "free_model": name_of(lib.free_model, model),
        "runtime_info": name_of(lib.info),
        "trim_memory": name_of(lib.trim_memory),
        "embed": name_of(lib.embed, model, ["fox"]),
        "load_adapter": name_of(lib.load_adapter, model, folder),
        "set_adapter": name_of(lib.set_adapter, context, 0),
        "free_adapter": name_of(lib.free_adapter, ADAPTER),
    }
"""


@pytest.fixture
def run(folder, tmp_path):
    """Runs a script after PROLOGUE; returns the JSON it prints at its end."""

    def run(script):
        program = tmp_path / "host.py"
        program.write_text(PROLOGUE + script)
        command = [sys.executable, program, ROOT / "tests", folder("llama")]
        done = subprocess.run(
            [str(part) for part in command], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


MODEL, CONTEXT = (1 << 28) | 1, (2 << 28) | 1


def test_before_the_start_every_call_is_a_state_error(run):
    names = run(
        f"""
result = every_call({MODEL}, {CONTEXT})
result["stop"] = name_of(lib.stop)
lib.start()
result["after"] = name_of(lib.load, folder)
print(json.dumps(result))
"""
    )
    assert names.pop("after") == "OK"
    assert set(names.values()) == {"ESTATE"}, names


def test_after_the_stop_every_call_is_a_state_error_and_a_new_start_works(run):
    names = run(
        """
lib.start()
model = lib.load(folder)
context = lib.context(model)
lib.begin(context, [11, 12], max_tokens=50)
first = lib.next(context).token
lib.stop()
result = every_call(model, context)
result["stop"] = name_of(lib.stop)
lib.start()
again = every_call(model, context)
assert lib.info()["handles"]["context"] == 0
new = lib.load(folder)
assert new != model, "a stale handle names another model"
context = lib.context(new)
lib.begin(context, [11, 12], max_tokens=50)
assert lib.next(context).token == first
lib.stop()
print(json.dumps([result, again]))
"""
    )
    stopped, again = names
    assert set(stopped.values()) == {"ESTATE"}, stopped
    for call in ("load", "runtime_info", "trim_memory"):
        assert again.pop(call) == "OK"
    assert set(again.values()) == {"EHANDLE"}, again


def test_starts_are_counted(run):
    assert run(
        """
lib.start()
lib.start()
lib.stop()
model = lib.load(folder)
lib.stop()
print(json.dumps([name_of(lib.info, model), name_of(lib.stop)]))
"""
    ) == ["ESTATE", "ESTATE"]


def test_the_last_stop_cancels_what_runs(run):
    """A generation and a load, held in their callbacks until the stop has been made."""
    assert run(
        """
import threading
lib.start()
model = lib.load(folder)
context = lib.context(model)
started = [threading.Event(), threading.Event()]
ended = {}

def until_stopped(event):
    event.set()
    while name_of(lib.is_end, model, 1) == "OK":
        pass

def generate():
    ended["generate"] = name_of(
        lib.generate, context, [11, 12], lambda text: until_stopped(started[0]), max_tokens=400
    )

def load():
    ended["load"] = name_of(lib.load, folder, lambda *_: until_stopped(started[1]))

threads = [threading.Thread(target=work) for work in (generate, load)]
for thread in threads:
    thread.start()
for event in started:
    assert event.wait(60)
lib.stop()
for thread in threads:
    thread.join()
print(json.dumps(ended))
"""
    ) == {"generate": "ECANCELED", "load": "ECANCELED"}


def test_the_last_stop_cancels_an_embedding(run):
    """The call may not have arrived when the stop has; then it is tried again."""
    assert (
        run(
            """
import threading
texts = ["The quick brown fox jumps over the lazy dog."] * 5000

def attempt(pause):
    lib.start()
    model = lib.load(folder)
    ended = []
    thread = threading.Thread(target=lambda: ended.append(
        name_of(lib.embed, model, texts, capacity=64 * len(texts), batch_tokens=64)
    ))
    thread.start()
    for _ in range(pause):
        lib.info()
    lib.stop()
    thread.join()
    return ended[0]

outcome = "ESTATE"
for pause in range(1, 100):
    outcome = attempt(pause)
    if outcome not in ("ESTATE", "EHANDLE"):
        break
print(json.dumps(outcome))
"""
        )
        == "ECANCELED"
    )


def test_limits_and_the_device_have_their_effects(run):
    result = run(
        """
lib.start(device="cpu", memory_limit=1 << 30, cache_limit=1 << 20)
info = lib.info()
model = lib.load(folder)
context = lib.context(model)
lib.generate(context, list(range(11, 300)), max_tokens=30)
cache = lib.info()["memory"]["cache"]
again = name_of(lib.start, memory_limit=1 << 29)
same = name_of(lib.start, device="cpu", memory_limit=1 << 30, cache_limit=1 << 20)
print(json.dumps([info["device"], info["memory"]["limit"], cache <= 1 << 20, again, same]))
"""
    )
    assert result == ["cpu", 1 << 30, True, "ESTATE", "OK"]


def test_the_limits_of_a_host_that_shares_mlx_come_back(run):
    """Joined, the library gives mlx's own limits back when it stops."""
    assert run(
        """
import mlx.core as mx
before = mx.get_memory_limit()
lib.start(memory_limit=1 << 30, cache_limit=1 << 20)
assert mx.get_memory_limit() == 1 << 30
lib.stop()
print(json.dumps(mx.get_memory_limit() == before))
"""
    )


def test_a_memory_limit_that_fits_nothing_is_refused(run):
    """And the one that is just large enough is taken."""
    told = run(
        """
said = []
for limit in (1, 1000, (16 << 20) - 1):
    try:
        lib.start(memory_limit=limit)
    except StatusError as error:
        said.append([name_of(lambda: lib.start(memory_limit=limit)), error.message])
print(json.dumps([said, name_of(lib.start, memory_limit=16 << 20)]))
"""
    )
    assert told[1] == "OK"
    assert [status for status, _ in told[0]] == ["EINVAL"] * 3
    assert all("memory_limit is " in message for _, message in told[0])
    assert all("16777216 bytes or more" in message for _, message in told[0])


def test_weights_beyond_the_memory_limit_are_refused(run, tmp_path):
    """Before they are read; a model that fits loads."""
    import mlx.core as mx

    large = shutil.copytree(CALF, tmp_path / "large")
    weights = mx.load(str(large / "model.safetensors"))
    weights["unused"] = mx.zeros(5 << 20)
    mx.save_safetensors(str(large / "model.safetensors"), weights)
    told = run(
        f"""
lib.start(device="cpu", memory_limit=16 << 20)
try:
    lib.load({str(large)!r})
except StatusError as error:
    said = [error.status, error.message, error.details]
before = lib.info()["memory"]["active"]
lib.free_model(lib.load({str(CALF)!r}))
print(json.dumps([said, before]))
"""
    )
    (status, message, details), before = told
    assert (status, details["limit"]) == (ENOMEM, 16 << 20)
    assert details["needed"] > 16 << 20 > before
    assert "memory_limit" in message
