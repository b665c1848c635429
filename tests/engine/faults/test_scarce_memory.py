"""No memory in the engine's own code: calls that do not need it are not affected."""

from __future__ import annotations

import errno
import os
import sys
from ctypes import c_char, c_float, c_int32
from pathlib import Path

import pytest
from driver import KV, prompt
from support.callbacks import StatusError
from support.compiler import compile_c, run
from support.outputs import Buffer
from support.paths import ROOT
from support.signatures import EBUFFER

from cowmlx import failures
from cowmlx.engine import Engine
from cowmlx.errors import Shortage
from cowmlx.generation.outlet import Outlet
from cowmlx.models import chat_format
from cowmlx.scheduling.lane import Lane
from cowmlx.scheduling.scheduler import Scheduler

HERE = Path(__file__).parent


def once(monkeypatch, owner, name, error=MemoryError):
    """Let a function raise at its third call, after it has done its work."""
    own, calls = getattr(owner, name), []

    def fail(*arguments):
        result = own(*arguments)
        calls.append(1)
        if len(calls) == 3:
            raise error
        return result

    monkeypatch.setattr(owner, name, fail)
    return calls


@pytest.mark.parametrize("place", ["_take_turn", "_put_back", "_attend_background"])
def test_a_step_without_memory_is_made_again(lib, tiny, open_context, monkeypatch, place):
    context = open_context(tiny(KV))
    expected = lib.generate(open_context(tiny(KV)), prompt(40), max_tokens=12).text
    calls = once(monkeypatch, Scheduler, place)
    assert lib.generate(context, prompt(40), max_tokens=12).text == expected
    assert len(calls) > 3


def test_a_generation_fails_though_there_is_no_memory_for_its_error(
    lib, tiny, open_context, monkeypatch
):
    context = open_context(tiny(KV))
    expected = lib.generate(context, prompt(40), max_tokens=12).text

    def scarce(*_):
        raise MemoryError

    with monkeypatch.context() as patched:
        once(patched, Lane, "_step_alone", RuntimeError("[malloc] Unable to allocate 9 bytes."))
        patched.setattr(failures, "_copy", scarce)
        patched.setattr(Outlet, "take_back", scarce)
        with pytest.raises(StatusError, match="ENOMEM"):
            lib.generate(context, prompt(40), max_tokens=12)
    assert lib.generate(context, prompt(40), max_tokens=12).text == expected


class PanicException(BaseException):
    """As PyO3 names what a library in Rust raises that gives up."""


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("std::bad_alloc"),
        PanicException("PyObject pointer is null"),  # a text that Python has no memory for
        RuntimeError("can't start new thread"),
        RuntimeError("can't allocate read lock"),  # of a file that is opened
        ImportError("x.so: failed to map segment from shared object"),
        ImportError("x.so: cannot map zero-fill pages"),
        OSError(errno.ENOMEM, "no text"),
        SystemError("error return without exception set"),
        SystemError("<function f at 0x7f> returned NULL without setting an exception"),
    ],
    ids=str,
)
def test_a_shortage_by_another_name(error):
    assert isinstance(failures.translate(error), Shortage)
    assert not isinstance(failures.translate(ValueError(str(error))), Shortage)


CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Rio", "Rome"]}},
    "required": ["city"],
}
TOOLS = {"tools": [{"name": "get_weather", "parameters": CITY}]}


@pytest.mark.parametrize(
    "error", [MemoryError(), SystemError("error return without exception set")], ids=repr
)
def test_a_tool_call_that_is_read_without_memory_is_no_text(
    lib, calf, open_context, monkeypatch, error
):
    context = open_context(calf)
    messages = [{"role": "user", "content": "What is the weather in Rome?"}]

    def calls():
        return lib.chat(context, messages, options=TOOLS, max_tokens=24).calls

    def refuse(call):
        raise error

    expected = [("get_weather", {"city": "Rome"})]
    assert calls() == expected
    with monkeypatch.context() as patched:
        patched.setattr(chat_format, "_call", refuse)
        with pytest.raises(StatusError, match="ENOMEM"):
            calls()
    assert calls() == expected


def test_a_call_that_nests_deeper_than_python_parses_is_no_shortage():
    format = object.__new__(chat_format.ChatFormat)
    format.parser = "pythonic"
    assert format.parse(f"[f(x={'-' * 10_000}1)]", None) is None


KINDS = {"context_tokens": c_int32, "context_info": c_char, "context_logits": c_float}


@pytest.mark.parametrize("name", KINDS)
def test_a_size_is_written_with_its_error_alone(lib, tiny, open_context, monkeypatch, name):
    context = open_context(tiny(KV))
    lib.begin(context, prompt(40), max_tokens=0)

    def call():
        out = Buffer(KINDS[name], 1)
        status = getattr(lib.c, f"cow_mlx_{name}")(context, *out.arguments())
        with pytest.raises(StatusError) as failed:
            lib.check(status, out)  # that it has written nothing but the size of EBUFFER
        return failed.value, out.length.value

    def scarce(*_):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(failures, "translate", scarce)
        assert call()[0].name == "ENOMEM"
    error, size = call()
    assert (error.status, error.details["needed"]) == (EBUFFER, size)


def test_an_error_is_kept_without_memory(monkeypatch):
    def scarce(*_):
        raise MemoryError

    monkeypatch.setattr(failures, "translate", scarce)
    assert isinstance(failures.kept(RuntimeError("any")), Shortage)


def test_an_exception_that_has_no_traceback(lib, tiny, open_context, monkeypatch):
    """There is no memory for one either, while a step ends."""
    allocator = pytest.importorskip("_testcapi", reason="this Python has no _testcapi")
    context, own, scarce = open_context(tiny(KV)), Engine.step, [True]
    expected = lib.generate(open_context(tiny(KV)), prompt(40), max_tokens=12).text

    def step(engine):
        if scarce and scarce.pop():
            allocator.set_nomemory(0, 200)
            raise MemoryError
        return own(engine)

    try:
        with monkeypatch.context() as patched:
            patched.setattr(Engine, "step", step)
            assert lib.generate(context, prompt(40), max_tokens=12).text == expected
    finally:
        allocator.remove_mem_hooks()
    assert not scarce


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_lists_of_numbers_that_cannot_grow(folder, tmp_path):
    """A number that finds no place in its list is released once."""
    refusing = compile_c([HERE / "refusing.c"], tmp_path / "refusing.so", "-shared", "-fPIC")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "LD_PRELOAD": str(refusing)}
    host = HERE.parent / "hosts/refused_lists.py"
    done = run([sys.executable, host, refusing, folder("calf")], env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux")
def test_an_operation_without_memory_for_its_result_keeps_no_copy_of_an_input(tmp_path):
    refusing = compile_c([HERE / "refusing.c"], tmp_path / "refusing.so", "-shared", "-fPIC")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "LD_PRELOAD": str(refusing)}
    done = run(
        [sys.executable, HERE.parent / "hosts/refused_operation.py", refusing], env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
    before, after = map(int, done.stdout.split())
    assert before == after
