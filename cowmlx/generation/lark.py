"""Writing Lark grammars for a model's tokens."""

from __future__ import annotations

import json
import re

from cowmlx.errors import InvalidArgument
from cowmlx.generation.grammar import bounded_whitespace, special_tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from cowmlx.models.model import Model

MAX_BYTES = 512 << 10  # of a whole grammar
MAX_ALTERNATIVES = 500  # the library recurses


class LarkWriter:
    """Collects the rules of a grammar; its methods return what stands for what they are given.

    Args:
        model: whose special tokens match no text: in literals their ids stand for them.
    """

    def __init__(self, model: Model) -> None:
        added = model.tokenizer.added
        self._special = {added[token]: token for token in special_tokens(model) if added.get(token)}
        texts = sorted(map(re.escape, self._special), key=len, reverse=True)
        self._pattern = re.compile(f"({'|'.join(texts)})") if texts else None
        self._rules: dict[str, str] = {}

    def grammar(self) -> str:
        """Return all rules.

        Raises:
            InvalidArgument: there are too many.
        """
        text = "".join(f"{name}: {body}\n" for name, body in self._rules.items())
        if len(text) > MAX_BYTES:
            raise InvalidArgument(
                f"it has {len(text)} bytes; at most {MAX_BYTES} are supported",
                reason="limit_exceeded",
                needed=len(text),
                limit=MAX_BYTES,
            )
        return text

    def rule(self, body: str, name: str = "") -> str:
        """Make a rule, and return its name."""
        name = name or f"r{len(self._rules)}"
        self._rules[name] = body
        return name

    def terminal(self, body: str) -> str:
        """Make a terminal, and return its name."""
        return self.rule(body, f"T{len(self._rules)}")

    def plain(self, text: str) -> str:
        """Match a text as ordinary tokens spell it."""
        return json.dumps(text, ensure_ascii=False)

    def literal(self, text: str) -> str:
        """Match a text in which special tokens are themselves."""
        parts = self._pattern.split(text) if self._pattern is not None else [text]
        return " ".join(
            f"<[{self._special[part]}]>" if part in self._special else self.plain(part)
            for part in parts
            if part
        )

    def json(self, schema: dict[str, Any]) -> str:
        """Match JSON of a schema."""
        return self.rule(f"%json {json.dumps(bounded_whitespace(schema))}")

    def any_of(self, bodies: Iterable[str]) -> str:
        """Match one of some."""
        bodies = list(bodies)
        if len(bodies) > MAX_ALTERNATIVES:
            raise InvalidArgument(
                f"it has {len(bodies)} alternatives; at most {MAX_ALTERNATIVES} are supported",
                reason="limit_exceeded",
                needed=len(bodies),
                limit=MAX_ALTERNATIVES,
            )
        return self.rule(" | ".join(bodies))

    def joined(self, parts: list[tuple[str, bool]], separator: str, *, empty: bool = True) -> str:
        """Match parts in their order, with separators.

        Args:
            parts: each with whether it must be there.
            separator: between two of them.
            empty: whether all may be left out, if none must be there.
        """
        if len(parts) > MAX_ALTERNATIVES:
            raise InvalidArgument(
                f"it has {len(parts)} arguments; at most {MAX_ALTERNATIVES} are supported",
                reason="limit_exceeded",
                needed=len(parts),
                limit=MAX_ALTERNATIVES,
            )
        rules = [(self.rule(body), needed) for body, needed in parts]
        behind = [""] * (len(rules) + 1)  # what may follow a part, as a rule
        for index in range(len(rules) - 1, -1, -1):
            name, needed = rules[index]
            part = f"({separator} {name}){'' if needed else '?'}"
            behind[index] = self.rule(f"{part} {behind[index + 1]}")
        first = []
        for index, (name, needed) in enumerate(rules):
            first.append(f"{name} {behind[index + 1]}")
            if needed:
                return f"({self.any_of(first)})"
        return f"({self.any_of(first)}){'?' if empty else ''}" if first else ""

    def text_until(self, end: str, without: Iterable[str] = (), misread: str = "") -> str:
        """Match any text up to the first ``end``, and that.

        Args:
            end: begins with a special token or with text.
            without: texts that the text may not hold.
            misread: a pattern that the text may not match as a whole.
        """
        first = self._pattern.split(end) if self._pattern is not None else [end]
        special = not first[0]
        close = "" if special else _escaped(end)
        inside = [_escaped(text) for text in (end, *without) if text]
        if special:
            # Special tokens end any text; the marker spelled out would be taken for them.
            body = "/(?s:.+)/" + "".join(f" & ~/(?s:.*){text}(?s:.*)/" for text in inside)
        else:
            body = f"/(?s:.*){close}/ & ~/(?s:.*){close}(?s:.+)/"
            body += "".join(f" & ~/(?s:.*){text}(?s:.*)/" for text in inside[1:])
        if misread:
            body += f" & ~/{misread}{close}/"
        terminal = self.terminal(body)
        return f"{terminal}? {self.literal(end)}" if special else terminal


def _escaped(text: str) -> str:
    """Spell a text for a regex of the library."""
    return "".join(c if c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text)
