"""A chat's options and their types, and the conversation that a model is to answer."""

from __future__ import annotations

from cowmlx.errors import InvalidArgument, OutOfRange
from cowmlx.text.chat_messages import check_objects, json_type, wrong_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from typing import Any

    from cowmlx.models.model import Model
    from cowmlx.text.image_places import Pictures

# Read by this library; every other option is a variable of the model's template.
OPTIONS = (
    "tools",
    "tool_choice",
    "documents",
    "add_generation_prompt",
    "continue_final_message",
    "parse_special",
    "enable_thinking",
    "thinking_tokens",
    "thinking_end_text",
)
_SWITCHES = ("add_generation_prompt", "continue_final_message", "parse_special", "enable_thinking")
_CHOICES = ("auto", "none", "required")
_TOOL_FORM = (
    'a tool is {"type": "function", "function": {"name": ..., "description": ..., '
    '"parameters": {...}}}'
)


class ChatOptions:
    """The options of ``options_json``, checked as far as no model is needed.

    Attributes:
        template: variables for the template; the tools only if they are offered.
        tools: as the host gave them, or None.
        choice: "auto", "none" or "required".
        tool: the name of the tool that is to be called, or None for any.
        enable_thinking: None if it was not given.
        thinking_tokens, thinking_end_text: these options of the generation; None if not given.

    Raises:
        InvalidArgument: an option is of another type, or options contradict each other.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self._given = options
        self.template = dict(options)
        check_switches(options)
        self.tools = check_tools(options.get("tools"))
        self.enable_thinking: bool | None = options.get("enable_thinking")
        self.thinking_tokens: int | None = _thinking_tokens(options.get("thinking_tokens"))
        self.thinking_end_text: str | None = _thinking_end(options.get("thinking_end_text"))
        self.choice, self.tool = _tool_choice(options.get("tool_choice"))
        if self.choice == "none":
            self.template["tools"] = None
        if self.choice != "required":
            return
        if not self.tools:
            wanted = "required" if self.tool is None else repr(self.tool)
            raise InvalidArgument(
                f"tool_choice is {wanted}, but there are no tools",
                reason="missing",
                argument="tools",
            )
        names = [_name(tool) for tool in self.tools]
        if self.tool is not None and self.tool not in names:
            raise InvalidArgument(
                f"tool_choice is {self.tool!r}, but the tools are {', '.join(map(repr, names))}",
                argument="tool_choice",
                value=self.tool,
                accepted=", ".join(map(repr, names)),
            )

    @property
    def continues(self) -> bool:
        """Whether the answer continues text that the host has begun."""
        return bool(self._given.get("continue_final_message"))

    @property
    def offers_tools(self) -> bool:
        """Whether the model may call a tool, but need not."""
        return bool(self.tools) and self.choice == "auto"

    @property
    def asks_for_answer(self) -> bool:
        """Whether the prompt ends where a fresh answer begins."""
        given = self._given.get("add_generation_prompt")
        return not self.continues and (given is None or bool(given))

    def functions(self) -> list[dict[str, Any]] | None:
        """Return the tools as parsers expect them: each a function with a name and parameters."""
        if self.tools is None:
            return None
        return [
            {
                "type": "function",
                "function": {**_function(tool), "parameters": _function(tool).get("parameters")},
            }
            for tool in self.tools
        ]

    def callable_tools(self) -> list[tuple[str, dict[str, Any]]]:
        """Return name and parameters, a JSON schema, of the tools of which one is to be called."""
        return [
            (_name(tool), {"type": "object", **(_function(tool).get("parameters") or {})})
            for tool in self.tools or []
            if self.tool in (None, _name(tool))
        ]

    def check_names(self, variables: frozenset[str] | None) -> None:
        """Refuse options that neither this library nor the template reads.

        Args:
            variables: those that the template reads; None if that is unknown.

        Raises:
            InvalidArgument: an option is neither one of this library's nor of the template's.
        """
        if "messages" in self._given:
            raise _unknown("messages", " is no option: the conversation is given apart from them")
        if variables is None:
            return
        if self._given.get("documents") is not None and "documents" not in variables:
            raise _unknown("documents", _UNREAD)
        own = sorted(variables - _RESERVED)
        # Special tokens can be replaced, too, but no host looks for them here.
        others = [name for name in own if name not in OPTIONS and not name.endswith("_token")]
        offered = [n for n in OPTIONS if n != "documents" or n in variables] + others
        for name in self._given:
            if name not in OPTIONS and name not in own:
                raise InvalidArgument(
                    f"{name!r} is no option, and this model's chat template does not read it"
                    f"{meant(name, offered)} (accepted: {', '.join(offered)})",
                    reason="unknown_option",
                    argument=name,
                )


_UNREAD = ": this model's chat template does not read them"


def _unknown(name: str, stated: str) -> InvalidArgument:
    return InvalidArgument(f"{name}{stated}", reason="unknown_option", argument=name)


# Variables that a template is always given, or finds in itself.
_RESERVED = frozenset(("messages",))


def check_switches(options: dict[str, Any]) -> None:
    """Check the options that are switches.

    Raises:
        InvalidArgument: one is something else; ``continue_final_message`` may name a field.
    """
    for name in _SWITCHES:
        value = options.get(name)
        if value is None or isinstance(value, bool):
            continue
        if name == "continue_final_message" and isinstance(value, str):
            continue
        raise InvalidArgument(
            f"{name} is {value!r}; it can be true or false",
            argument=name,
            value=value if isinstance(value, str | int) else None,
            accepted="true or false",
        )


def check_tools(value: object) -> list[Any] | None:
    """Check the tools: functions, each with a name and the schema of its parameters.

    Raises:
        InvalidArgument: a tool has no name, or a member of another type.
    """
    tools = check_objects("tools", value)
    for index, tool in enumerate(tools or ()):
        where = f"tools[{index}]"
        kind = tool.get("type")
        if kind not in (None, "function"):
            raise InvalidArgument(
                f'{where}.type is {kind!r}; it can be "function"',
                argument=f"{where}.type",
                accepted="function",
            )
        inside = f"{where}.function" if isinstance(tool.get("function"), dict) else where
        if inside == where and "parameters" not in tool:
            raise InvalidArgument(
                f"{where} is no function; {_TOOL_FORM}", reason="missing", argument=where
            )
        function = _function(tool)
        name, schema = function.get("name"), function.get("parameters")
        if not isinstance(name, str) or not name:
            raise wrong_type(f"{inside}.name", f"a non-empty string; {_TOOL_FORM}")
        if not isinstance(function.get("description"), str | None):
            raise wrong_type(f"{inside}.description", "a string", function["description"])
        if schema is not None and (
            not isinstance(schema, dict) or schema.get("type", "object") != "object"
        ):
            raise wrong_type(f"{inside}.parameters", "the JSON schema of an object")
    return tools


def _thinking_tokens(value: object) -> int | None:
    """Return the bound on the model's thinking."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type("thinking_tokens", "a whole number", value)
    if value < -1:
        raise OutOfRange("thinking_tokens", value, "at least 0, or -1")
    return value


def _thinking_end(value: object) -> str | None:
    """Return the text that closes the model's thinking."""
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise wrong_type("thinking_end_text", "a string that is not empty", value)
    try:
        value.encode()
    except UnicodeEncodeError as exc:  # a lone surrogate, which JSON can spell
        raise InvalidArgument(
            f"thinking_end_text is not valid Unicode ({exc})",
            reason="invalid_utf8",
            argument="thinking_end_text",
        ) from exc
    return value


def _tool_choice(value: object) -> tuple[str, str | None]:
    """Return what is chosen, and which tool."""
    if value is None:
        return "auto", None
    if isinstance(value, str) and value:
        return (value, None) if value in _CHOICES else ("required", value)
    if isinstance(value, dict) and value.get("type") == "function":
        function = value.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str) and name:
            return "required", name
    shown = json_type(value) if not isinstance(value, dict | str) else repr(value)
    raise InvalidArgument(
        f'tool_choice is {shown}; it can be "auto", "none", "required", the name of a tool, or '
        '{"type": "function", "function": {"name": ...}}',
        argument="tool_choice",
        value=shown,
    )


def _function(tool: dict[str, Any]) -> dict[str, Any]:
    inner = tool.get("function")
    return inner if isinstance(inner, dict) else tool


def _name(tool: dict[str, Any]) -> Any:
    return _function(tool).get("name")


def meant(name: str, known: Iterable[str]) -> str:
    """Return a hint at the known name that was probably meant, or ""."""
    from difflib import get_close_matches  # late: only for what is wrong

    close = get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


class Conversation:
    """Messages and options for a model's chat template.

    Args:
        model: that answers.
        messages: the messages.
        options: as hosts give them.
        images: those in the messages; None without any.
        sees: whether the model takes images.

    Attributes:
        prompt: the tokens, once :meth:`prompt_steps` are done.
        options: what was asked for.

    Raises:
        InvalidArgument: an option is malformed, or has no effect.
    """

    def __init__(
        self,
        model: Model,
        messages: list[Any],
        options: dict[str, Any],
        images: Pictures | None = None,
        *,
        sees: bool = False,
    ) -> None:
        template = model.chat_template
        assert template is not None
        self.options = ChatOptions(options)
        chosen = self.options.template
        variables = template.variables(chosen.get("tools"))
        self.options.check_names(variables)
        unread = variables is not None and "tools" not in variables
        if unread and self.options.offers_tools and model.chat_format.parser is None:
            raise _unknown("tools", _UNREAD)
        self._switched = variables is None or "enable_thinking" in variables
        thinks = bool(model.chat_format.think_start)
        if self.options.enable_thinking and not self._switched and not thinks:
            raise InvalidArgument(
                "enable_thinking is true, but this model does not think",
                reason="unknown_option",
                argument="enable_thinking",
                value="true",
            )
        self._model = model
        self._messages = messages
        self._images = images
        self._sees = sees
        self.prompt: list[int] = []

    def prompt_steps(self) -> Generator[None, None, list[int]]:
        """Render the prompt and turn it into tokens, yielding between the parts of a long one.

        Raises:
            InvalidArgument, BadFormat: malformed messages, or the template refuses them or is bad.
        """
        model, template = self._model, self._model.chat_template
        assert template is not None
        images = self._images
        prompt = yield from template.prompt_steps(
            model.tokenizer, self._messages, self.options.template, images, sees=self._sees
        )
        if images is not None:
            prompt = images.in_prompt(prompt)
        if self.options.enable_thinking is False and self.options.asks_for_answer:
            prompt = model.chat_format.without_thinking(
                prompt, model.end_tokens, model.tokenizer, asked=self._switched
            )
        self.prompt = prompt
        return prompt
