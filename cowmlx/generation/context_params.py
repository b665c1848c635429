"""How a context is opened."""

from __future__ import annotations

from cowmlx.cache.layers import KVQuantization
from cowmlx.cache.window import RollingWindow
from cowmlx.errors import InvalidArgument, OutOfRange
from cowmlx.generated import constants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.models.model import Model

OVERFLOWS = {constants.OVERFLOW_STOP: "stop", constants.OVERFLOW_ROLL: "roll"}


class ContextParams:
    """What ``cow_mlx_context_params`` says, all of it valid.

    Raises:
        InvalidArgument: a value is out of range.
        Unsupported: an option that the model cannot honour.
    """

    def __init__(self, fields: dict[str, Any], model: Model) -> None:
        self.max_tokens: int = fields["max_tokens"] or model.context_length
        if self.max_tokens > model.context_length:
            raise InvalidArgument(
                f"max_tokens is {self.max_tokens}, but the model's context length is "
                f"{model.context_length}; 0 stands for all of it",
                argument="max_tokens",
                value=self.max_tokens,
                accepted=f"{model.context_length}",
            )
        self.solo: bool = fields["solo"]
        self.priority: int = fields["priority"]
        self.share_prefix: bool = fields["share_prefix"]
        self.overflow: int = fields["overflow"]
        self.keep_tokens: int = fields["keep_tokens"]
        if self.overflow not in OVERFLOWS:
            known = " or ".join(f"{value} ({name})" for value, name in OVERFLOWS.items())
            raise OutOfRange("overflow", self.overflow, known)
        self.rolling: RollingWindow | None = None
        if self.overflow == constants.OVERFLOW_ROLL:
            if self.keep_tokens >= self.max_tokens:
                raise OutOfRange("keep_tokens", self.keep_tokens, f"less than {self.max_tokens}")
            self.rolling = RollingWindow(self.max_tokens, self.keep_tokens)
        elif self.keep_tokens:
            raise InvalidArgument(
                f"keep_tokens is {self.keep_tokens}, but nothing is dropped where overflow is "
                f"{constants.OVERFLOW_STOP}; leave it at 0",
                reason="conflict",
                argument="keep_tokens",
                other="overflow",
            )
        self.kv = KVQuantization(model, fields["kv_bits"], fields["kv_group_size"])
