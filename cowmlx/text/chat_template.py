"""Chat messages to the text and tokens of a model's own template.

Text from outside that spells a special token stays text: marks enclose it while it is rendered.
"""

from __future__ import annotations

import os
import re

from cowmlx.errors import BadFormat, InvalidArgument
from cowmlx.folders import config as config_files
from cowmlx.steps import finished
from cowmlx.text import chat_messages, chat_options
from cowmlx.text.marks import Guard, encode_marked, split_enclosed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.text.image_places import Pictures
    from cowmlx.text.template_engine import Program
    from cowmlx.text.tokenizer import Tokenizer

_OPTIONS = frozenset(
    ("tools", "documents", "add_generation_prompt", "continue_final_message", "parse_special")
)
# Parts of messages that are checked one by one; the rest is checked together.
_MAX_DOUBTS = 8
# The most kinds of parts remembered as read.
_MAX_READ = 64
# The assistant's own special tokens are parsed.
_OWN = Guard()


def read_sources(path: str, settings: dict[str, Any]) -> dict[str, str]:
    """Collect a folder's chat templates by name; a single one is called "default".

    Template files win over ``tokenizer_config.json``, that over ``chat_template.json``.

    Raises:
        BadFormat, InputOutput: malformed or unreadable.
    """
    sources: dict[str, str] = {}
    single = os.path.join(path, "chat_template.jinja")
    if os.path.isfile(single):
        sources["default"] = config_files.read_text(single)
    folder = os.path.join(path, config_files.TEMPLATES)
    if os.path.isdir(folder):
        for name in sorted(os.listdir(folder)):
            if name.endswith(".jinja"):
                sources[name[:-6]] = config_files.read_text(os.path.join(folder, name))
    if sources:
        return sources
    stored = settings.get("chat_template")
    if stored is None:
        separate = config_files.read_json(os.path.join(path, "chat_template.json"), optional=True)
        stored = separate.get("chat_template")
    if stored is None:
        return {}
    return named(stored)


def named(stored: object) -> dict[str, str]:
    """Turn the forms in which templates are stored into templates by name.

    Raises:
        BadFormat: it is none of them.
    """
    if isinstance(stored, str):
        return {"default": stored}
    if isinstance(stored, list) and all(isinstance(entry, dict) for entry in stored):
        stored = {entry.get("name"): entry.get("template") for entry in stored}
    if isinstance(stored, dict) and all(
        isinstance(name, str) and isinstance(text, str) for name, text in stored.items()
    ):
        return dict(stored)
    raise BadFormat(
        "chat_template must be a string or a list of objects with name and template",
        reason="invalid_template",
    )


class ChatTemplate:
    """A model's chat template.

    Args:
        sources: templates by name; "tool_use" is taken when there are tools, else "default".
        special_tokens: texts by attribute, which templates use as variables.
        thinking: the default of ``enable_thinking``: whether the model marks its thinking.
        renderer: renders instead of the sources, for models whose template is Python.
        markers: returns the texts around the model's thinking and tool calls.
    """

    def __init__(
        self,
        sources: dict[str, str],
        special_tokens: dict[str, str],
        *,
        thinking: bool,
        renderer: Callable[..., str] | None = None,
        markers: Callable[[], list[str]] = list,
    ) -> None:
        self.sources = sources
        self._special_tokens = special_tokens
        self._thinking = thinking
        self._renderer = renderer
        self._markers = markers
        self._compiled: dict[str, Program | BadFormat] = {}
        self._guards: dict[str, Guard | None] = {}
        self._read: set[tuple[str, chat_messages.Label]] = set()

    @property
    def takes_tools(self) -> bool:
        """Whether the template renders tool definitions."""
        return (
            self._renderer is not None
            or "tool_use" in self.sources
            or any(re.search(r"\btools\b", text) for text in self.sources.values())
        )

    def variables(self, tools: list[Any] | None) -> frozenset[str] | None:
        """Return the variables that the template for these tools reads; None if unknown.

        Raises:
            BadFormat: the template is none.
        """
        if self._renderer is not None:
            from inspect import signature  # late: few models have one

            parameters = signature(self._renderer).parameters.values()
            if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
                return None
            return frozenset(parameter.name for parameter in parameters)
        return self._program(self._source(tools)).variables

    def render(self, messages: list[dict[str, Any]], options: dict[str, Any]) -> str:
        """Render messages to text.

        Args:
            messages: objects with ``role`` and ``content`` and whatever else the template
                reads. Keys whose value is null count as absent, but for a content that the
                template tests.
            options: ``tools``, ``documents``, ``add_generation_prompt`` (true unless a message
                is continued), ``continue_final_message`` (true, or the name of the field to
                continue), and variables of the template.

        Raises:
            InvalidArgument: malformed messages or options, or the template refuses them.
            BadFormat: the template is none.
        """
        plain = chat_messages.check(messages)
        finished(self._refuse_unread(plain, options))
        return self._render(plain, options)

    def prompt_tokens(
        self, tokenizer: Tokenizer, messages: list[dict[str, Any]], options: dict[str, Any]
    ) -> list[int]:
        """Render messages to tokens, all at once: see :meth:`prompt_steps`."""
        return finished(self.prompt_steps(tokenizer, messages, options))

    def prompt_steps(
        self,
        tokenizer: Tokenizer,
        messages: list[dict[str, Any]],
        options: dict[str, Any],
        images: Pictures | None = None,
        *,
        sees: bool = False,
    ) -> Generator[None, None, list[int]]:
        """Render messages to tokens, yielding between the parts of a long text.

        With ``images`` parts may be images: each part of one has a token in its place. Messages
        of errors tell ``sees``, whether the model takes images.

        The template's special tokens are parsed. Their text inside messages that are not the
        assistant's, inside tools, documents and variables stays text unless the option
        ``parse_special`` is true. A special token that a template puts together from its own
        pieces and a message's, such as ``'<|' + role + '|>'``, is not recognized as foreign.

        Raises:
            InvalidArgument, BadFormat: as :meth:`render`.
        """
        chat_options.check_switches(options)
        plain = chat_messages.check(messages, takes_images=sees)
        yield from self._refuse_unread(plain, options)
        if images is not None:
            return (yield from self._with_images(tokenizer, plain, options, images))
        guard = None if options.get("parse_special") else self._guard(tokenizer, options)
        guarded = {key: value for key, value in options.items() if not key.endswith("_token")}
        foreign = [message for message in plain if message["role"] != "assistant"]
        if guard is not None and guard.finds([foreign, guarded]):
            kept = [(_OWN if m["role"] == "assistant" else guard).mark(m) for m in plain]
            text = guard.settle(self._render(kept, {**options, **guard.mark(guarded)}))
            return (yield from encode_marked(tokenizer, text))
        text = self._render(plain, options)
        return (yield from tokenizer.encode_steps(text, add_special=False, parse_special=True))

    def _with_images(
        self,
        tokenizer: Tokenizer,
        messages: list[dict[str, Any]],
        options: dict[str, Any],
        images: Pictures,
    ) -> Generator[None, None, list[int]]:
        """Render messages with images; the texts of their tokens are guarded in all messages."""
        own = Guard(images.written.guarded)
        guard = own if options.get("parse_special") else self._guard(tokenizer, options)
        assert guard is not None
        guarded = {key: value for key, value in options.items() if not key.endswith("_token")}
        kept = [(own if m["role"] == "assistant" else guard).mark(m) for m in messages]
        text = guard.settle(self._render(kept, {**options, **guard.mark(guarded)}))
        pieces = split_enclosed(text)
        pieces[::2] = images.in_text(pieces[::2])
        return (yield from encode_marked(tokenizer, "".join(pieces)))

    def _refuse_unread(
        self, messages: list[dict[str, Any]], options: dict[str, Any]
    ) -> Generator[None, None, None]:
        """Refuse parts of messages that do not reach the prompt, yielding between renders.

        Raises:
            InvalidArgument: a part is left out; the message names the first of its kind.
        """
        source = "" if self._renderer is not None else self._source(options.get("tools"))
        names = self._program(source).names if source else frozenset()
        doubts = chat_messages.doubts(messages, names)
        labels = [label for label in doubts if (source, label) not in self._read]
        if not labels:
            return
        whole = self._render(messages, options)
        groups = [[label] for label in labels[:_MAX_DOUBTS]]
        if rest := labels[_MAX_DOUBTS:]:
            groups.append(rest)
        for group in groups:
            yield
            if self._reads(messages, frozenset(group), options, whole):
                # Results are tried each time: a template may read those of some messages.
                if len(self._read) < _MAX_READ:
                    read = [one for one in group if not one[0].startswith(chat_messages.RESULT)]
                    self._read.update((source, label) for label in read)
                continue
            where, (kind, name) = doubts[group[0]], group[0]
            known = chat_messages.KEYS if kind == chat_messages.KEY else ()
            raise InvalidArgument(
                f"{where}{_said(kind, name)}: this model's chat template does not read it"
                f"{chat_options.meant(name, known)}",
                reason="unknown_option",
                argument=where,
            )

    def _reads(
        self,
        messages: list[dict[str, Any]],
        labels: frozenset[chat_messages.Label],
        options: dict[str, Any],
        whole: str,
    ) -> bool:
        """Whether the prompt would differ without some parts of the messages."""
        rest = chat_messages.without(messages, labels)
        if not rest:
            return True
        try:
            return self._render(rest, options) != whole
        except (BadFormat, InvalidArgument):
            return True

    def _render(self, messages: list[dict[str, Any]], options: dict[str, Any]) -> str:
        """Render checked messages, with arguments of tool calls in the form that is read.

        Most templates take objects. Some take JSON text alone, and fail on an object.
        """
        if not any(message.get("tool_calls") for message in messages):
            return self._rendered(messages, options)
        try:
            return self._rendered(chat_messages.with_arguments(messages, as_text=False), options)
        except InvalidArgument as error:
            try:
                return self._rendered(chat_messages.with_arguments(messages, as_text=True), options)
            except (BadFormat, InvalidArgument):
                raise error from error.__cause__

    def _rendered(self, messages: list[dict[str, Any]], options: dict[str, Any]) -> str:
        continued = options.get("continue_final_message") or False
        generate = options.get("add_generation_prompt")
        if generate is None:
            generate = not continued
        if continued and generate:
            raise InvalidArgument(
                "continue_final_message and add_generation_prompt exclude each other",
                reason="conflict",
                argument="continue_final_message",
                other="add_generation_prompt",
            )
        tools = chat_options.check_tools(options.get("tools"))
        documents = chat_messages.check_objects("documents", options.get("documents"))
        variables = {
            key: value
            for key, value in options.items()
            if key not in _OPTIONS and value is not None
        }
        variables.setdefault("enable_thinking", self._thinking)
        source = "" if self._renderer is not None else self._source(tools)
        if not (source and self._program(source).tests_content):
            messages = [chat_messages.without_null_content(message) for message in messages]
        if self._renderer is not None:
            return self._rendered_by_code(messages, tools, bool(generate), variables, continued)
        messages = [chat_messages.with_reasoning(message) for message in messages]
        tail = ""
        if continued:
            field = continued if isinstance(continued, str) else "content"
            tail = chat_messages.mark_continuation(messages, field, source)
        from cowmlx.text import template_engine

        text = template_engine.render(
            self._program(source),
            {
                **variables,
                "messages": messages,
                "tools": tools,
                "documents": documents,
                "add_generation_prompt": bool(generate),
            },
            defaults=self._special_tokens,
        )
        return chat_messages.cut_continuation(text, tail) if continued else text

    def _rendered_by_code(
        self,
        messages: list[dict[str, Any]],
        tools: list[Any] | None,
        generate: bool,
        variables: dict[str, Any],
        continued: object,
    ) -> str:
        assert self._renderer is not None
        variables.pop("tool_choice", None)
        if continued:
            variables["continue_final_message"] = True
        try:
            return self._renderer(
                messages, tools=tools, add_generation_prompt=generate, **variables
            )
        except Exception as exc:
            raise InvalidArgument(
                f"the model's chat renderer failed ({type(exc).__name__}: {exc})",
                reason="template_refused",
            ) from exc

    def _program(self, source: str) -> Program:
        """Compile a template, once; one that is none fails at once from then on."""
        compiled = self._compiled.get(source)
        if compiled is None:
            from cowmlx.text import template_engine

            try:
                compiled = template_engine.compile_template(source)
            except BadFormat as exc:
                # Without the frames that it came through.
                compiled = BadFormat(str(exc), reason=exc.reason, **exc.details)
            self._compiled[source] = compiled
        if isinstance(compiled, BadFormat):
            raise BadFormat(str(compiled), reason=compiled.reason, **compiled.details)
        return compiled

    def _source(self, tools: list[Any] | None) -> str:
        if tools is not None and "tool_use" in self.sources:
            return self.sources["tool_use"]
        if "default" in self.sources:
            return self.sources["default"]
        raise InvalidArgument(
            "the model has several chat templates and none is the default: "
            + ", ".join(sorted(self.sources)),
            reason="template_refused",
        )

    def _guard(self, tokenizer: Tokenizer, options: dict[str, Any]) -> Guard | None:
        """Return what guards the tokens with which the template structures a chat; None for none.

        These are the special tokens, those other added tokens that the template writes, and those
        that the markers of an answer are made of: in a user's text they would open thinking.
        """
        source = "" if self._renderer is not None else self._source(options.get("tools"))
        if source not in self._guards:
            added = {index: text for index, text in tokenizer.added.items() if text}
            texts = [text for index, text in added.items() if index in tokenizer.special_ids]
            others = {text for text in added.values() if not text.isspace()}.difference(texts)
            markers = self._markers()
            own = {text for text in others if any(text in marker for marker in markers)}
            written = self._program(source).written(others - own) if source else ()
            texts += [*own, *written]
            self._guards[source] = Guard(texts) if texts else None
        return self._guards[source]


def _said(kind: str, name: str) -> str:
    """Return what a part is, where its place does not say it."""
    if kind == chat_messages.ROLE:
        return f" {name!r}"
    shown = kind == chat_messages.PART or kind.startswith(chat_messages.RESULT)
    return f" ({name})" if shown else ""
