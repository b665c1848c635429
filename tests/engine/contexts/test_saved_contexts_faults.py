"""Saving and loading when something goes wrong: damaged files, kills, cancels, full disks."""

from __future__ import annotations

import fcntl
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading

import pytest
from driver import KINDS, delivered, greedy, opened, prompt
from support import in_process
from support.in_process import Call
from support.library import Library, StatusError
from support.paths import ROOT
from support.signatures import ECANCELED, ECONTEXT, EFORMAT, EHANDLE, EIO, OK
from xxhash import xxh3_64_intdigest

from cowmlx.cache import disk, disk_reader
from cowmlx.errors import BadFormat, BadState, Canceled
from cowmlx.folders import own_files
from cowmlx.generated.defaults import CONTEXT
from cowmlx.generated.defaults import GENERATION as DEFAULTS

START, OTHER = prompt(20), prompt(25, seed=3)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "context.safetensors"


def save(lib, model, path, tokens=START, **params):
    with opened(lib, model, **params) as context:
        lib.begin(context, tokens, max_tokens=0)
        lib.save(context, path)


def status_of(call, *arguments):
    try:
        call(*arguments)
    except StatusError as error:
        return error.status
    return OK


@pytest.fixture
def untouched(lib, tiny, oracle):
    """A context that holds its own tokens, and must still do so in the end."""
    with opened(lib, tiny("llama")) as context:
        lib.begin(context, OTHER, max_tokens=0)
        yield context
        assert lib.tokens(context) == OTHER
        assert greedy(lib, context, [*OTHER, 11]) == oracle("llama").after([*OTHER, 11])
        assert lib.info(context)["reused"] == len(OTHER)


# ------------------------------------------------------------------ Damaged files


def test_truncated_anywhere(lib, tiny, untouched, file):
    save(lib, tiny("llama"), file)
    content = file.read_bytes()
    lengths = {0, 1, 7, 8, 9, len(content) - 1, len(content) - 8, len(content) - 9}
    for length in sorted(lengths | set(range(0, len(content), 997))):
        file.write_bytes(content[:length])
        assert status_of(lib.restore, untouched, file) == EFORMAT, length
    file.write_bytes(content + b"\0")
    assert status_of(lib.restore, untouched, file) == EFORMAT


def test_a_bit_flipped_anywhere(lib, tiny, untouched, file):
    save(lib, tiny("llama"), file)
    content = file.read_bytes()
    header = 8 + int.from_bytes(content[:8], "little")
    places = [*range(0, header, 7), *range(header, len(content), 811), *range(-8, 0)]
    draw = random.Random(0)
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= 1 << draw.randrange(8)
        file.write_bytes(damaged)
        assert status_of(lib.restore, untouched, file) == EFORMAT, place


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**31, 10**8, 4000])
def test_absurd_header_lengths(lib, untouched, file, length):
    file.write_bytes(length.to_bytes(8, "little") + b"{}" * 1000)
    assert status_of(lib.restore, untouched, file) == EFORMAT


def test_a_large_file_of_nothing(lib, untouched, file):
    """Sparse: nobody reads all of it before its header is understood."""
    with file.open("wb") as opened_file:
        opened_file.write((2**30).to_bytes(8, "little"))
        opened_file.truncate(2**40)
    assert status_of(lib.restore, untouched, file) == EFORMAT


# --------------------------------------------------- Wrong files with right checksums


class Forged:
    """A saved file taken apart; written again, its checksums are right.

    Attributes:
        metadata, entries: of its header; the offsets are those it has.
        data: all bytes behind the header but for the checksums.
    """

    def __init__(self, content: bytes):
        length = int.from_bytes(content[:8], "little")
        self.entries = json.loads(content[8 : 8 + length])
        self.metadata = self.entries.pop("__metadata__")
        self.data = bytearray(content[8 + length : -16])

    def bytes(self) -> bytes:
        text = json.dumps({"__metadata__": self.metadata, **self.entries}).encode()
        return sealed(text, bytes(self.data))

    @property
    def scalars(self):
        return json.loads(self.metadata["scalars"])

    def set_scalar(self, path, value):
        self.metadata["scalars"] = json.dumps({**self.scalars, path: value})


def sealed(header: bytes, data: bytes) -> bytes:
    start = len(header).to_bytes(8, "little") + header
    sums = xxh3_64_intdigest(start), xxh3_64_intdigest(start + data)
    return start + data + b"".join(value.to_bytes(8, "little") for value in sums)


def entry(name, key, value):
    return lambda forged: forged.entries[name].update({key: value})


def metadata(key, value):
    return lambda forged: forged.metadata.update({key: value})


def moved(forged):
    """Two arrays of the same bytes."""
    spans = [forged.entries[f"layers.0.{index}"]["data_offsets"] for index in (0, 1)]
    spans[1][:] = spans[0]


def renamed(old, new):
    return lambda forged: forged.entries.update({new: forged.entries.pop(old)})


def first_token(value):
    def change(forged):
        forged.data[:4] = value.to_bytes(4, "little", signed=True)

    return change


def without_a_scalar(forged):
    forged.metadata["scalars"] = json.dumps(dict(list(forged.scalars.items())[1:]))


FORGERIES = {
    "nothing but the checksums": lambda forged: None,
    "another version": metadata("version", "2"),
    "no version": lambda forged: forged.metadata.pop("version"),
    "another format": metadata("format", "mlx"),
    "metadata that is no text": metadata("tokens", 20),
    "no metadata": lambda forged: forged.metadata.clear(),
    "no key": lambda forged: forged.metadata.pop("model"),
    "fewer tokens said": metadata("tokens", "19"),
    "tokens that are no number": metadata("tokens", "many"),
    "layers of another class": metadata("layers", '["RotatingKVCache", "KVCache", "KVCache"]'),
    "a layer less": metadata("layers", '["KVCache", "KVCache"]'),
    "layers that are no JSON": metadata("layers", "["),
    "layers without end": metadata("layers", "[" * 100_000),
    "scalars that are no JSON": metadata("scalars", ""),
    "scalars that are no object": metadata("scalars", "[]"),
    "a scalar too many": lambda forged: forged.set_scalar("0.7", 1),
    "a scalar that is an array": lambda forged: forged.set_scalar("0.0", 1),
    "a scalar too few": without_a_scalar,
    "a negative offset": entry("tokens", "data_offsets", [-8, 80]),
    "an offset behind the end": entry("tokens", "data_offsets", [2**40, 2**40 + 80]),
    "offsets backwards": entry("tokens", "data_offsets", [80, 0]),
    "an offset that is no number": entry("tokens", "data_offsets", [0, "80"]),
    "three offsets": entry("tokens", "data_offsets", [0, 80, 80]),
    "arrays that overlap": moved,
    "a gap": lambda forged: forged.entries.pop("layers.1.0"),
    "a negative size": entry("layers.0.0", "shape", [1, -2, -20, 16]),
    "an enormous size": entry("layers.0.0", "shape", [1, 2**62, 2**62, 16]),
    "a size of thousands of digits": entry("layers.0.0", "shape", [10**4000, 10**4000]),
    "no size": entry("layers.0.0", "shape", None),
    "other axes": entry("layers.0.0", "shape", [2, 1, 20, 16]),
    "an axis less": entry("layers.0.0", "shape", [1, 40, 16]),
    "an axis too many": entry("layers.0.0", "shape", [1, 1, 2, 20, 16]),
    "fewer tokens in wider heads": entry("layers.0.0", "shape", [1, 2, 10, 32]),
    "another type": entry("layers.0.0", "dtype", "I32"),
    "a type of another library": entry("layers.0.0", "dtype", "F8_E4M3"),
    "tokens of another type": entry("tokens", "dtype", "F32"),
    "tokens in two axes": entry("tokens", "shape", [4, 5]),
    "no tokens": renamed("tokens", "layers.9.9"),
    "an array of no layer": renamed("layers.0.0", "weights"),
    "an array of another layer": renamed("layers.0.0", "layers.5.0"),
    "no checksum": lambda forged: forged.entries.pop("xxh3_64"),
    "a checksum that is not the last": lambda forged: (
        renamed("tokens", "x")(forged),
        renamed("xxh3_64", "tokens")(forged),
        renamed("x", "xxh3_64")(forged),
    ),
    "a negative token": first_token(-1),
    "a token outside the vocabulary": first_token(10**6),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged(lib, tiny, file, untouched, name):
    save(lib, tiny("llama"), file)
    forged = Forged(file.read_bytes())
    FORGERIES[name](forged)
    file.write_bytes(forged.bytes())
    if name != "nothing but the checksums":
        assert status_of(lib.restore, untouched, file) == EFORMAT, lib.message()
    else:
        with opened(lib, tiny("llama")) as context:
            lib.restore(context, file)


@pytest.mark.parametrize(
    "header", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"a": 1}', b"[" * 10**6, b"{}"]
)
def test_headers_that_are_none(lib, untouched, file, header):
    file.write_bytes(sealed(header, b""))
    assert status_of(lib.restore, untouched, file) == EFORMAT


def test_an_empty_array_has_sides_of_mlx(file):
    entries = {"a": {"dtype": "F32", "shape": [0, 2**31], "data_offsets": [0, 0]}}
    entries[disk.CHECKSUM] = {"dtype": "U64", "shape": [2], "data_offsets": [0, 16]}
    said = {"format": disk.FORMAT, "version": disk.VERSION}
    file.write_bytes(sealed(json.dumps({"__metadata__": said, **entries}).encode(), b""))
    with pytest.raises(BadFormat, match="'a' has the shape"):
        disk_reader.Reader(str(file))


def test_a_file_of_mlx(lib, untouched, folder):
    path = folder("llama") / "model.safetensors"
    assert status_of(lib.restore, untouched, path) == EFORMAT


@pytest.mark.parametrize("kind", [*KINDS, "gpt_oss", "llama-wide"])
@pytest.mark.parametrize("length", [5, 20])
def test_scalars_that_cannot_be(lib, tiny, open_context, file, kind, length):
    """Each, in every kind of cache, before and after its window is full."""
    params = {"kv_bits": 8} if kind == "llama-wide" else {}
    context = open_context(tiny(kind), **params)
    save(lib, tiny(kind), file, prompt(length), **params)
    content = file.read_bytes()
    for path, value in Forged(content).scalars.items():
        wrong = [-1, 2**40, 10**30, "x", 1.5, True, [], {}]
        wrong += [0] if value is None else [None, value + 0.0, str(value), -value - 1, 10**6]
        for other in wrong:
            forged = Forged(content)
            forged.set_scalar(path, other)
            file.write_bytes(forged.bytes())
            assert status_of(lib.restore, context, file) == EFORMAT, (path, value, other)
    assert lib.tokens(context) == []


@pytest.mark.parametrize("kind", KINDS)
def test_headers_changed_at_random(lib, tiny, open_context, file, kind):
    """Digits are, so that much stays well-formed; what is let through does no harm."""
    context = open_context(tiny(kind))
    save(lib, tiny(kind), file)
    content = file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + length], content[8 + length : -16]
    digits = [place for place, byte in enumerate(header) if chr(byte).isdigit()]
    draw = random.Random(kind)
    for _ in range(150):
        changed = bytearray(header)
        changed[draw.choice(digits)] = ord(draw.choice("0123456789-e., "))
        file.write_bytes(sealed(bytes(changed), data))
        status = status_of(lib.restore, context, file)
        assert status in (OK, EFORMAT, ECONTEXT), lib.message()
        if status == OK:
            assert len(greedy(lib, context, [*START, 11], 2)) == 2
            lib.reset(context)


# ------------------------------------------------------------------- Full disks


def test_a_disk_that_is_full(lib, tiny, open_context, file):
    """A limit on the size of files stands for it."""
    save(lib, tiny("llama"), file)
    old = file.read_bytes()
    context = open_context(tiny("llama"))
    lib.begin(context, prompt(200), max_tokens=0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(old), limits[1]))
    try:
        status = status_of(lib.save, context, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert status == EIO
    assert str(file) in lib.message()
    assert file.read_bytes() == old
    assert os.listdir(file.parent) == [file.name]
    lib.save(context, file)


@pytest.mark.parametrize("name", ["write", "fsync", "replace"])
def test_a_disk_that_fails(lib, tiny, open_context, file, monkeypatch, name):
    save(lib, tiny("llama"), file)
    old = file.read_bytes()
    context = open_context(tiny("llama"))
    lib.begin(context, OTHER, max_tokens=0)

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, name, fail)
    status = status_of(lib.save, context, file)
    monkeypatch.undo()
    assert status == EIO
    assert "No space left" in lib.message()
    assert file.read_bytes() == old
    assert os.listdir(file.parent) == [file.name]


def test_a_file_that_shrinks_while_it_is_read(lib, tiny, untouched, file, monkeypatch):
    save(lib, tiny("llama"), file)
    read = disk_reader.Reader.read

    def shrink(reader):
        os.truncate(file, 5000)
        return (yield from read(reader))

    monkeypatch.setattr(disk_reader.Reader, "read", shrink)
    assert status_of(lib.restore, untouched, file) == EFORMAT


# ---------------------------------------------------------------- Killed processes

# Saves a context; the process is killed at the Nth call of a function of the system.
KILLED = """
import os, signal, sys
from support.library import Library

model, path, name, count, length = sys.argv[1:]
lib = Library()
lib.start()
context = lib.context(lib.load(model))
lib.begin(context, [20 + i for i in range(int(length))], max_tokens=0)
real, calls = getattr(os, name), iter(range(int(count), -10**6, -1))

def killing(*arguments, **options):
    left = next(calls)
    if left == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    done = real(*arguments, **options)
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return done

setattr(os, name, killing)
lib.save(context, path)
print("saved", flush=True)
os._exit(0)
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}


@pytest.mark.parametrize(
    "name, count, new",
    [
        ("write", 1, False),
        ("write", 4, False),
        ("fsync", 1, False),
        ("replace", 1, False),
        ("replace", 0, True),
        ("fsync", 2, True),
    ],
)
def test_killed_while_saving(lib, tiny, folder, open_context, file, name, count, new):
    """Before the Nth call, or after the first (0): the old file or the new one is there."""
    save(lib, tiny("llama"), file)
    arguments = [folder("llama"), file, name, str(count), "30"]
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    context = open_context(tiny("llama"))
    lib.restore(context, file)
    assert len(lib.tokens(context)) == (30 if new else len(START))
    lib.save(context, file)
    assert os.listdir(file.parent) == [file.name]  # what the killed process left is swept


def test_what_others_are_writing_is_not_swept(lib, tiny, file):
    descriptor, path = own_files.create_partial(str(file.parent))
    try:
        save(lib, tiny("llama"), file)
        assert os.path.exists(path)
    finally:
        os.close(descriptor)
    save(lib, tiny("llama"), file)
    assert os.listdir(file.parent) == [file.name]


def test_a_file_swept_before_it_is_locked_is_made_again(file, monkeypatch):
    """The sweep of another process may come between making and locking."""
    lock, swept = fcntl.flock, []

    def sweep_first(descriptor, how):
        if not swept:
            swept.extend(os.listdir(file.parent))
            for _ in own_files.sweep(str(file.parent)):
                pass
        return lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    descriptor, path = own_files.create_partial(str(file.parent))
    os.close(descriptor)
    assert len(swept) == 1
    assert os.listdir(file.parent) == [os.path.basename(path)] != swept


LOOP = """
import sys
from support.library import Library

lib = Library()
lib.start()
model = lib.load(sys.argv[1])
contexts = [lib.context(model) for _ in range(2)]
for context, length in zip(contexts, (200, 300)):
    lib.begin(context, [20 + i % 200 for i in range(length)], max_tokens=0)
while True:
    for context in contexts:
        lib.save(context, sys.argv[2])
        print("saved", flush=True)
"""


def test_killed_at_any_moment(lib, tiny, folder, open_context, file):
    for lines in (1, 8, 9):
        with subprocess.Popen(
            [sys.executable, "-c", LOOP, folder("llama"), file],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
        ) as process:
            for _ in range(lines):
                assert process.stdout.readline() == b"saved\n"
            process.kill()
        context = open_context(tiny("llama"))
        lib.restore(context, file)
        assert len(lib.tokens(context)) in (200, 300)


# ------------------------------------------------- Cancelled, freed, side by side


def test_cancelled_while_saving(lib, tiny, oracle, open_context, file, monkeypatch):
    save(lib, tiny("llama"), file)
    old = file.read_bytes()
    context = open_context(tiny("llama"))
    lib.begin(context, OTHER, max_tokens=0)
    write = os.write

    def cancel_and_write(*arguments):
        lib.cancel(context)
        return write(*arguments)

    monkeypatch.setattr(os, "write", cancel_and_write)
    assert status_of(lib.save, context, file) == ECANCELED
    monkeypatch.undo()
    assert file.read_bytes() == old
    assert os.listdir(file.parent) == [file.name]
    assert greedy(lib, context, [*OTHER, 11]) == oracle("llama").after([*OTHER, 11])
    lib.save(context, file)


def test_cancelled_while_loading(lib, tiny, untouched, file, monkeypatch):
    save(lib, tiny("llama"), file)
    read = disk_reader.Reader.read

    def cancel_and_read(reader):
        lib.cancel(untouched)
        return (yield from read(reader))

    before = len(os.listdir("/dev/fd"))
    monkeypatch.setattr(disk_reader.Reader, "read", cancel_and_read)
    assert status_of(lib.restore, untouched, file) == ECANCELED
    assert len(os.listdir("/dev/fd")) == before


def test_a_cancel_before_changes_nothing(lib, tiny, open_context, file):
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=0)
    lib.cancel(context)
    lib.save(context, file)
    lib.cancel(context)
    lib.restore(context, file)
    assert lib.tokens(context) == START


@pytest.mark.parametrize("way", ["save", "restore"])
def test_freed_meanwhile(lib, tiny, open_context, file, monkeypatch, way):
    """Whichever comes first: the call ends, and nothing is left behind."""
    monkeypatch.setattr(disk, "PIECE", 64)
    monkeypatch.setattr(disk_reader, "PIECE", 64)
    save(lib, tiny("llama"), file)
    before = len(os.listdir("/dev/fd"))
    for _ in range(5):
        context = lib.context(tiny("llama"))
        lib.begin(context, OTHER, max_tokens=0)
        ready = threading.Barrier(2)

        def free(context=context, ready=ready):
            ready.wait()
            lib.free(context)

        thread = threading.Thread(target=free)
        thread.start()
        ready.wait()
        assert status_of(getattr(lib, way), context, file) in (OK, ECANCELED, EHANDLE)
        thread.join()
        assert os.listdir(file.parent) == [file.name]
        lib.restore(open_context(tiny("llama")), file)
    assert len(os.listdir("/dev/fd")) == before


def test_others_generate_meanwhile(lib: Library, tiny, oracle, open_context, file, monkeypatch):
    """While one context is saved and loaded again and again."""
    monkeypatch.setattr(disk, "PIECE", 1000)
    monkeypatch.setattr(disk_reader, "PIECE", 1000)
    saved, busy = open_context(tiny("llama")), open_context(tiny("llama"))
    lib.begin(saved, prompt(200), max_tokens=0)
    generated = []

    def generate():
        lib.begin(busy, START, max_tokens=16)
        generated.extend(delivered(lib.drain(busy)))

    thread = threading.Thread(target=generate)
    thread.start()
    while thread.is_alive():
        lib.save(saved, file)
        lib.restore(saved, file)
    thread.join()
    assert generated == oracle("llama").after(START)
    tokens = [*prompt(200), 11]
    assert greedy(lib, saved, tokens) == oracle("llama").after(tokens)


class Saver(Call):
    """A host that saves and loads; a call ends once."""

    def __init__(self):
        super().__init__()
        self.ended = None

    def succeed(self, result=None):
        assert self.ended is None
        self.ended = result or "well"

    def fail(self, error):
        self.succeed(error)


@pytest.fixture
def engine(monkeypatch):
    """An engine whose steps a test takes one by one; a save or load takes hundreds."""
    monkeypatch.setattr(disk, "PIECE", 64)
    monkeypatch.setattr(disk_reader, "PIECE", 64)
    with in_process.started() as engine:
        yield engine


@pytest.fixture
def model(engine, folder):
    return in_process.loaded(engine, folder("llama"), prefix_cache_bytes=0)


def engine_context(engine, model):
    return engine.context_create(model, {**CONTEXT, "share_prefix": False})


def engine_generate(engine, context, tokens, count):
    call = Saver()
    engine.context_generate(call, context, tokens, {**DEFAULTS, "max_tokens": count})
    return call


@pytest.fixture
def held(engine, model):
    """A context that holds something."""
    context = engine_context(engine, model)
    engine_generate(engine, context, START, 4)
    while engine.step():
        pass
    return context


@pytest.fixture
def under_way(engine, held, file):
    """Starts a save or a load, and takes some of its steps."""

    def under_way(way):
        if way == "context_load":
            engine.context_save(Saver(), held, str(file))
            while engine.step():
                pass
        call = Saver()
        getattr(engine, way)(call, held, str(file))
        for _ in range(40):
            engine.step()
        assert call.ended is None
        return call

    return under_way


ways = pytest.mark.parametrize("way", ["context_save", "context_load"])


@ways
def test_others_have_their_turns(engine, model, under_way, way):
    call = under_way(way)
    generation = engine_generate(engine, engine_context(engine, model), START, 5)
    while generation.ended is None:
        engine.step()
    assert call.ended is None, "a generation need not wait for a save or a load"
    while engine.step():
        pass
    assert call.ended == "well"


@ways
@pytest.mark.parametrize("end", ["context_free", "stop"])
def test_freed_or_stopped_under_way(engine, held, under_way, file, way, end):
    before = len(os.listdir("/dev/fd"))
    call = under_way(way)
    getattr(engine, end)(*([held] if end == "context_free" else []))
    assert isinstance(call.ended, Canceled)
    assert len(os.listdir("/dev/fd")) == before
    assert os.listdir(file.parent) == ([file.name] if way == "context_load" else [])
    while engine.step():
        pass


@ways
def test_a_context_lets_nobody_in_meanwhile(engine, held, under_way, file, way):
    call = under_way(way)
    tokens = engine.context_tokens(held)
    for other in (
        lambda: engine.context_save(Saver(), held, str(file)),
        lambda: engine.context_load(Saver(), held, str(file)),
        lambda: engine.context_next(Saver(), held),
        lambda: engine_generate(engine, held, START, 1),
        lambda: engine.context_reset(held),
        lambda: engine.context_fork(held),
    ):
        with pytest.raises(BadState):
            other()
    assert engine.context_tokens(held) == tokens
    while engine.step():
        pass
    assert call.ended == "well"
    engine.context_reset(held)


@ways
def test_a_fault_ends_its_call_alone(engine, held, under_way, monkeypatch, way):
    call = under_way(way)
    monkeypatch.setattr(disk, "put", None)
    monkeypatch.setattr(disk_reader.Reader, "_fill", None)
    while engine.step():
        pass
    assert isinstance(call.ended, TypeError)
    assert len(engine.context_tokens(held)) == len(START) + 3
    assert engine_generate(engine, held, START, 1).ended is None
