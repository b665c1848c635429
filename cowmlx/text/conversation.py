"""A conversation that a model is to answer: its prompt, and what was asked for with it."""

from __future__ import annotations

from cowmlx.errors import InvalidArgument
from cowmlx.text.chat_options import ChatOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.models.model import Model


class Conversation:
    """Messages and options for a model's chat template.

    Attributes:
        prompt: the tokens, once :meth:`prompt_steps` are done.
        options: what was asked for.

    Raises:
        InvalidArgument: an option is malformed, or nobody reads it.
    """

    def __init__(self, model: Model, messages: list[Any], options: dict[str, Any]) -> None:
        template = model.chat_template
        assert template is not None
        self.options = ChatOptions(options)
        chosen = self.options.template
        variables = template.variables(chosen.get("tools"))
        self.options.check_names(variables)
        unread = variables is not None and "tools" not in variables
        if unread and self.options.offers_tools and model.chat_format.parser is None:
            raise InvalidArgument(
                "tools: this model's chat template does not read them",
                reason="unknown_option",
                argument="tools",
            )
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
        self.prompt: list[int] = []

    def prompt_steps(self) -> Generator[None, None, list[int]]:
        """Render the prompt and turn it into tokens, yielding between the parts of a long one.

        Raises:
            InvalidArgument, BadFormat: malformed messages, or the template refuses them or is bad.
        """
        model, template = self._model, self._model.chat_template
        assert template is not None
        prompt = yield from template.prompt_steps(
            model.tokenizer, self._messages, self.options.template
        )
        if self.options.enable_thinking is False and self.options.asks_for_answer:
            prompt = model.chat_format.without_thinking(
                prompt, model.end_tokens, model.tokenizer, asked=self._switched
            )
        self.prompt = prompt
        return prompt
