"""Facts in a shared object of Linux: names, dependencies, symbols, versions."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

# ELF-64, little endian: https://refspecs.linuxfoundation.org/elf/gabi4+/contents.html
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM = struct.Struct("<IIQQQQQQ")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_DYNAMIC = struct.Struct("<qQ")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")

_PT_NULL, _PT_LOAD, _PT_EH_FRAME, _PT_RELRO = 0, 1, 0x6474E550, 0x6474E552
_SHT_DYNAMIC, _SHT_DYNSYM, _SHT_VERNEED = 6, 11, 0x6FFFFFFE
_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 14, 15, 29


class Elf:
    """A shared object; ``None`` from :meth:`read` is any other file."""

    def __init__(self, data: bytearray) -> None:
        self._data = data
        fields = _HEADER.unpack_from(data)
        programs, sections = fields[5], fields[6]
        _, size, count, section_size, section_count = fields[8:13]
        self._program_places = range(programs, programs + size * count, size)
        self._programs = [_PROGRAM.unpack_from(data, place) for place in self._program_places]
        self._sections = [
            _SECTION.unpack_from(data, sections + section_size * i) for i in range(section_count)
        ]

    @classmethod
    def read(cls, path: Path) -> Elf | None:
        """Read a file; None if it is no 64-bit ELF of this byte order."""
        with path.open("rb") as file:
            if file.read(6) != b"\x7fELF\x02\x01":
                return None
        return cls(bytearray(path.read_bytes()))

    @property
    def data(self) -> bytes:
        """The file, with the changes of :meth:`set_runpath` and :meth:`mend`."""
        return bytes(self._data)

    @property
    def loadable(self) -> bool:
        """Whether its segments can be mapped, which tools may break."""
        return all(
            (offset - address) % max(align, 1) == 0
            for kind, _, offset, address, _, _, _, align in self._programs
            if kind == _PT_LOAD
        )

    @property
    def needed(self) -> list[str]:
        """The libraries that it is linked against."""
        return [self._dynamic_text(value) for tag, value in self._entries if tag == _DT_NEEDED]

    @property
    def runpaths(self) -> list[str]:
        """The folders where those are looked for."""
        tags = (_DT_RPATH, _DT_RUNPATH)
        paths = [self._dynamic_text(value) for tag, value in self._entries if tag in tags]
        return [folder for path in paths for folder in path.split(":")]

    def symbols(self, *, defined: bool) -> set[str]:
        """Return the names that it exports, or those that it imports."""
        return {
            self._text(table, name)
            for table, name, section in self._dynamic_symbols
            if name and (section != 0) == defined
        }

    def versions(self) -> set[str]:
        """Return the symbol versions that it needs, such as ``GLIBC_2.34``."""
        names = set()
        for section in self._of_type(_SHT_VERNEED):
            at, table = section[4], section[6]
            for _ in range(section[7]):
                _, count, _, first, following = _VERNEED.unpack_from(self._data, at)
                auxiliary = at + first
                for _ in range(count):
                    *_, name, step = _VERNAUX.unpack_from(self._data, auxiliary)
                    names.add(self._text(table, name))
                    auxiliary += step
                at += following
        return names

    def set_runpath(self, path: str) -> bool:
        """Write another search path over every one there is; false if one has no room for it.

        A search path shares its bytes with nothing else, or is left alone.
        """
        table = self._dynamic[6]
        shared = [value for tag, value in self._entries if tag in (_DT_NEEDED, _DT_SONAME)]
        shared += [name for _, name, _ in self._dynamic_symbols]
        for tag, value in self._entries:
            if tag not in (_DT_RPATH, _DT_RUNPATH):
                continue
            room = len(self._text(table, value).encode())
            if len(path) > room or any(value <= name <= value + room for name in shared):
                return False
            at = self._sections[table][4] + value
            self._data[at : at + room] = path.encode().ljust(room, b"\0")
        return True

    @property
    def protects(self) -> bool:
        """Whether data that only the loader writes are read-only afterwards."""
        return self._program(_PT_RELRO) is not None

    @property
    def unwinds(self) -> bool:
        """Whether it has tables with which exceptions and backtraces pass through it."""
        header = self._program(_PT_EH_FRAME)
        return header is not None and self._programs[header][5] > 0

    def mend(self, whole: Elf) -> bool:
        """Repair a file of which ``strip`` removed the tables for unwinding; ``whole`` has them.

        Its header still points to them. That place goes to what is read-only after loading, which
        ``strip`` forgets; false if it cannot be kept so.
        """
        void, relro = self._program(_PT_EH_FRAME), whole._program(_PT_RELRO)
        if self.unwinds:
            return False
        if self.protects or relro is None:
            return void is None or self._set_program(void, (_PT_NULL, *[0] * 7))
        kind, flags, _, address, physical, size, memory, align = whole._programs[relro]
        for loaded in self._programs:
            if loaded[0] == _PT_LOAD and loaded[3] <= address < loaded[3] + loaded[5]:
                offset = loaded[2] + address - loaded[3]
                entry = (kind, flags, offset, address, physical, size, memory, align)
                return void is not None and self._set_program(void, entry)
        return False

    def _program(self, kind: int) -> int | None:
        return next((i for i, program in enumerate(self._programs) if program[0] == kind), None)

    def _set_program(self, index: int, entry: tuple[int, ...]) -> bool:
        self._programs[index] = entry
        _PROGRAM.pack_into(self._data, self._program_places[index], *entry)
        return True

    @cached_property
    def _dynamic(self) -> tuple[int, ...]:
        return next(self._of_type(_SHT_DYNAMIC), (0,) * 10)

    @cached_property
    def _entries(self) -> list[tuple[int, ...]]:
        offset, size = self._dynamic[4], self._dynamic[5]
        return [
            _DYNAMIC.unpack_from(self._data, at)
            for at in range(offset, offset + size, _DYNAMIC.size)
        ]

    @cached_property
    def _dynamic_symbols(self) -> list[tuple[int, int, int]]:
        """String table, name and section of each."""
        symbols = []
        for section in self._of_type(_SHT_DYNSYM):
            for at in range(section[4], section[4] + section[5], _SYMBOL.size):
                name, _, _, index, _, _ = _SYMBOL.unpack_from(self._data, at)
                symbols.append((section[6], name, index))
        return symbols

    def _of_type(self, kind: int) -> Iterator[tuple[int, ...]]:
        return (section for section in self._sections if section[1] == kind)

    def _dynamic_text(self, offset: int) -> str:
        return self._text(self._dynamic[6], offset)

    def _text(self, table: int, offset: int) -> str:
        begin = self._sections[table][4] + offset
        return self._data[begin : self._data.index(0, begin)].decode()
