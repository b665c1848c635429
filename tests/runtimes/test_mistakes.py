"""What a host does wrong is an error of its binding's own, which names the binding's calls.

Every public method of every class is called with wrong values in each place, with one argument too
many, with closed objects, without a library and before the runtime is started.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from support.outside import command
from support.paths import CALF, LIBRARY, ROOT

from tools.bindings import own_names
from tools.bindings.generate import PUBLIC
from tools.bindings.header import read_headers

pytestmark = pytest.mark.xdist_group("runtimes")
HOSTS = ROOT / "tests/runtimes/hosts"
# Not of the library: what an operating system's loader says.
LOADER = re.compile(r"(Cannot find function|undefined symbol:|looking up function) '?cow_mlx_\w+'?")


@cache
def names_of_c() -> re.Pattern[str]:
    """The calls, parameters and fields of C, where they differ from those of the bindings."""
    [public] = read_headers([PUBLIC])
    names = {*own_names.calls(own_names.NODE, public), *own_names.parameters(public)}
    names |= {name for name in own_names.fields(public) if "_" in name}
    # The options of a chat are JSON and keep these names.
    word = rf"(?<![\w.\"'/])({'|'.join(sorted(names))})(?![\w\"'])"
    return re.compile(rf"{word}|cow_mlx_|COW_MLX_|NULL")


def outcomes(text: str) -> list[tuple[str, str, Any]]:
    """What a host tells: calls, what they were given, and the errors."""
    lines = [json.loads(line) for line in text.splitlines()]
    assert len({call for call, *_ in lines}) > 60
    return [(call, given, error) for call, given, error in lines]


def assert_own(told: list[tuple[str, str, Any]]) -> None:
    """Each error is of the binding's own type, and names the call that the host has made."""
    for call, given, error in told:
        if error is None:
            continue
        assert isinstance(error, dict), f"{call}({given}): {error}"
        message = error["message"]
        assert message.startswith(f"{error['operation']}: "), (call, given, message)
        names = (call.rstrip("_"), f"ProgramBuilder.{error['operation'].partition('.')[2]}")
        is_call = call[0].isupper() or "." in call
        assert not is_call or error["operation"] in names, (call, given, message)
        assert not names_of_c().search(LOADER.sub("", message)), (call, given, message)
        assert error["status"] != "EINTERNAL", (call, given, message)


def found(told: list[tuple[str, str, Any]], call: str, given: str = "") -> dict[str, Any]:
    """The error of one mistake."""
    [error] = [error for name, what, error in told if (name, what) == (call, given)]
    assert error is not None, (call, given)
    return error


def message(told: list[tuple[str, str, Any]], call: str, given: str = "") -> str:
    return str(found(told, call, given)["message"])


@pytest.fixture(scope="module")
def of_node(node_folder) -> list[tuple[str, str, Any]]:
    host = node_folder / "mistakes.mjs"
    host.write_text((HOSTS / host.name).read_text())
    done = command("node", host, LIBRARY, CALF, cwd=node_folder)
    assert done.stderr == ""
    return outcomes(done.stdout)


def test_node_names_its_own_calls(of_node):
    assert_own(of_node)
    refused = {call for call, _, error in of_node if error}
    assert {call for call, *_ in of_node} - refused == set()


def test_node_says_what_it_takes(of_node):
    assert message(of_node, "stop") == 'Context.begin: stop is "=", must be a list of texts'
    assert message(of_node, "embed") == 'Model.embed: texts is "text", must be a list of texts'
    assert "{ chat: { tools } }" in message(of_node, "tools")
    assert "it takes (messages, options)" in message(of_node, "third")
    assert message(of_node, "topP") == "Context.begin: topP is 2, must be above 0 and at most 1"
    assert found(of_node, "topP")["argument"] == "topP"
    assert "there is no option topQ" in message(of_node, "topQ")
    assert message(of_node, "progress") == "Model.load: progress is 5, must be a function"
    assert message(of_node, "closed") == "Context.info: the context is closed"
    unstarted = "Model.load: the runtime is not running; call new Runtime first"
    assert message(of_node, "Model.load", "no runtime") == unstarted


def test_node_names_the_library_that_is_missing(of_node):
    error = found(of_node, "new Runtime", "/nope.so")
    assert (error["status"], error["reason"]) == ("ENOENT", "file_not_found")
    assert "/nope.so" in error["message"]
    assert found(of_node, "runtimeInfo", "libc")["reason"] == "library_mismatch"


@pytest.fixture(scope="module")
def of_go(go_programs, tmp_path_factory) -> list[tuple[str, str, Any]]:
    folder = tmp_path_factory.mktemp("mistakes")
    done = command(go_programs / "mistakes", LIBRARY, CALF, cwd=folder, COWMLX_LIBRARY="")
    assert done.stderr == ""
    return outcomes(done.stdout)


def test_go_names_its_own_calls(of_go):
    assert_own(of_go)
    succeeded = {call for call, _, error in of_go if error is None}
    assert succeeded == {"Close"}


@pytest.mark.parametrize("given", ["no library", "no runtime", "nil", "closed"])
def test_go_has_an_error_for_every_object_that_cannot_be_used(of_go, given):
    told = {call: error["reason"] for call, what, error in of_go if what == given and error}
    reasons = {"no library": "missing", "no runtime": "not_running"}
    others = {"unknown_handle"} if given != "closed" else {"null_argument"}
    expected = {reasons.get(given, "unknown_handle"), *others}
    methods = {call: reason for call, reason in told.items() if "." in call}
    assert len(methods) > 45
    found = set(methods.values())
    assert expected & found
    assert found <= {*expected, "missing", "null_argument"}


def test_go_says_what_it_takes(of_go):
    assert message(of_go, "Context.Info", "closed") == "Context.Info: the context is nil or closed"
    accepted = "must be above 0 and at most 1"
    assert message(of_go, "Context.Begin", "TopP") == f"Context.Begin: TopP is 2, {accepted}"
    assert found(of_go, "Context.Begin", "Temperature")["argument"] == "Temperature"
    for given in ("BiasValues", "no BiasTokens"):
        error = found(of_go, "Context.Begin", given)
        assert (error["reason"], error["argument"]) == ("conflict", "BiasValues")
    assert "context.Background()" in message(of_go, "Context.Generate", "nil ctx")
    assert message(of_go, "Context.Begin", "closed draft").endswith("Draft is a closed model")
    for name in ("width", "height", "channels"):
        error = found(of_go, "MediaFromPixels", name)
        assert (error["reason"], error["argument"]) == ("out_of_range", name)
    assert "NewRuntime first" in message(of_go, "LoadModel", "no runtime")
    assert "call UseLibrary" in message(of_go, "LoadModel", "no library")
    missing = found(of_go, "UseLibrary", "/nope.so")
    assert (missing["status"], "/nope.so" in missing["message"]) == ("ENOENT", True)
    assert found(of_go, "UseLibrary", "libc")["reason"] == "library_mismatch"
    assert message(of_go, "Training.Fit", "twice").endswith("NextBatch gave an array twice, at 1")


@pytest.fixture(scope="module")
def of_java(java_mistakes) -> list[tuple[str, str, Any]]:
    return outcomes(java_mistakes)


def test_java_names_its_own_calls(of_java):
    assert_own(of_java)


def test_java_refuses_closed_objects(of_java):
    methods = {call: error for call, given, error in of_java if given == "closed"}
    del methods["Context.pieces"]  # asks for nothing before its loop
    assert len(methods) > 40
    assert {error and error["reason"] for error in methods.values()} == {"unknown_handle"}


def test_java_says_what_it_takes(of_java):
    accepted = "must be above 0 and at most 1"
    assert message(of_java, "Context.begin", "topP") == f"Context.begin: topP is 2, {accepted}"
    assert found(of_java, "Context.begin", "topP")["argument"] == "topP"
    assert message(of_java, "Model.inspect", "no runtime").endswith("call new Runtime first")
    assert "call Runtime.useLibrary()" in message(of_java, "new Runtime", "no library")
    missing = found(of_java, "new Runtime", "/nope.so")
    assert (missing["status"], "/nope.so" in missing["message"]) == ("ENOENT", True)
    assert found(of_java, "new Runtime", "libc")["reason"] == "library_mismatch"
    assert found(of_java, "Training.fit", "a null array")["reason"] == "null_argument"
    for name in ("biasValues", "no biasTokens", "no biasValues", "an array twice"):
        call = "Training.fit" if name == "an array twice" else "Context.begin"
        assert found(of_java, call, name)["reason"] == "conflict"
    assert found(of_java, "Training.fit", "a closed array")["reason"] == "unknown_handle"
    assert ("Context.begin", "stop twice", None) in of_java


@pytest.mark.parametrize(
    "first", ["TrimMemory", "RuntimeInfo", "Operations", "Trim", "Save", "Train"]
)
def test_the_first_call_of_go_opens_the_library_that_the_environment_names(first, go_programs):
    done = command(go_programs / "unloaded", first, cwd=go_programs, COWMLX_LIBRARY=LIBRARY)
    assert "the runtime is not running" in done.stdout
