"""A ``tokenizer.json`` in parts: a vocabulary and its merges, and what is left.

The library turns a file into its model by way of two other copies in memory, and so does Python.
The vocabularies of language models have up to 262,144 tokens and twice as many merges, so these are
read without any copy into arrays of numbers: in C where they are written as tokenizers write them,
else slice by slice.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from cowmlx import json_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SLICE = 1 << 16  # bytes that are parsed at once
_CHUNKS = (1 << 12, 1 << 16, 1 << 20, 1 << 23)  # bytes among which a value is looked for
_TRIES = 8  # commas of a slice at which a vocabulary is cut; a text may hold one
_SPACE = re.compile(rb"[ \t\n\r]*")
_KEY = re.compile(rb'[ \t\n\r]*"([^"\\]*)"[ \t\n\r]*:[ \t\n\r]*')


class Irregular(ValueError):
    """A file that is not read in parts, whatever it holds."""


class Merges(Sequence[tuple[str, str]]):
    """The merges of a BPE model, in order; each pair is made when it is read.

    Args:
        texts: of the vocabulary.
        lefts, rights: the places in it of what is merged.
    """

    def __init__(self, texts: list[str], lefts: array[int], rights: array[int]) -> None:
        self._texts = texts
        self._lefts, self._rights = lefts, rights

    def __len__(self) -> int:
        return len(self._lefts)

    def __getitem__(self, index: Any) -> Any:
        """Return one pair."""
        return self._texts[self._lefts[index]], self._texts[self._rights[index]]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield all pairs."""
        text = self._texts.__getitem__
        return zip(map(text, self._lefts), map(text, self._rights), strict=True)


class Parts(NamedTuple):
    """A file's contents.

    Attributes:
        rest: the file without the vocabulary and the merges, as JSON.
        texts: of the vocabulary's tokens.
        ids: of these.
        lefts, rights: for each merge the places in ``texts`` of what it merges.
    """

    rest: bytes
    texts: list[str]
    ids: array[int]
    lefts: array[int]
    rights: array[int]

    @property
    def vocabulary(self) -> dict[str, int]:
        """The ids by text."""
        return dict(zip(self.texts, self.ids, strict=True))

    @property
    def merges(self) -> Merges:
        """The merges, in order."""
        return Merges(self.texts, self.lefts, self.rights)


def split(data: bytes) -> Parts:
    """Return the parts of a file.

    Args:
        data: the file's bytes.

    Raises:
        Irregular: its model is not BPE, or it is no file as the library writes it.
    """
    try:
        return _split(_Reader(data))
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as exc:
        raise Irregular(f"{type(exc).__name__}: {exc}") from exc


def _split(reader: _Reader) -> Parts:
    rest: dict[bytes, bytes] = {}
    model: dict[bytes, bytes] = {}
    texts: list[str] = []
    ids, lefts, rights = array("I"), array("I"), array("I")
    for key in reader.keys(rest):
        if key != b"model":
            rest[key] = reader.value()
            continue
        for name in reader.keys(model):
            if name == b"vocab":
                texts, ids = reader.vocabulary()
                model[name] = b"{}"
            elif name == b"merges":
                lefts, rights = reader.merges(texts)
                model[name] = b"[]"
            else:
                model[name] = reader.value()
        rest[key] = _object(model)
    reader.end()
    if model.get(b"type") != b'"BPE"' or not model.keys() >= {b"vocab", b"merges"}:
        raise Irregular("its model is not BPE")
    return Parts(_object(rest), texts, ids, lefts, rights)


def _object(members: dict[bytes, bytes]) -> bytes:
    return b"{%s}" % b",".join(b'"%s":%s' % member for member in members.items())


class _Reader:
    """A place in a JSON text, which moves on by what is read.

    Args:
        data: the text.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._read: json_text.Vocabulary | None = None  # the vocabulary, if C has read it

    def keys(self, known: dict[bytes, bytes]) -> Iterator[bytes]:
        """Yield the keys of an object, each before its value, which must then be read.

        Args:
            known: the keys before; there is none twice.
        """
        self._expect(b"{")
        if self._follows(b"}"):
            return
        while True:
            match = _KEY.match(self._data, self._at)
            if match is None or match[1] in known:
                raise Irregular(f"no key, or one twice, at byte {self._at}")
            self._at = match.end()
            yield match[1]
            if self._follows(b"}"):
                return
            self._expect(b",")

    def value(self) -> bytes:
        """Return a value as it is written."""
        for size in _CHUNKS:
            chunk = self._data[self._at : self._at + size]
            text = chunk.decode("utf-8", "ignore")  # the last character may be cut off
            try:
                _, end = json_text.parse_front(text, 0)
            except json_text.Malformed:
                continue
            if end < len(text):
                written = text[:end].encode()
                if chunk.startswith(written):
                    self._at += len(written)
                    return written
        raise Irregular(f"no value, or a long one, at byte {self._at}")

    def vocabulary(self) -> tuple[list[str], array[int]]:
        """Return the names and values of an object whose members are short."""
        self._read = json_text.read_vocabulary(self._data, self._skipped())
        if self._read is not None:
            self._at = self._read.end
            return self._read.strings(), self._read.ids()
        self._expect(b"{")
        made: dict[str, int] = {}
        while True:
            part = self._slice(b"{", b"}", b",")
            made.update(part)
            if self._follows(b"}"):
                break
            self._expect(b",")
        if set(map(type, made.values())) - {int}:
            raise Irregular("an id is no integer")
        return list(made), array("I", made.values())

    def merges(self, texts: list[str]) -> tuple[array[int], array[int]]:
        """Return the places of what each merge of an array merges.

        Args:
            texts: of the vocabulary.
        """
        read = self._read and self._read.merges(self._data, self._skipped())
        if read:
            self._at, lefts, rights = read
            return lefts, rights
        places = dict(zip(texts, range(len(texts)), strict=True))
        lefts, rights = array("I"), array("I")
        self._expect(b"[")
        mark = b"]," if self._follows(b"[", stay=True) else b'",'
        while True:
            pairs: list[Any] = self._slice(b"[", b"]", mark)
            if mark == b'",':
                if any(pair.startswith("#version") for pair in pairs):
                    raise Irregular("a merge is a comment")
                pairs = [pair.split(" ") for pair in pairs]
            if set(map(len, pairs)) - {2} or set(map(type, pairs)) - {list}:
                raise Irregular("a merge is no pair")
            both = array("I", map(places.__getitem__, chain.from_iterable(pairs)))
            lefts.extend(both[::2])
            rights.extend(both[1::2])
            if self._follows(b"]"):
                return lefts, rights
            self._expect(b",")

    def end(self) -> None:
        """Make sure that nothing follows."""
        if self._skipped() != len(self._data):
            raise Irregular(f"more follows at byte {self._at}")

    def _slice(self, opening: bytes, closing: bytes, mark: bytes) -> Any:
        """Return some elements of an array, or members of an object, up to a comma or the end.

        Args:
            opening: the container's first bracket.
            closing: its last one.
            mark: how the text between two of them begins, a comma at its end.
        """
        end = self._at + SLICE
        cut = end
        for attempt in range(_TRIES):
            cut = self._data.rfind(mark, self._at, cut)
            if cut < 0:
                break
            before = cut + len(mark) - 1
            part = opening + self._data[self._at : before] + closing
            try:
                made = json_text.parse(part)
            except json_text.Malformed:
                if attempt == 0 and self._data.find(closing, self._at, end) >= 0:
                    last = self._last(opening, end)
                    if last is not None:
                        return last
                continue
            self._at = before
            return made
        last = self._last(opening, end)
        if last is None:
            raise Irregular(f"no list that ends, at byte {self._at}")
        return last

    def _last(self, opening: bytes, end: int) -> Any:
        """Return the elements up to the container's end; None if it is not before ``end``."""
        text = (opening + self._data[self._at : end]).decode("utf-8", "ignore")
        try:
            made, length = json_text.parse_front(text, 0)
        except json_text.Malformed:
            return None
        self._at += len(text[: length - 1].encode()) - 1
        return made

    def _skipped(self) -> int:
        space = _SPACE.match(self._data, self._at)
        self._at = self._at if space is None else space.end()
        return self._at

    def _follows(self, sign: bytes, *, stay: bool = False) -> bool:
        at = self._skipped()
        found = self._data[at : at + 1] == sign
        if found and not stay:
            self._at += 1
        return found

    def _expect(self, sign: bytes) -> None:
        if not self._follows(sign):
            raise Irregular(f"no {sign.decode()} at byte {self._at}")
