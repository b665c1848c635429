"""COW_MLX_NULLABLE, _DEFAULT and _ONE_OF in the header agree with its comments."""

from __future__ import annotations

import re

import pytest

from tools.bindings import header_comments, hosts
from tools.bindings.generate import PUBLIC
from tools.bindings.header import Struct, read_headers

[HEADER] = read_headers([PUBLIC])
ENTRIES = {
    entry.names[0]: entry
    for section in header_comments.read(PUBLIC).sections
    for entry in section.entries
}
# _init sets these where no annotation says otherwise: 0, NULL, false and the constants that are 0.
ZERO = {"0", "NULL", "none", "false", "DEFAULT", "AUTO", "STOP", "MEAN", "AFFINE"}


@pytest.mark.parametrize("function", HEADER.functions, ids=lambda function: function.name)
def test_a_parameter_is_nullable_if_its_comment_says_so(function):
    said = dict(ENTRIES[function.name].comment.params)
    for name, type_ in function.signature.params:
        if name in said and name != "params":
            assert type_.nullable == ("NULL" in said[name]), name
        elif name == "params":
            assert type_.nullable or "NULL" not in said[name]
        else:
            assert not type_.nullable, f"{name}: @param must say that it may be NULL"


@pytest.mark.parametrize(
    "struct",
    [d for d in HEADER.declarations if isinstance(d, Struct) and d.name.endswith("_params")],
    ids=lambda struct: struct.name,
)
def test_a_comment_tells_no_default_of_its_own(struct):
    """One other than 0 is in the annotation, from which readers of the comment get it."""
    for name, _, text in ENTRIES[struct.name].rows:
        told = re.findall(r"(\S+) \(default\)", text) + re.findall(r"\bdefault ([\w.-]+\w)", text)
        default = struct.defaults.get(name, "NULL")
        wanted = ZERO if default == "NULL" else {header_comments.spoken(default).split()[0]}
        if default.isdecimal() and int(default) >> 20:
            wanted |= {str(int(default) >> 20)}  # which comments have in MiB
        assert set(told) <= wanted, f"{name}: {text}"


def test_members_are_one_of_the_constants_that_their_comments_name():
    for layout in hosts.layouts(HEADER):
        for member in layout.members:
            named = re.search(r"\bone of COW_MLX_(\w+)_(?=\W|$)", member.about)
            if named:
                assert member.enumeration == named[1], f"{layout.name}.{member.name}"
