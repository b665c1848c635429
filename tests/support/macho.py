"""What a Mach-O file says about itself: names, dependencies, symbols, the oldest macOS for it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

# <mach-o/loader.h>, 64 bits, little endian
MAGIC = 0xFEEDFACF
KINDS = {2: "program", 6: "library", 8: "bundle"}
ARCHITECTURES = {0x0100000C: "aarch64", 0x01000007: "x86_64"}
HEADER = struct.Struct("<IiIIIIII")
COMMAND = struct.Struct("<II")
SYMBOL = struct.Struct("<IBBHQ")
SYMTAB, ID_DYLIB, VERSION_MIN, BUILD_VERSION = 0x2, 0xD, 0x24, 0x32
LOAD_DYLIBS = (0xC, 0x80000018, 0x8000001F, 0x80000023)  # plain, weak, re-exported, upward
RPATH = 0x8000001C
DYLD_INFO, EXPORTS_TRIE = (0x22, 0x80000022), 0x80000033
MACOS = 1
UNDEFINED_EXTERNAL = 0x01
ANY = (0, 0xFE)  # in the place of a library's number: zig's and Apple's for dynamic lookup


class MachO:
    """A program, a library or a bundle for one architecture."""

    def __init__(self, path: Path):
        self.data = path.read_bytes()
        magic, machine, _, kind, self.count, *_ = HEADER.unpack_from(self.data)
        if magic != MAGIC:
            raise ValueError(f"{path} is no 64-bit Mach-O for one architecture")
        self.kind, self.architecture = KINDS[kind], ARCHITECTURES[machine]

    @cached_property
    def commands(self) -> list[tuple[int, int]]:
        """Load commands: what they are, and where."""
        found, offset = [], HEADER.size
        for _ in range(self.count):
            command, size = COMMAND.unpack_from(self.data, offset)
            found.append((command, offset))
            offset += size
        return found

    def fields(self, kinds: tuple[int, ...], form: str) -> Iterator[tuple[int, ...]]:
        """The fields behind the first two of some commands, and the offset of each before them."""
        for command, offset in self.commands:
            if command in kinds:
                yield offset, *struct.unpack_from(form, self.data, offset + COMMAND.size)

    def text(self, offset: int) -> str:
        """The text that begins there."""
        return self.data[offset : self.data.index(b"\0", offset)].decode()

    def texts(self, *kinds: int) -> list[str]:
        """The texts of commands that hold one."""
        return [self.text(start + place) for start, place in self.fields(kinds, "<I")]

    @property
    def name(self) -> str:
        """The install name: what those that link the library look for."""
        return "".join(self.texts(ID_DYLIB))

    @property
    def needed(self) -> list[str]:
        """The libraries that it is linked against."""
        return self.texts(*LOAD_DYLIBS)

    @property
    def rpaths(self) -> list[str]:
        """Where ``@rpath`` is looked for."""
        return self.texts(RPATH)

    @property
    def minimum(self) -> str:
        """The oldest macOS that runs it."""
        for _, platform, version in self.fields((BUILD_VERSION,), "<II"):
            if platform == MACOS:
                return f"{version >> 16}.{version >> 8 & 0xFF}"
        [(_, version)] = self.fields((VERSION_MIN,), "<I")
        return f"{version >> 16}.{version >> 8 & 0xFF}"

    @property
    def imported(self) -> dict[str, str]:
        """The symbols that others define, as C names them, and the library; "" is any at all."""
        [(_, place, count, texts, _)] = self.fields((SYMTAB,), "<IIII")
        symbols = [SYMBOL.unpack_from(self.data, place + i * SYMBOL.size) for i in range(count)]
        libraries = dict(enumerate(self.needed, start=1)) | dict.fromkeys(ANY, "")
        return {
            self.text(texts + name).removeprefix("_"): libraries[description >> 8]
            for name, kind, _, description, _ in symbols
            if kind & 0x0F == UNDEFINED_EXTERNAL
        }

    @property
    def exported(self) -> set[str]:
        """The symbols that others can use, as C names them: what dyld looks up."""
        tries = [(t[9], t[10]) for t in self.fields(DYLD_INFO, "<10I")]
        tries += [(place, size) for _, place, size in self.fields((EXPORTS_TRIE,), "<II")]
        return {
            name.removeprefix("_")
            for place, size in tries
            if size
            for name in self.names_below(place, place, "")
        }

    def names_below(self, trie: int, node: int, prefix: str) -> Iterator[str]:
        """The names in a node of the trie of exports, each edge of which is a piece of them."""
        size, place = self.number(node)
        if size:
            yield prefix
        place += size
        edges, place = self.data[place], place + 1
        for _ in range(edges):
            piece = self.text(place)
            child, place = self.number(place + len(piece) + 1)
            yield from self.names_below(trie, trie + child, prefix + piece)

    def number(self, place: int) -> tuple[int, int]:
        """A number of seven bits a byte, and what is behind it."""
        value = shift = 0
        while True:
            byte = self.data[place]
            value |= (byte & 0x7F) << shift
            shift, place = shift + 7, place + 1
            if not byte & 0x80:
                return value, place
