"""Answers to conversations: the form that they have to match, and their events."""

from __future__ import annotations

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.generated import constants
from cowmlx.generation.params import check_thinking_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from cowmlx.generation.budget import ThinkingBudget
    from cowmlx.generation.constrains import Constrains
    from cowmlx.generation.grammar import Constraint
    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.triggers import Trigger, Triggered
    from cowmlx.models.chat_format import ChatFormat
    from cowmlx.models.model import Model
    from cowmlx.text.chat_options import Conversation


MAX_CALL = 1 << 20  # characters; parsers take quadratic time on some texts
MAX_MISSES = 64  # end markers inside one answer's arguments
MAX_SPACE = 32  # characters of whitespace that are held back, since a marker may follow them


class ChatEvent:
    """One event of a chat.

    Attributes:
        kind: one of ``EVENT_``.
        text: of a tool call its arguments, a JSON object.
        name: of the tool.
        finish: of the end: one of ``FINISH_``.
    """

    __slots__ = ("finish", "kind", "name", "text")

    def __init__(self, kind: int, text: str = "", name: str = "", finish: int = 0) -> None:
        self.kind = kind
        self.text = text
        self.name = name
        self.finish = finish


class ChatSplitter:
    """Splits the text of an answer at markers, which never come out.

    Text that may begin a marker is held back until more text decides. Whitespace next to a marker
    of thinking or of a tool call belongs to it: templates put it there. All other text comes out.

    Args:
        format: the model's markers.
        tools: those of the template; parsers convert arguments to their types.
        reasoning: whether the prompt has opened the model's thinking.
        fresh: whether the prompt ends with a marker.
        calls: whether tool calls are events.
        required: whether the answer is calls alone, so that end markers inside arguments are text.
        constrained: whether the answer matches a grammar, so that only its marker ends thinking.
        verbatim: whether that grammar has no markers: text like one is text.
        stripped: whether whitespace behind the thinking is no part of the answer.
    """

    def __init__(
        self,
        format: ChatFormat,
        tools: list[Any] | None,
        *,
        reasoning: bool,
        fresh: bool,
        calls: bool = True,
        required: bool = False,
        constrained: bool = False,
        verbatim: bool = False,
        stripped: bool = True,
    ) -> None:
        self._format = format
        self._tools = tools
        self._kind = constants.EVENT_REASONING if reasoning else constants.EVENT_TEXT
        self._calls = calls
        self._required = required
        self._misses = 0
        self._constrained = constrained
        self._verbatim = verbatim
        self._stripped = stripped
        self._begun = False  # whether it is known if the model thinks first
        self._fresh = fresh and (stripped or reasoning)  # whether nothing was said since a marker
        self._held = ""  # may begin a marker
        self._call: str | None = None  # the text behind the start marker of a tool call
        self._space = ""  # the whitespace in front of it
        self._cut = False  # whether the thinking is cut, and no event has said so

    def add(self, text: str) -> list[ChatEvent]:
        """Return the events of more text."""
        if self._format.plain:
            return self._say(text)
        return list(self._split(text))

    def note_cut(self) -> None:
        """Note that the text that comes closes the thinking, which was cut."""
        self._cut = True

    def note_verbatim(self) -> None:
        """Note that text like a marker is text from here on."""
        self._verbatim = self._begun = True

    def finish(self, finish: int) -> list[ChatEvent]:
        """Return the events of the text that was held back, and the end.

        Args:
            finish: why, one of ``FINISH_``.
        """
        events = [*self._finish(finish), *self._tell_cut()]
        return [*events, ChatEvent(constants.EVENT_END, finish=finish)]

    def _split(self, text: str) -> Iterator[ChatEvent]:
        if self._call is None:
            text, self._held = self._held + text, ""
        while text:
            if self._call is not None:
                events, text = self._collect(self._call, text)
                yield from events
                continue
            if self._fresh:
                text = text.lstrip()
            if self._verbatim and self._kind == constants.EVENT_TEXT:
                if not self._begun and self._may_think(text):
                    self._held = text
                    return
                if self._begun or not self._thinks(text):
                    self._begun = True
                    yield from self._say(text)
                    return
            start = self._format.first(text)
            if start is None:
                border = _space_before(text, len(text) - self._format.overlap(text))
                self._held = text[border:]
                yield from self._say(text[:border])
                return
            at, marker = start
            kind = self._meaning(marker)
            border = at if kind == self._kind else _space_before(text, at)
            if kind == self._kind and marker == self._format.tool_start:
                border += len(marker)  # no call, so nothing is lost of it
            yield from self._say(text[:border])
            if kind == constants.EVENT_TOOL_CALL:
                self._call, self._space = "", text[border:at]
            elif kind != self._kind:
                yield from self._tell_cut()
                self._kind, self._begun = kind, True
                self._fresh = self._stripped or kind == constants.EVENT_REASONING
            text = text[at + len(marker) :]

    def _tell_cut(self) -> list[ChatEvent]:
        """Return the event behind thinking that was cut, once."""
        cut, self._cut = self._cut, False
        return [ChatEvent(constants.EVENT_THINKING_CUT)] if cut else []

    def _meaning(self, marker: str) -> int:
        """Return the kind of event that a marker begins; the current one if none begins here."""
        if marker == self._format.tool_start:
            thinking = self._kind == constants.EVENT_REASONING and self._constrained
            return constants.EVENT_TOOL_CALL if self._calls and not thinking else self._kind
        if marker == self._format.think_start:
            return constants.EVENT_REASONING
        return constants.EVENT_TEXT if marker == self._format.think_end else self._kind

    def _may_think(self, text: str) -> bool:
        """Whether the output so far may become the marker that starts thinking."""
        start = self._format.think_start
        return len(text) < len(start) and start.startswith(text)

    def _thinks(self, text: str) -> bool:
        start = self._format.think_start
        return bool(start) and text.startswith(start)

    def _collect(self, call: str, text: str) -> tuple[list[ChatEvent], str]:
        """Add text to a tool call; returns the events, if it ends, and the text behind it."""
        end = self._format.tool_end
        body = call + text
        at = body.find(end, max(0, len(call) - len(end) + 1)) if end else -1
        calls = self._format.parse(body[:at], self._tools) if 0 <= at <= MAX_CALL else None
        while (
            self._required and calls is None and 0 <= at <= MAX_CALL and self._misses < MAX_MISSES
        ):
            self._misses += 1  # this one is inside an argument
            at = body.find(end, at + len(end))
            calls = self._format.parse(body[:at], self._tools) if 0 <= at <= MAX_CALL else None
        if at < 0 and len(body) <= MAX_CALL + len(end):
            self._call = body
            return [], ""
        self._call = None
        if not 0 <= at <= MAX_CALL:
            return self._say(self._raw(body[:MAX_CALL])), body[MAX_CALL:]
        rest = body[at + len(end) :]
        if calls is None:
            return self._say(self._raw(body[:at] + end)), rest
        self._fresh = True
        return [ChatEvent(constants.EVENT_TOOL_CALL, text, name) for name, text in calls], rest

    def _finish(self, finish: int) -> Iterator[ChatEvent]:
        if self._call is None:
            yield from self._say(self._held)
            return
        # Without an end marker a call lasts to the end that the model itself has chosen.
        whole = not self._format.tool_end and finish == constants.FINISH_STOP
        calls = self._format.parse(self._call, self._tools) if whole else None
        if calls is None:
            yield from self._say(self._raw(self._call))
            return
        for name, text in calls:
            yield ChatEvent(constants.EVENT_TOOL_CALL, text, name)

    def _raw(self, body: str) -> str:
        """Return the model's text that looked like a tool call."""
        return self._space + self._format.tool_start + body

    def _say(self, text: str) -> list[ChatEvent]:
        if not text:
            return []
        self._fresh = False
        return [ChatEvent(self._kind, text)]


def _space_before(text: str, at: int) -> int:
    """Return where the whitespace in front of ``at`` begins, MAX_SPACE characters at most."""
    return max(len(text[:at].rstrip()), at - MAX_SPACE)


class ChatAnswer:
    """The form of one answer.

    A grammar, the host's or that of required tool calls, holds behind the model's thinking,
    whether the prompt has opened that or the model does.

    Attributes:
        constraint: on the output, or None.
        budget: of its thinking, or None; a part of the constraint.
        triggered: what begins at triggers, or None; a part of the constraint.
        splitter: turns the answer into events.
        note: for the log, or "".

    Raises:
        InvalidArgument: tool calls are required, and a grammar is given; or the grammar is bad.
        Unsupported: calls of these tools cannot be enforced in the model's format.
    """

    def __init__(self, model: Model, conversation: Conversation, params: GenerationParams) -> None:
        self.note = ""
        self._model = model
        self._conversation = conversation
        format, options = model.chat_format, conversation.options
        tail = format.open_tail(conversation.prompt, model.end_tokens)
        self.constraint: Constrains | None
        constraint = self.constraint = self._form(params)
        takes_space = False
        if constraint is not None:
            from cowmlx.generation import thinking

            takes_space = thinking.takes_space(model, constraint)
            start = self._thinking_start(tail)
            if start is not None:
                self.constraint = thinking.ThinkingFirst(
                    model, constraint, start, format.think_end, takes_space=takes_space
                )
        self.triggered: Triggered | None = None
        held = self._hold_calls()
        if held or params.grammar_triggers:
            self._begin_later(held, params, inside=tail is not None and tail[0])
        self.budget = self._bound_thinking(params, inside=tail is not None and tail[0])
        blank = tail is not None and not model.tokenizer.decode(tail[1], skip_special=False).strip()
        self.splitter = ChatSplitter(
            format,
            options.functions(),
            reasoning=tail is not None and tail[0],
            fresh=blank,
            calls=options.choice != "none",
            required=options.choice == "required" or bool(held),
            constrained=constraint is not None,
            verbatim=constraint is not None
            and params.grammar_kind == constants.GRAMMAR_JSON_SCHEMA,
            stripped=not takes_space,
        )

    def _hold_calls(self) -> list[Trigger]:
        """Return the trigger of a call that the model may make; none if nothing binds that."""
        options = self._conversation.options
        if not options.offers_tools or self.constraint is not None:
            return []
        from cowmlx.generation import triggers
        from cowmlx.generation.tool_calls.writer import Tool

        try:
            return triggers.of_calls(self._model, [Tool(*t) for t in options.callable_tools()])
        except (InvalidArgument, Unsupported) as error:
            self.note = f"calls of tools are not held to their schemas: {error}"
            return []

    def _begin_later(self, held: list[Trigger], params: GenerationParams, *, inside: bool) -> None:
        """Let grammars begin at their triggers; the host's only behind the model's thinking."""
        from cowmlx.generation import triggers

        own = triggers.of_params(self._model, params) if params.grammar_triggers else []
        format = self._model.chat_format
        thinking = (format.think_start, format.think_end) if own and format.think_end else None
        self.constraint = self.triggered = triggers.Triggered(
            self._model, [*held, *own], thinking, inside=inside and thinking is not None
        )

    def _bound_thinking(self, params: GenerationParams, *, inside: bool) -> ThinkingBudget | None:
        """Let the constraint keep to the budget of the thinking, too; return that, if any."""
        options = self._conversation.options
        for name in ("thinking_tokens", "thinking_end_text"):
            if getattr(options, name) is not None:
                setattr(params, name, getattr(options, name))
        if params.thinking_tokens == -1 and params.thinking_end_text is None:
            return None
        from cowmlx.generation import budget  # late: few generations need it

        check_thinking_end(params.thinking_end_text)
        self.constraint = budget.bounded(self._model, params, self.constraint, inside=inside)
        return self.constraint if isinstance(self.constraint, budget.ThinkingBudget) else None

    def _thinking_start(self, tail: tuple[bool, list[int]] | None) -> list[int] | None:
        """Return the tokens that may start thinking, none if the prompt has; None: there is none.

        Args:
            tail: of the prompt, see :meth:`ChatFormat.open_tail`.
        """
        model, options = self._model, self._conversation.options
        if tail is not None:
            return [] if tail[0] else None
        start = list(model.chat_format.think_start_tokens)
        wanted = not options.continues and options.enable_thinking is not False
        return start if wanted and start and max(start) < model.vocabulary_size else None

    def _form(self, params: GenerationParams) -> Constraint | None:
        """Return the constraint on the answer behind the thinking."""
        options = self._conversation.options
        if options.choice != "required":
            if params.grammar is None or params.grammar_triggers:
                return None
            from cowmlx.generation.grammar import Constraint  # late: few generations need it

            return Constraint.of(self._model, params.grammar, params.grammar_kind)
        if params.grammar is not None:
            raise InvalidArgument(
                "tool_choice requires a tool call, so that the answer cannot match a grammar too; "
                "leave one of them out",
                reason="conflict",
                argument="tool_choice",
                other="grammar",
            )
        from cowmlx.generation import grammar, tool_calls
        from cowmlx.generation.tool_calls.writer import Tool

        tools = [Tool(*tool) for tool in options.callable_tools()]
        try:
            calls = tool_calls.lark_of_calls(self._model, tools, once=options.tool is not None)
            return grammar.Constraint(self._model, grammar.lark_source(calls))
        except InvalidArgument as error:
            reason = str(error).removeprefix("grammar: ")
            raise InvalidArgument(
                f"tool_choice: the parameters of the tools cannot be enforced: {reason}",
                reason=error.reason,
                **{**error.details, "argument": "tool_choice"},
            ) from error
