"""What the answer to a conversation has to match, and how it is told."""

from __future__ import annotations

from cowmlx.errors import InvalidArgument
from cowmlx.generated import constants
from cowmlx.generation.chat_events import ChatSplitter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.generation.grammar import Constraint
    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.thinking import ThinkingFirst
    from cowmlx.models.model import Model
    from cowmlx.text.conversation import Conversation


class ChatAnswer:
    """The form of one answer.

    A grammar, the host's or that of the tool calls that it requires, holds for what follows the
    model's thinking: behind a prompt that has opened it, or where the model opens it itself.

    Attributes:
        constraint: what the output must match, or None.
        splitter: what tells the answer as events.

    Raises:
        InvalidArgument: tool calls are required, and a grammar is given; or the grammar is bad.
        Unsupported: calls of these tools cannot be enforced in the model's format.
    """

    def __init__(self, model: Model, conversation: Conversation, params: GenerationParams) -> None:
        self._model = model
        self._conversation = conversation
        format, options = model.chat_format, conversation.options
        tail = format.open_tail(conversation.prompt, model.end_tokens)
        self.constraint: Constraint | ThinkingFirst | None
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
        blank = tail is not None and not model.tokenizer.decode(tail[1], skip_special=False).strip()
        self.splitter = ChatSplitter(
            format,
            options.functions(),
            reasoning=tail is not None and tail[0],
            fresh=blank,
            calls=options.choice != "none",
            required=options.choice == "required",
            constrained=constraint is not None,
            verbatim=params.grammar_kind == constants.GRAMMAR_JSON_SCHEMA,
            stripped=not takes_space,
        )

    def _thinking_start(self, tail: tuple[bool, list[int]] | None) -> list[int] | None:
        """Return the tokens that may start thinking, none if the prompt has; None: there is none.

        Args:
            tail: what the prompt says about it, see :meth:`ChatFormat.open_tail`.
        """
        model, options = self._model, self._conversation.options
        if tail is not None:
            return [] if tail[0] else None
        start = list(model.chat_format.think_start_tokens)
        wanted = not options.continues and options.enable_thinking is not False
        return start if wanted and start and max(start) < model.vocabulary_size else None

    def _form(self, params: GenerationParams) -> Constraint | None:
        """Return what the answer must match."""
        options = self._conversation.options
        if options.choice != "required":
            if params.grammar is None:
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
