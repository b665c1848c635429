"""Arguments for any function of the headers, made from its signature.

Tests that must not forget a function go through ``signatures.FUNCTIONS`` and
replace one argument of a call that is otherwise right. A parameter of a new
name gets a value by its role; one whose role tells none fails here.
"""

from __future__ import annotations

import struct
import tempfile
from ctypes import (
    _CFuncPtr,
    _Pointer,
    byref,
    c_char_p,
    c_int32,
    c_int64,
    c_void_p,
    cast,
    pointer,
    sizeof,
)
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from support import details, dlpack, signatures
from support.library import SILENT, Library
from support.outputs import poisoned, poisoned_struct, untouched
from support.paths import CALF
from tools.bindings import calls
from tools.bindings.calls import Role
from tools.bindings.generate import PUBLIC
from tools.bindings.header import read_headers

CAPACITY = 1 << 19
PROMPT = [1, 2, 3]
WIDTH = 128  # of a row of embeddings of models/calf

PLAIN = {
    "add_special": False,
    "channels": 1,
    "detail": 0,
    "flags": 0,
    "height": 1,
    "id": 0,
    "kv_bits": 0,
    "max_tokens": 0,
    "min_p": 0.0,
    "repeat_penalty": 0.0,
    "repeat_window": 0,
    "scale": 1.0,
    "stride": 1,
    "width": 1,
    "seed": 0,
    "status": 0,
    "temperature": 0.0,
    "timeout_ms": 0,
    "token": 1,
    "top_k": 0,
    "top_p": 0.0,
    "user_data": None,
}
# Doubles an array like that of tensor().
PROGRAM = (
    b'{"inputs": [{"name": "x", "dtype": "int32", "shape": [2, 3]}], '
    b'"nodes": [{"name": "y", "op": "add", "inputs": ["x", "x"]}], "outputs": ["y"]}'
)
# Has a loss of an array like that of tensor().
TRAINABLE = (
    b'{"inputs": [{"name": "x", "dtype": "int32", "shape": ["rows", 3]}], '
    b'"parameters": [{"name": "w", "dtype": "float32", "shape": [3], "init": "ones"}], '
    b'"nodes": [{"name": "f", "op": "astype", "inputs": ["x"], '
    b'"attributes": {"dtype": "float32"}}, {"name": "p", "op": "multiply", "inputs": ["f", "w"]}, '
    b'{"name": "loss", "op": "mean", "inputs": ["p"]}], "outputs": ["loss"]}'
)
TEXTS = {
    "path": bytes(CALF),
    "text": b"Hello",
    "messages_json": b'[{"role": "user", "content": "Hello"}]',
    "options_json": b"{}",
    "json": PROGRAM,
    "name": b"w",
    "folder": b"/nowhere",
    "spec_json": b'{"vectorize": {"x": 0}}',
    "dimensions": b"{}",
    "fixed": b"{}",
    "operation": b"negative",
    "attributes_json": b"{}",
    "query": b"Hello",
}
# A file of one white pixel.
BMP = b"BM" + struct.pack("<IIIIiiHHIIiiII", 58, 0, 54, 40, 1, 1, 1, 24, 0, 4, 0, 0, 0, 0)
BMP += b"\xff\xff\xff\0"
OUTPUTS = {"out", "trimmed", "length", "count", "dims", "labels", "piece", "stats"}
OUTPUTS |= {"dtype", "rank", "data", "layout", "arrays", "event"}
HANDLES = ("model", "context", "adapter", "checkpoint", "array", "program", "training", "media")

# What has to be called after a call that went well, by the handle it gave.
UNDO = {
    "cow_mlx_runtime_start": "cow_mlx_runtime_stop",
    "cow_mlx_init": "cow_mlx_shutdown",
    "cow_mlx_model_load": "cow_mlx_model_free",
    "cow_mlx_model_load_async": "cow_mlx_model_free",
    "cow_mlx_load_model": "cow_mlx_free_model",
    "cow_mlx_context_create": "cow_mlx_context_free",
    "cow_mlx_context_fork": "cow_mlx_context_free",
    "cow_mlx_context_checkpoint": "cow_mlx_checkpoint_free",
    "cow_mlx_context_save_array": "cow_mlx_array_free",
    "cow_mlx_adapter_load": "cow_mlx_adapter_free",
    "cow_mlx_create_context": "cow_mlx_free_context",
    "cow_mlx_media_from_pixels": "cow_mlx_media_free",
    "cow_mlx_media_from_file": "cow_mlx_media_free",
    "cow_mlx_array_create": "cow_mlx_array_free",
    "cow_mlx_program_create": "cow_mlx_program_free",
    "cow_mlx_program_derive": "cow_mlx_program_free",
    "cow_mlx_program_load": "cow_mlx_program_free",
    "cow_mlx_array_from_dlpack": "cow_mlx_array_free",
    "cow_mlx_training_create": "cow_mlx_training_free",
    "cow_mlx_training_create_for_model": "cow_mlx_training_free",
    "cow_mlx_training_adapter": "cow_mlx_adapter_free",
    "cow_mlx_training_parameter": "cow_mlx_array_free",
}

# Calls on a context that continue after they have returned.
GOES_ON = ("cow_mlx_context_begin_async", "cow_mlx_context_chat_async")
FOREVER = 2**32 - 1  # milliseconds

# What the open array of the tests is, and a tensor that reads and writes.
ARRAY_SHAPE = (2, 3)
_memory = (c_int32 * 6)(1, 2, 3, 4, 5, 6)
_shape = (c_int64 * 2)(*ARRAY_SHAPE)


def tensor() -> signatures.cow_mlx_tensor:
    """Memory of the host's for an int32 array of ARRAY_SHAPE."""
    return signatures.cow_mlx_tensor(
        struct_size=sizeof(signatures.cow_mlx_tensor),
        data=cast(_memory, c_void_p),
        bytes=sizeof(_memory),
        dtype=signatures.INT32,
        rank=len(ARRAY_SHAPE),
        shape=_shape,
    )


def is_pointer(kind: Any) -> bool:
    """Whether a parameter of this type can be NULL."""
    return kind in (c_char_p, c_void_p) or issubclass(kind, _Pointer | _CFuncPtr)


def parameters(accept: Any) -> list[tuple[str, str]]:
    """(function, parameter) for every parameter that ``accept(name, type)`` takes."""
    return [
        (function, name)
        for function, (_, params) in signatures.FUNCTIONS.items()
        for name, kind in params
        if accept(name, kind)
    ]


@cache
def program_file() -> bytes:
    """The path of a file with a program."""
    path = Path(tempfile.mkdtemp()) / "program.json"
    path.write_bytes(PROGRAM)
    return bytes(path)


@cache
def roles() -> dict[str, tuple[Role, ...]]:
    """The roles of the parameters of each function."""
    [public] = read_headers([PUBLIC])
    return {call.function.name: call.roles for call in calls.read(public)}


class Call:
    """One function with right arguments, any of which may be replaced.

    Args:
        lib: the library.
        function: its name.
        handles: open handles by the names of parameters.
        path: of what the function reads or writes; a model's folder if not given.

    Attributes:
        outputs: what the call may write, by parameter; poisoned.
    """

    def __init__(
        self, lib: Library, function: str, handles: dict[str, int], path: Path | None = None
    ):
        self.lib = lib
        self.function = function
        self.result, self.params = signatures.FUNCTIONS[function]
        self.handles = handles
        self.row = 0
        places = {} if path is None else dict.fromkeys(("path", "folder"), bytes(path))
        self.texts = {**TEXTS, **places}
        if function == "cow_mlx_program_load":
            self.texts["path"] = program_file()
        self.outputs: dict[str, Any] = {}
        names = [name for name, _ in self.params]
        following = dict(zip(names, [*names[1:], ""], strict=True))
        self.values = {name: self._value(name, kind, following) for name, kind in self.params}

    def __call__(self, **replaced: Any) -> Any:
        """Make the call."""
        values = {**self.values, **replaced}
        for name, kind in self.params:
            if values[name] is None and issubclass(kind, _CFuncPtr):
                values[name] = kind()  # NULL
        return getattr(self.lib.c, self.function)(*values.values())

    def failed(self, result: Any, status: int) -> bool:
        """Whether the last call failed with that status, and a message if it sets one."""
        if self.function not in SILENT:
            if not self.lib.message():
                return False
            found = details.agreed(details.read(self.lib.c), self.lib.message())
            if self.function not in signatures.COMPAT:
                assert found["operation"] == self.function.removeprefix("cow_mlx_")
        if self.function not in signatures.COMPAT:
            return result == status
        return result is None or result is False or result == -1

    def untouched(self, *but: str) -> bool:
        """Whether no output has been written, but perhaps some."""
        return all(untouched(out) for name, out in self.outputs.items() if name not in but)

    def undo(self, result: Any) -> None:
        """Free what a call that went well has made, or end what goes on."""
        if self.function in GOES_ON:
            self.lib.c.cow_mlx_context_cancel(self.handles["context"])
            self.lib.c.cow_mlx_context_poll(self.handles["context"], FOREVER)
        if self.row:
            self.lib.c.cow_mlx_array_free(self.row)
            self.row = 0
        undo = UNDO.get(self.function)
        if undo:
            made = self.outputs["out"].value if "out" in self.outputs else result
            arguments = [made] if signatures.FUNCTIONS[undo][1] else []
            getattr(self.lib.c, undo)(*arguments)

    def _value(self, name: str, kind: Any, following: dict[str, str]) -> Any:
        if name in self.handles:
            return self.handles[name]
        if name in PLAIN:
            return PLAIN[name]
        if name == "capacity":
            return CAPACITY
        if following[name] == "capacity" or following[name] == "logprobs":
            return self._output(name, poisoned(kind._type_ * CAPACITY))
        if name in self.texts:
            return self.texts[name]
        if name in ("texts", "documents"):
            return (signatures.cow_mlx_text * 1)((b"Hello", 5))
        if name == "tokens" and "detail" in dict(self.params):
            return self._output(name, poisoned(kind._type_))
        if name == "tokens":
            has_row = "embeddings" in dict(self.params)
            return (c_int32 * len(PROMPT))(*([-1, *PROMPT[1:]] if has_row else PROMPT))
        if name == "embeddings":
            return self._row()
        if issubclass(kind, _CFuncPtr):
            return kind(lambda *_: True)
        return self._by_name(name, kind)

    def _by_name(self, name: str, kind: Any) -> Any:
        """The value of a parameter whose name says what it takes."""
        if name == "pixels":
            return b"\xff"
        if name == "bytes":
            return BMP
        if name == "size" and "bytes" in dict(self.params):
            return len(BMP)
        if name == "size":
            return sizeof(dict(self.params)["params"]._type_)
        if name == "params":
            return byref(self._params(kind._type_))
        if name in ("from", "to"):
            return byref(tensor())
        if name == "names":
            return (c_char_p * 1)(b"a")
        if name == "arrays" and self.function == "cow_mlx_arrays_save":
            return (c_int64 * 1)(self.handles["array"])
        if name == "managed":
            self.producer = dlpack.Producer(np.arange(6))
            return self.producer.address
        if name in OUTPUTS and issubclass(kind, _Pointer):
            make = poisoned_struct if kind._type_ in signatures.STRUCTS.values() else poisoned
            return self._output(name, make(kind._type_))
        if name == "inputs" and "operation" in dict(self.params):
            return (c_int64 * 1)(self.handles["array"])
        if name in ("inputs", "outputs"):
            return (signatures.cow_mlx_value * 1)((0, pointer(tensor())))
        if name == "output_count":
            return 1
        if name == "positions":
            return (c_int32 * 2)(2, 0)
        if name == "position_count":
            return 2
        if name in ("length", "count"):
            names = [name for name, _ in self.params]
            before = names[names.index(name) - 1]
            return (
                1
                if before in ("context", "texts", "documents", "names", "arrays", "inputs")
                else len(TEXTS.get(before, PROMPT))
            )
        return self._by_role(name, kind)

    def _by_role(self, name: str, kind: Any) -> Any:
        """The value of a parameter with a new name, if its role gives one."""
        for role in roles().get(self.function, ()):
            if name not in role.names:
                continue
            if role.kind == "scalar":
                return 0
            if role.kind in ("string", "text") and name == role.name:
                return b"Hello"
            if role.kind == "tokens" and name == role.name:
                return (c_int32 * len(PROMPT))(*PROMPT)
            if role.is_output:
                return self._output(name, poisoned(kind._type_))
        raise AssertionError(f"{self.function}: give {name} a value in {__file__}")

    def _row(self) -> int:
        """A handle of a row of embeddings of the model that tests use."""
        shape, strides = (c_int64 * 2)(1, WIDTH), (c_int64 * 2)(WIDTH, 1)
        data = np.zeros((1, WIDTH), np.float32)
        described = signatures.cow_mlx_tensor(
            struct_size=sizeof(signatures.cow_mlx_tensor),
            data=data.ctypes.data,
            bytes=data.nbytes,
            dtype=signatures.DTYPES["float32"][0],
            rank=2,
            shape=shape,
            strides=strides,
        )
        out = c_int64()
        self.lib.check(self.lib.c.cow_mlx_array_create(byref(described), byref(out)))
        self.row = out.value
        return self.row

    def _output(self, name: str, output: Any) -> Any:
        self.outputs[name] = output
        return output

    def _params(self, struct: Any) -> Any:
        params = struct()
        noun = struct.__name__.removeprefix("cow_mlx_")
        getattr(self.lib.c, f"cow_mlx_{noun}_init")(byref(params), sizeof(params))
        if noun == "rank_params":
            params.prompt, params.yes, params.no = b"{query}{document}", b"a", b"b"
        if noun == "fit_params":
            params.inputs, params.inputs_count = (c_int64 * 1)(self.handles["array"]), 1
            params.steps = 1 if self.function == "cow_mlx_training_fit" else 0
        return params
