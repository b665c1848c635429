"""Mach-O files, macOS's shared objects, read without Xcode's tools."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

# <mach-o/loader.h> of 64 bits, little endian, and <mach-o/fat.h>, big endian.
MAGIC, FAT_MAGIC = 0xFEEDFACF, 0xCAFEBABE
ARM64 = 0x0100000C
HEADER = struct.Struct("<IiIIIIII")
COMMAND = struct.Struct("<II")
_FAT = struct.Struct(">II")
_SLICE = struct.Struct(">IIIII")
_ID_DYLIB, _VERSION_MIN, _BUILD_VERSION = 0xD, 0x24, 0x32
_LOAD_DYLIBS = (0xC, 0x80000018, 0x8000001F, 0x80000023)  # plain, weak, re-exported, upward
_RPATH = 0x8000001C
_MACOS = 1


class MachO:
    """A program, a library or a bundle; of a file for several processors the part for arm64.

    Attributes:
        is_part: whether the file is for several processors.
    """

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        magic, slices = _FAT.unpack_from(data) if len(data) >= HEADER.size else (0, 0)
        self.is_part = magic == FAT_MAGIC
        if self.is_part:
            data = _arm64(data, slices) or data
        if len(data) < HEADER.size or HEADER.unpack_from(data)[0] != MAGIC:
            raise ValueError(f"{path} is no 64-bit Mach-O for Apple Silicon")
        self.data = data
        self._count = HEADER.unpack_from(data)[4]

    @classmethod
    def read(cls, path: Path) -> MachO | None:
        """Read a file; None if it is no Mach-O of 64 bits."""
        try:
            return cls(path)
        except ValueError:
            return None

    @cached_property
    def commands(self) -> list[tuple[int, int]]:
        """The kinds and places of the load commands."""
        found, offset = [], HEADER.size
        for _ in range(self._count):
            command, size = COMMAND.unpack_from(self.data, offset)
            found.append((command, offset))
            offset += size
        return found

    def fields(self, kinds: tuple[int, ...], form: str) -> Iterator[tuple[int, ...]]:
        """Yield the places of some commands with the fields behind the first two."""
        for command, offset in self.commands:
            if command in kinds:
                yield offset, *struct.unpack_from(form, self.data, offset + COMMAND.size)

    def text(self, offset: int) -> str:
        """Return the text that begins there."""
        return self.data[offset : self.data.index(b"\0", offset)].decode()

    def texts(self, *kinds: int) -> list[str]:
        """Return the texts of commands that hold one."""
        return [self.text(start + place) for start, place in self.fields(kinds, "<I")]

    @property
    def name(self) -> str:
        """The install name, by which others link the library; "" for other files."""
        return "".join(self.texts(_ID_DYLIB))

    @property
    def needed(self) -> list[str]:
        """The libraries that it is linked against."""
        return self.texts(*_LOAD_DYLIBS)

    @property
    def rpaths(self) -> list[str]:
        """Where ``@rpath`` is looked for."""
        return self.texts(_RPATH)

    @property
    def minimum(self) -> str:
        """The oldest macOS that runs it; "" if it names none."""
        for _, platform, version in self.fields((_BUILD_VERSION,), "<II"):
            if platform == _MACOS:
                return _version(version)
        for _, version in self.fields((_VERSION_MIN,), "<I"):
            return _version(version)
        return ""


def newest_minimum(paths: list[Path]) -> tuple[str, list[str]]:
    """Return the oldest macOS that runs all files, and the names of those that set it."""
    minimums: dict[str, list[str]] = {}
    for path in paths:
        found = MachO.read(path)
        if found is not None and found.minimum:
            minimums.setdefault(found.minimum, []).append(path.name)
    newest = max(minimums, key=lambda version: [int(part) for part in version.split(".")])
    return newest, sorted(minimums[newest])


def _version(number: int) -> str:
    return f"{number >> 16}.{number >> 8 & 0xFF}"


def _arm64(data: bytes, slices: int) -> bytes | None:
    for index in range(min(slices, 16)):
        machine, _, offset, size, _ = _SLICE.unpack_from(data, _FAT.size + index * _SLICE.size)
        if machine == ARM64:
            return data[offset : offset + size]
    return None
