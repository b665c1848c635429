"""A conversation that a model is to answer: its prompt, and what was asked for with it."""

from __future__ import annotations

from cowmlx.errors import InvalidArgument
from cowmlx.models.chat_options import ChatOptions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.models.model import Model


class Conversation:
    """Messages and options, checked and rendered with a model's chat template.

    Attributes:
        prompt: the tokens.
        options: what was asked for.

    Raises:
        InvalidArgument: malformed, or refused by the template; or an option that nobody reads.
    """

    def __init__(self, model: Model, messages: list[Any], options: dict[str, Any]) -> None:
        template = model.chat_template
        assert template is not None
        self.options = ChatOptions(options)
        chosen = self.options.template
        variables = template.variables(chosen.get("tools"))
        self.options.check_names(variables)
        switched = variables is None or "enable_thinking" in variables
        thinks = bool(model.chat_format.think_start)
        if self.options.enable_thinking and not switched and not thinks:
            raise InvalidArgument("enable_thinking is true, but this model does not think")
        self.prompt = template.prompt_tokens(model.tokenizer, messages, chosen)
        if self.options.enable_thinking is False and self.options.asks_for_answer:
            self.prompt = model.chat_format.without_thinking(
                self.prompt, model.end_tokens, model.tokenizer, asked=switched
            )
