"""Programs over the C ABI: inputs and outputs are numpy arrays, or handles of arrays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from ctypes import byref, c_char, c_int32, c_size_t, pointer, sizeof
from typing import Any

import numpy as np

from support import signatures
from support.arrays import owner_of, tensor
from support.library import Library
from support.outputs import Buffer, poisoned

Value = signatures.cow_mlx_value
# bfloat16 travels as its bits, so such an array needs its dtype beside it.
Typed = tuple[np.ndarray, str]


class Programs:
    """The calls of programs; handles are plain integers."""

    def __init__(self, lib: Library) -> None:
        self.lib = lib
        self.c = lib.c

    def create(self, program: dict[str, Any] | str | bytes) -> int:
        """Make a program; a text is taken as it is."""
        text = _text(program)
        out = poisoned(c_int32)
        self.lib.check(self.c.cow_mlx_program_create(text, len(text), None, byref(out)), out)
        return out.value

    def load(self, path: object, fixed: dict[str, Any] | None = None) -> int:
        """Make the program of a file."""
        out = poisoned(c_int32)
        given = {} if fixed is None else {"fixed": json.dumps(fixed)}
        params = self.lib.params("program", **given)
        status = self.c.cow_mlx_program_load(
            str(path).encode(), params and byref(params), byref(out)
        )
        self.lib.check(status, out)
        return out.value

    def derive(self, program: int, spec: dict[str, Any] | str | None = None, **more: Any) -> int:
        """Make a program of another."""
        text = _text(more if spec is None else spec)
        out = poisoned(c_int32)
        self.lib.check(self.c.cow_mlx_program_derive(program, text, len(text), byref(out)), out)
        return out.value

    def run(
        self,
        program: int,
        inputs: Sequence[np.ndarray | Typed | int],
        outputs: Sequence[np.ndarray | Typed | None] | int = 1,
        **params: Any,
    ) -> list[int | None]:
        """Run a program; fail if a run that fails has written an output.

        Args:
            program: its handle.
            inputs: numpy arrays, in whatever layout, alone or with their dtype, and handles.
            outputs: numpy arrays to be filled, and None for new handles; a number for so many.
            params: of ``cow_mlx_run_params``; ``donate`` is a list.

        Returns:
            the new handles, None for each numpy array.
        """
        wanted = [None] * outputs if isinstance(outputs, int) else outputs
        given = values(inputs)
        results = values(wanted)
        owners = [
            owner_of(each[0] if isinstance(each, tuple) else each)
            for each in wanted
            if each is not None
        ]
        before = [owner.tobytes() for owner in owners]
        status = self.c.cow_mlx_program_run(
            program, given, len(inputs), results, len(wanted), self._params(params)
        )
        handles = [results[index].array for index in range(len(wanted))]
        if status < 0:
            assert not any(handles), "a run that failed has given handles"
            assert [owner.tobytes() for owner in owners] == before, "and written memory"
        self.lib.check(status)
        return [handle or None for handle in handles]

    def _params(self, params: dict[str, Any]) -> Any:
        if not params:
            return None
        made = signatures.cow_mlx_run_params()
        self.c.cow_mlx_run_params_init(byref(made), sizeof(made))
        for name, value in params.items():
            if name == "donate":
                made.donate_count = len(value)
                value = (c_int32 * max(len(value), 1))(*value)
            setattr(made, name, value)
        return byref(made)

    def info(self, program: int, **dimensions: int) -> dict[str, Any]:
        """What is known of a program, and of a run for dimensions."""
        given = json.dumps(dimensions).encode() if dimensions else None
        size = c_size_t()
        self.lib.check(self.c.cow_mlx_program_info(program, given, None, 0, byref(size)))
        out = Buffer(c_char, size.value + 64)  # longest_turn may change
        self.lib.check(self.c.cow_mlx_program_info(program, given, *out.arguments()))
        return json.loads(bytes(out.value()))

    def operations(self) -> list[dict[str, Any]]:
        """The table of operations."""
        size = c_size_t()
        self.lib.check(self.c.cow_mlx_operations_info(None, 0, byref(size)))
        out = Buffer(c_char, size.value)
        self.lib.check(self.c.cow_mlx_operations_info(*out.arguments()))
        return json.loads(bytes(out.value()))

    def cancel(self, program: int) -> int:
        """Cancel what runs; returns the status."""
        return self.c.cow_mlx_program_cancel(program)

    def free(self, program: int) -> None:
        """Free a program."""
        self.lib.check(self.c.cow_mlx_program_free(program))


def values(all_of_them: Sequence[np.ndarray | Typed | int | None]) -> Any:
    """Describe values for a run; nothing of numpy's is copied."""
    made = (Value * max(len(all_of_them), 1))()
    kept = []
    for index, value in enumerate(all_of_them):
        if isinstance(value, np.ndarray | tuple):
            kept.append(tensor(*value) if isinstance(value, tuple) else tensor(value))
            made[index].host = pointer(kept[-1])
        elif value is not None:
            made[index].array = value
    made.kept = kept  # a ctypes array keeps only pointers
    return made


def _text(program: dict[str, Any] | str | bytes) -> bytes:
    if isinstance(program, bytes):
        return program
    return (program if isinstance(program, str) else json.dumps(program)).encode()
