"""Every binding has every call of the header, or says here why it leaves one out."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import pytest
from support.paths import ROOT

from tools.bindings import emit_swift_methods, own_names
from tools.bindings.emit_go import field_name, pascal
from tools.bindings.generate import COMPAT, PUBLIC
from tools.bindings.header import read_headers

PREFIX = "cow_mlx_"
BINDINGS = ROOT / "bindings"
NO_DLPACK = "no library of the language takes or gives DLPack tensors"
NAMED = "the enum Status has the names"
DLPACK = {"array_from_dlpack": NO_DLPACK, "array_to_dlpack": NO_DLPACK}
# Generated files that declare all calls and make none.
DECLARING = ("CowMlx.java", "declarations.js", "functions.go")
SWIFT = dict.fromkeys(emit_swift_methods.LEFT_OUT, "the call that returns at once is made")
ELIXIR = {
    **dict.fromkeys(
        ("model_load", "context_generate", "context_chat"),
        "the call that returns at once is made",
    ),
    **dict.fromkeys(("array_read", "array_view"), "a binary is a DLPack tensor's memory"),
    "array_from_dlpack": NO_DLPACK,
    "status_name": "statuses are atoms",
}
JAVA = {"status_name": NAMED, **DLPACK}


@cache
def calls() -> list[str]:
    """The calls of cow_mlx.h without the prefix; those of cow_mlx_compat.h are for older hosts."""
    public, *_ = read_headers([PUBLIC, COMPAT])
    return [function.name.removeprefix(PREFIX) for function in public.functions]


@dataclass(frozen=True)
class Binding:
    """A binding and how its source shows that it makes a call.

    Attributes:
        name: of its folder.
        sources: its files, as globs; what is generated alone makes no call.
        shows: whether the code, without its comments, has the call.
        left_out: calls that it does not make, and why.
    """

    name: str
    sources: tuple[str, ...]
    shows: Callable[[str, str], bool]
    left_out: dict[str, str] = field(default_factory=dict)

    def code(self) -> str:
        """The sources without comments."""
        files = [
            path for glob in self.sources for path in sorted((BINDINGS / self.name).glob(glob))
        ]
        assert files, self.sources
        text = "\n".join(path.read_text() for path in files if path.name not in DECLARING)
        return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)


def by_its_name(call: str, code: str) -> bool:
    """In C++ and Rust a call has C's name."""
    return re.search(rf"\b{PREFIX}{call}\b", code) is not None


def by_its_member(call: str, code: str) -> bool:
    """In Swift a call is a member of the table of calls; options come with their defaults."""
    if call.endswith("_params_init"):
        return (
            f"api.{call}(" in code or f"public struct {pascal(call.removesuffix('_init'))}" in code
        )
    return re.search(rf"\bapi\.{call}\(", code) is not None


def by_a_text(call: str, code: str) -> bool:
    """In Node.js a call is named by a text, or is a function of native()."""
    if call.endswith("_params_init"):  # with any struct that is given
        return "`${name}_init`" in code
    noun, _, verb = call.rpartition("_")
    if verb == "free":
        return f'super("{noun}", handle)' in code and "`${kind}_free`" in code
    return (
        f'"{call}"' in code
        or re.search(rf"\b(native\(\)|library|loaded)\.{call}\(", code) is not None
    )


def by_its_field(call: str, code: str) -> bool:
    """In Go a call is a field of api; defaults are those that the header tells, written in Go."""
    if call.endswith("_params_init"):
        return f"func New{pascal(call.removesuffix('_init'))}()" in code
    return re.search(rf"\bapi\.{field_name(call)}\b", code) is not None


ALL = [
    Binding("cpp", ("cow_mlx.hpp", "cow_mlx/*.hpp"), by_its_name),
    Binding("rust", ("cowmlx/src/**/*.rs",), by_its_name),
    Binding("swift", ("Sources/CowMLX/**/*.swift",), by_its_member, SWIFT),
    Binding(
        "go",
        ("*.go",),
        by_its_field,
        {"status_name": "the map statusNames has the names", **DLPACK},
    ),
    Binding("java", ("src/*/java/cowmlx/*.java",), by_its_name, JAVA),
    Binding("elixir", ("c_src/*.c", "c_src/tables/calls.c"), by_its_member, ELIXIR),
    Binding("node", ("lib/*.js", "lib/generated/*.js"), by_a_text, DLPACK),
]


@pytest.mark.parametrize("binding", ALL, ids=lambda binding: binding.name)
def test_every_call_is_wrapped_or_left_out_with_a_reason(binding):
    code = binding.code()
    missing = [call for call in calls() if not binding.shows(call, code)]
    assert sorted(missing) == sorted(binding.left_out), f"bindings/{binding.name}"
    assert all(binding.left_out.values())


def test_exceptions_of_names_are_of_calls():
    """All other calls have the name that the rule gives."""
    for language, names in own_names.EXCEPTIONS.items():
        assert set(names) <= set(calls())
        assert all(name != own_names.by_rule(call, language) for call, name in names.items())
    assert set(own_names.NOT_MANAGED) == {"error_details", *DLPACK}


def test_all_bindings_are_compared():
    folders = {path.name for path in BINDINGS.iterdir() if any(path.iterdir())}
    assert {binding.name for binding in ALL} == folders


def test_a_call_that_nobody_makes_is_missed():
    for binding in ALL:
        assert not binding.shows("array_sing", binding.code()), binding.name
