"""cow_mlx_error_details: the last failed call as data."""

from __future__ import annotations

import ast
import json
import re
import threading
from ctypes import byref, c_char, c_size_t
from pathlib import Path

import pytest
from support import details
from support.compiler import library_sources
from support.library import StatusError
from support.paths import CSRC, ROOT
from support.signatures import (
    EBUFFER,
    EINVAL,
    GRAMMAR_GBNF,
    GRAMMAR_LARK,
    OK,
    REASONS,
    cow_mlx_model,
)

THREADS = 16


def of(lib, call) -> StatusError:
    """The error of a call that must fail; its details have been checked against the message."""
    with pytest.raises(StatusError) as caught:
        call()
    return caught.value


PARAMS = {
    "top_p": (1.5, "above 0 and at most 1"),
    "min_p": (-1.0, "0 to 1"),
    "temperature": (-0.1, "at least 0"),
    "top_k": (-1, "at least 0"),
    "repetition_penalty": (0.0, "above 0"),
    "timeout": (-2.5, "at least 0 seconds, and finite"),
    "draft_tokens": (1 << 20, None),
}


@pytest.mark.parametrize("name", PARAMS)
def test_a_value_out_of_range_is_told_with_its_range(lib, calf, name):
    value, accepted = PARAMS[name]
    context = lib.context(calf)
    error = of(lib, lambda: lib.begin(context, [1], **{name: value}))
    assert error.reason == "out_of_range"
    assert error.details["argument"] == name
    assert error.details["value"] == value
    assert accepted is None or error.details["accepted"] == accepted
    lib.free(context)


def test_a_number_that_json_has_not_is_a_text(lib, calf):
    context = lib.context(calf)
    error = of(lib, lambda: lib.begin(context, [1], temperature=float("nan")))
    assert error.details["value"] == "nan"
    lib.free(context)


@pytest.mark.parametrize(
    ("messages", "reason", "known"),
    [
        ('[{"role":\n "user",}]', "invalid_json", {"argument": "messages_json", "line": 2}),
        ("{}", "wrong_type", {"argument": "messages_json", "accepted": "an array"}),
        ("[]", "missing", {"argument": "messages"}),
        ("[3]", "wrong_type", {"argument": "messages[0]", "accepted": "an object"}),
        ('[{"role": "user"}]', "missing", {"argument": "messages[0].content"}),
    ],
)
def test_json(lib, calf, messages, reason, known):
    context = lib.context(calf)
    error = of(lib, lambda: lib.chat(context, messages))
    assert error.reason == reason
    assert known.items() <= error.details.items()
    assert ("column" in error.details) == ("line" in known)
    lib.free(context)


@pytest.mark.parametrize(
    ("grammar", "kind", "line"),
    [('start: "a"\n  | (\nb', GRAMMAR_LARK, 2), ('root ::= "a"\n  ( "b"', GRAMMAR_GBNF, 2)],
)
def test_grammars(lib, calf, grammar, kind, line):
    context = lib.context(calf)
    error = of(lib, lambda: lib.begin(context, [1], grammar=grammar, grammar_kind=kind))
    assert error.reason == "invalid_grammar"
    assert (error.details["argument"], error.details["line"]) == ("grammar", line)
    assert ("column" in error.details) == (kind == GRAMMAR_LARK)
    lib.free(context)


def test_tokens_needed_and_available(lib, calf):
    context = lib.context(calf, max_tokens=16)
    error = of(lib, lambda: lib.begin(context, [1] * 20))
    assert (error.reason, error.details) == ("context_full", {"needed": 20, "available": 16})
    lib.free(context)


def test_files(lib, calf, tmp_path):
    """Names that JSON has to escape, too."""
    missing = tmp_path / 'a "folder"\\\n\x01ö'
    error = of(lib, lambda: lib.load(missing))
    assert (error.reason, error.details) == ("file_not_found", {"file": str(missing)})
    (tmp_path / "config.json").write_text('{\n "model_type": }')
    error = of(lib, lambda: lib.load(tmp_path))
    assert error.reason == "malformed_file"
    assert (error.details["file"], error.details["line"]) == (str(tmp_path / "config.json"), 2)
    (tmp_path / "config.json").write_text('{"model_type": "nothing"}')
    error = of(lib, lambda: lib.load(tmp_path))
    assert (error.reason, error.details) == ("unknown_architecture", {"value": "nothing"})
    context = lib.context(calf)
    (tmp_path / "saved").write_bytes(b"no context")
    error = of(lib, lambda: lib.restore(context, tmp_path / "saved"))
    assert (error.reason, error.details["file"]) == ("malformed_file", str(tmp_path / "saved"))
    lib.free(context)


def test_what_does_not_fit_is_left_out(lib, tmp_path):
    """The object stays whole, however long a name is."""
    path = tmp_path / ("\x01" * 2000)
    assert lib.c.cow_mlx_model_load(bytes(path), None, cow_mlx_model()) < 0
    assert details.read(lib.c)["details"] == {}


def test_success_clears_them(lib, calf):
    assert lib.c.cow_mlx_context_free(0) < 0
    assert details.read(lib.c)["operation"] == "context_free"
    lib.info(calf)
    assert details.read(lib.c) == {}


def test_they_stay_until_a_buffer_is_large_enough(lib):
    assert lib.c.cow_mlx_context_free(0) < 0
    expected, message = details.read(lib.c), lib.message()
    length = c_size_t(77)
    small = (c_char * 8)(*b"xxxxxxxx")
    for capacity in (1, 8):
        assert lib.c.cow_mlx_error_details(small, capacity, byref(length)) == EBUFFER
        assert small.raw == b"xxxxxxxx"
    exact = (c_char * (length.value + 1))(*b"x" * (length.value + 1))
    assert lib.c.cow_mlx_error_details(exact, length.value, byref(length)) == OK
    assert json.loads(exact.raw[: length.value]) == expected
    assert exact.raw[-1:] == b"x"
    assert (details.read(lib.c), lib.message()) == (expected, message)


def test_its_own_bad_arguments_are_told(lib):
    assert lib.c.cow_mlx_context_free(0) < 0
    assert lib.c.cow_mlx_error_details(None, 4, byref(c_size_t())) == EINVAL
    found = details.agreed(details.read(lib.c), lib.message())
    assert found["operation"] == "error_details"
    assert found["details"] == {"argument": "buffer"}


def test_each_thread_has_its_own(lib):
    assert lib.c.cow_mlx_context_free(0) < 0
    barrier = threading.Barrier(THREADS)
    found: dict[int, int] = {}

    def work(number: int) -> None:
        assert details.read(lib.c) == {}
        lib.c.cow_mlx_context_free(number)
        barrier.wait()
        found[number] = details.read(lib.c)["details"]["handle"]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: number for number in range(THREADS)}
    assert details.read(lib.c)["details"]["handle"] == 0


# ------------------------------------------------- The list and those who use it


def literals(path: Path) -> set[str]:
    """The texts given as reasons in a module, of classes and of calls."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.keyword) and node.arg == "reason":
            found |= {n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)}
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == "reason":
                found.add(node.value.value)
    return found


def test_every_reason_of_the_header_is_given_and_no_other():
    given: set[str] = set()
    for path in (ROOT / "cowmlx").rglob("*.py"):
        given |= literals(path)
    for path in (ROOT / "cowmlx").rglob("*.pxi"):
        given |= set(re.findall(r'reason="(\w+)"', path.read_text()))
    for path in (*library_sources(), *CSRC.glob("base/*.h")):
        text = path.read_text()
        given |= set(re.findall(r"COW_REASON_([a-z]\w*)", text))
        given |= set(re.findall(r"\bINVALID\((\w+),", text)) - {"reason"}
    assert sorted(given - {None}) == sorted(REASONS)
