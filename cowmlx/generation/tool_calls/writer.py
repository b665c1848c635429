"""Writing the grammars of tool calls, in Lark, for a model's tokens."""

from __future__ import annotations

import json
import re

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.generation import grammar_bounds as bounds
from cowmlx.generation.grammar import bounded_whitespace, special_tokens
from cowmlx.generation.grammar_bounds import ANNOTATIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, NoReturn

    from cowmlx.models.chat_format import ChatFormat
    from cowmlx.models.model import Model


MAX_BYTES = 512 << 10  # of a whole grammar
MAX_ALTERNATIVES = 500  # the library recurses


class LarkWriter:
    """Collects the rules of a grammar; its methods return expressions that match their arguments.

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
        bounds.check_number(len(text), MAX_BYTES, "bytes")
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
        bounds.check_number(len(bodies), MAX_ALTERNATIVES, "alternatives")
        return self.rule(" | ".join(bodies))

    def joined(self, parts: list[tuple[str, bool]], separator: str, *, empty: bool = True) -> str:
        """Match parts in their order, with separators.

        Args:
            parts: each with whether it must be there.
            separator: between two of them.
            empty: whether all may be left out, if none must be there.
        """
        bounds.check_number(len(parts), MAX_ALTERNATIVES, "arguments")
        rules = [(self.rule(body), needed) for body, needed in parts]
        behind = [""] * (len(rules) + 1)  # rules for the parts that may follow
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


MAX_NAME = 256  # characters of a tool's name, or of an argument's
NAME = r"[\w.:/-]+"  # of a tool or an argument, where no notation says otherwise
TYPES = {"string", "integer", "number", "boolean", "object", "array"}
SHARED: tuple[str, ...] = ("$defs", "definitions")  # the targets of references in a schema
_OF_OBJECTS = {
    *ANNOTATIONS,
    *SHARED,
    "type",
    "properties",
    "required",
    "additionalProperties",
}
_OF_TEXTS = {*ANNOTATIONS, *SHARED, "type", "enum", "const"}


class Tool:
    """A tool that is to be called.

    Attributes:
        name: in the model's calls.
        parameters: the JSON schema of its arguments, an object's.
    """

    def __init__(self, name: str, parameters: dict[str, Any]) -> None:
        self.name = name
        self.parameters = parameters


class CallWriter(LarkWriter):
    """Writes the parts of calls in all notations."""

    def __init__(self, model: Model, format: ChatFormat) -> None:
        super().__init__(model)
        self.parser = format.parser
        self.begin = self.literal(format.tool_start)
        self.end = self.literal(format.tool_end) if format.tool_end else ""
        self.end_text = format.tool_end

    def arguments(self, tool: Tool) -> str:
        """Return a JSON object that matches a tool's schema."""
        return self.json(tool.parameters)

    def name(self, tool: Tool, pattern: str = NAME) -> str:
        """Return a tool's name, unless it would be misread."""
        if re.fullmatch(pattern, tool.name, re.ASCII) is None:
            self.refuse(f"the name {tool.name!r} cannot be written")
        return tool.name

    def properties(self, tool: Tool, pattern: str) -> list[tuple[str, dict[str, Any], bool]]:
        """Return name and schema of each argument, and whether it is required.

        Raises:
            Unsupported: the schema says more than that, or a name would be misread.
        """
        schema = tool.parameters
        for word in schema:
            if word not in _OF_OBJECTS:
                self.refuse(f"{word} in the parameters of {tool.name!r} cannot be enforced")
        declared, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(declared, dict) or not isinstance(required, list):
            raise InvalidArgument(
                f"properties or required of {tool.name!r} is malformed",
                reason="wrong_type",
                argument="tools",
            )
        shared = {key: schema[key] for key in SHARED if key in schema}
        result = []
        for key, value in declared.items():
            if not isinstance(value, dict | bool):
                raise InvalidArgument(
                    f"the schema of {key!r} of {tool.name!r} is malformed",
                    reason="wrong_type",
                    argument="tools",
                )
            written = len(key) <= MAX_NAME and re.fullmatch(pattern, key, re.ASCII)
            if not written or value is False:
                self.refuse(f"the argument {key!r} of {tool.name!r} cannot be written")
            inner = {**shared, **value} if isinstance(value, dict) else {}
            result.append((key, inner, key in required))
        unknown = [key for key in required if not isinstance(key, str) or key not in declared]
        if unknown:
            self.refuse(f"{tool.name!r} requires {unknown[0]!r}, which is none of its properties")
        return result

    def choices(self, tool: Tool, key: str, schema: dict[str, Any], pattern: str) -> list[str]:
        """Return the texts that an argument may be; none if it may be any.

        Raises:
            Unsupported: its schema says more, or a text would be misread.
        """
        for word in schema:
            if word not in _OF_TEXTS:
                self.refuse(f"{word} of the argument {key!r} of {tool.name!r} cannot be enforced")
        choices: Any = [schema["const"]] if "const" in schema else schema.get("enum", [])
        if not isinstance(choices, list) or (not choices and "enum" in schema):
            raise InvalidArgument(
                f"the enum of {key!r} of {tool.name!r} is malformed",
                reason="wrong_type",
                argument="tools",
            )
        for choice in choices:
            if not isinstance(choice, str) or re.fullmatch(pattern, choice) is None:
                self.refuse(f"the value {choice!r} of {key!r} of {tool.name!r} cannot be written")
        return list(choices)

    def is_any_text(self, schema: dict[str, Any]) -> bool:
        """Whether the schema of a text bounds nothing."""
        return set(schema) <= {*ANNOTATIONS, *SHARED, "type"}

    def refuse(self, what: str) -> NoReturn:
        """Raise Unsupported."""
        raise Unsupported(
            f"tool_choice: in this model's tool-call format {self.parser!r} {what}; leave "
            'tool_choice at "auto"',
            argument="tool_choice",
        )

    def kind(self, tool: Tool, key: str, schema: dict[str, Any]) -> str:
        """Return the JSON type of an argument; there must be one alone."""
        kind = schema.get("type")
        if not isinstance(kind, str) or kind not in TYPES:
            self.refuse(f"the argument {key!r} of {tool.name!r} must have one type, not {kind!r}")
        return kind


def repeated(call: str, once: bool) -> str:
    """Return a call, or several with a line break between."""
    return call if once else f'{call} ("\\n"? {call})* "\\n"?'
