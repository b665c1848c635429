"""What a Mach-O file says about itself, and which symbols it exports and imports."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from cowmlx.commands.bundle import macho
from cowmlx.commands.bundle.macho import HEADER

KINDS = {2: "program", 6: "library", 8: "bundle"}
ARCHITECTURES = {macho.ARM64: "aarch64", 0x01000007: "x86_64"}
SYMBOL = struct.Struct("<IBBHQ")
SYMTAB = 0x2
DYLD_INFO, EXPORTS_TRIE = (0x22, 0x80000022), 0x80000033
UNDEFINED_EXTERNAL = 0x01
ANY = (0, 0xFE)  # in the place of a library's number: zig's and Apple's for dynamic lookup


class MachO(macho.MachO):
    """A program, a library or a bundle, with its symbols."""

    def __init__(self, path: Path):
        super().__init__(path)
        _, machine, _, kind, *_ = HEADER.unpack_from(self.data)
        self.kind, self.architecture = KINDS[kind], ARCHITECTURES[machine]

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
