"""What ``cow_mlx_error_details`` gives, checked against the header and the message."""

from __future__ import annotations

import json
from ctypes import CDLL, byref, c_size_t, create_string_buffer
from typing import Any

from support.signatures import OK, REASONS

# Said in another unit, or in other words.
TOLD_OTHERWISE = {("no_memory", "needed"), ("no_memory", "available"), ("no_threads", "needed")}

# What errors of programs and of their operations may have with any reason, as base.h says.
OF_PROGRAMS = {"argument", "value", "accepted", "needed", "limit", "available"}
OF_PROGRAMS |= {"node", "op", "function", "shapes", "dtypes", "position", "steps", "problems"}
# Of these: counted, and said one by one; or said in other words.
REWORDED = {"problems", "accepted", "shapes", "dtypes"}


def read(library: CDLL) -> Any:
    """The JSON object of this thread's last failed call."""
    length = c_size_t()
    assert library.cow_mlx_error_details(None, 0, byref(length)) == OK
    buffer = create_string_buffer(length.value + 1)
    assert library.cow_mlx_error_details(buffer, length.value + 1, byref(length)) == OK
    return json.loads(buffer.raw[: length.value].decode())


def agreed(found: Any, message: str) -> Any:
    """A failed call as data, which must be as the header says and agree with the message."""
    assert set(found) == {"operation", "reason", "details"}, (found, message)
    assert message.startswith(found["operation"] + ": "), (found, message)
    reason = found["reason"]
    assert reason in REASONS, found
    for key, value in found["details"].items():
        known = key in REASONS[reason] or key in _of_programs(found["operation"])
        assert known, (found, message)
        assert isinstance(value, str | int | float), found
        is_told = key not in _of_programs(found["operation"]) & REWORDED
        if is_told and (reason, key) not in TOLD_OTHERWISE and len(message) < 2000:
            # Messages have what cannot be printed as Python writes it.
            forms = {str(value), repr(str(value))[1:-1]}
            if isinstance(value, float):
                forms.add(f"{value:g}")
            assert any(form in message for form in forms), (key, found, message)
    return found


def _of_programs(operation: str) -> set[str]:
    is_one = operation.startswith(("program_", "array", "training_"))
    return OF_PROGRAMS if is_one else set()
