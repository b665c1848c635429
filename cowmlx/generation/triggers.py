"""Constraints that begin at a trigger in the text, which is free before."""

from __future__ import annotations

import copy
from collections import OrderedDict

import mlx.core as mx

from cowmlx import failures
from cowmlx.errors import CowMlxError, InvalidArgument, Unsupported
from cowmlx.generated import constants
from cowmlx.generation.constrains import Constrains
from cowmlx.generation.grammar import ALLOWED
from cowmlx.generation.markers import MarkerTokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Self

    from cowmlx.generation.grammar import Constraint
    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.tool_calls.writer import Tool
    from cowmlx.models.model import Model

MAX_KEPT = 8  # grammars of calls, or their errors, that a model keeps


class Trigger:
    """A text, and the constraint that holds behind it.

    Args:
        text: as it is generated.
        begin: returns the constraint on what follows.
        again: whether the text is free again behind the first match; otherwise the output ends
            with the match.
        verbatim: whether a chat's markers are no markers in the match.
        single: whether the text is a token, so that no model spells it.
    """

    def __init__(
        self,
        text: str,
        begin: Callable[[], Constraint],
        *,
        again: bool = False,
        verbatim: bool = False,
        single: bool = False,
    ) -> None:
        self.text = text.encode()
        self.begin = begin
        self.again = again
        self.verbatim = verbatim
        self.single = single


class Triggered(Constrains):
    """Allows all tokens up to a trigger, and those that a constraint allows behind it.

    The trigger is found in the text, so it may be one token or come in parts. A token that has
    text behind the end of the trigger is not allowed: the match begins with a token. That needs a
    look at the whole vocabulary, which a trigger that models do not spell does without.

    Args:
        model: whose tokens these are.
        triggers: any of them; the first that ends with a token counts.
        thinking: the markers around text in which triggers do not count; None: they always do.
        inside: whether the output begins in such text.

    Attributes:
        verbatim_from: the number of tokens in front of a match without markers; None: none yet.
    """

    exact = False

    def __init__(
        self,
        model: Model,
        triggers: Sequence[Trigger],
        thinking: tuple[str, str] | None = None,
        *,
        inside: bool = False,
    ) -> None:
        self._triggers = triggers
        self._markers = [
            MarkerTokens.of(model, trigger.text) for trigger in triggers if not trigger.single
        ]
        self._bytes_of = model.tokenizer.token_bytes
        self._size = model.vocabulary_size
        self._thinking = None if thinking is None else (thinking[0].encode(), thinking[1].encode())
        self._inside = inside
        texts = [trigger.text for trigger in triggers] + list(self._thinking or ())
        self._longest = max(map(len, texts))
        self._tail = b""  # the last bytes of the free text, which may begin a trigger
        self._active: Constraint | None = None
        self._again = False
        self._came = 0
        self.verbatim_from: int | None = None
        self._barred: list[int] = []
        self._look()

    @property
    def waits(self) -> bool:
        """Whether the next token is bound."""
        return self._active is not None or bool(self._barred)

    @property
    def thinks(self) -> bool:
        """Whether the text is free, so that it may be the model's thinking."""
        return self._active is None

    def allowed(self) -> mx.array | None:
        """Return (V,) bool which tokens may come next; None: all."""
        if self._active is not None:
            return self._active.allowed()
        if not self._barred:
            return None
        mask = bytearray(ALLOWED * self._size)
        for token in self._barred:
            mask[token] = 0
        view: Any = memoryview(mask)
        return mx.array(view) != 0

    def allows(self, token: int) -> bool:
        """Whether a token may come next."""
        if self._active is not None:
            return self._active.allows(token)
        return token not in self._barred

    def accept(self, token: int) -> bool:
        """Take the next token; true if the output is complete and nothing may follow.

        Raises:
            InvalidArgument: the grammar became too complex here.
        """
        self._came += 1
        if self._active is None:
            self._follow(token)
            return False
        complete = self._active.accept(token)
        if self._again and (complete or self._active.may_end):
            self._active, self._tail = None, b""
            self._look()
            return False
        return complete

    def fork(self) -> Self:
        """Return a copy that follows other tokens from here on."""
        other = copy.copy(self)
        other._active = None if self._active is None else self._active.fork()
        return other

    def _follow(self, token: int) -> None:
        """Find triggers in the text."""
        text = self._tail + self._bytes_of(token)
        if self._thinking is not None:
            marker = self._thinking[1] if self._inside else self._thinking[0]
            at = text.find(marker)
            if at >= 0:
                self._inside = not self._inside
                text = text[at + len(marker) :]
        self._tail = text[-self._longest :]
        self._look()

    def _look(self) -> None:
        """Begin a constraint where the free text ends with its trigger; bar what runs over one."""
        self._barred = []
        if self._inside:
            return
        for trigger in self._triggers:
            if self._tail.endswith(trigger.text):
                self._active, self._again = trigger.begin(), trigger.again
                if trigger.verbatim:
                    self.verbatim_from = self._came
                return
        for markers in self._markers:
            self._barred += markers.running_over(self._tail, spaces_too=True)


def of_params(model: Model, params: GenerationParams) -> list[Trigger]:
    """Return the triggers of a generation's grammar.

    Raises:
        InvalidArgument, Unsupported: the grammar cannot be used.
    """
    from cowmlx.generation.grammar import Constraint

    assert params.grammar is not None
    whole = Constraint.of(model, params.grammar, params.grammar_kind)
    verbatim = params.grammar_kind == constants.GRAMMAR_JSON_SCHEMA
    return [Trigger(text, whole.fork, verbatim=verbatim) for text in params.grammar_triggers]


def of_calls(model: Model, tools: list[Tool]) -> list[Trigger]:
    """Return the trigger of a call of tools in the model's own notation.

    The model keeps the last grammars, or why there are none: those of a conversation's tools are
    the same in each turn.

    Raises:
        InvalidArgument, Unsupported: the notation cannot be held to the schemas.
    """
    from cowmlx.generation import grammar, tool_calls

    format = model.chat_format
    source = grammar.lark_source(tool_calls.lark_of_calls(model, tools, once=False))
    if format.parser in tool_calls.REQUIRED_ONLY:
        raise Unsupported(f"calls of the format {format.parser!r} are bound if required only")
    marker = model.tokenizer.encode_inner(format.tool_start, parse_special=True)
    if model.tokenizer.byte_table is None:
        raise Unsupported("a token of this model's tokenizer does not always give the same text")
    kept: OrderedDict[str, Constraint | CowMlxError]
    kept = model.remembered.once("grammars of calls", OrderedDict)
    call = kept.pop(source, None)
    if call is None:
        try:
            call = grammar.Constraint(model, source)
            call.advance(marker)
        except (InvalidArgument, Unsupported) as error:
            call = failures.kept(error)
    kept[source] = call
    if len(kept) > MAX_KEPT:
        kept.popitem(last=False)
    if isinstance(call, CowMlxError):
        raise failures.kept(call)
    single = format.tool_start in model.tokenizer.added.values()
    return [Trigger(format.tool_start, call.fork, again=bool(format.tool_end), single=single)]
