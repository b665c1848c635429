"""A call of any function, with right arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from support.arguments import PROMPT, Call
from support.library import Library


@pytest.fixture
def call_of(lib: Library, calf: int) -> Iterator[Callable[[str], Call]]:
    """Makes a call of a function, on a context where a generation has begun."""
    context = lib.context(calf)
    lib.begin(context, PROMPT, max_tokens=32)
    yield lambda function: Call(lib, function, calf, context)
    lib.free(context)
