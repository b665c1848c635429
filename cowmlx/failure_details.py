"""A failure as the JSON object that ``cow_mlx_error_details`` gives."""

from __future__ import annotations

import json
import math

from cowmlx.errors import CowMlxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.generated.reasons import Reason


def reason_of(error: BaseException) -> Reason:
    """Return why it failed."""
    return error.reason if isinstance(error, CowMlxError) else "internal"


def details_of(error: BaseException) -> dict[str, Any]:
    """Return what is known of it: texts and numbers."""
    details = error.details if isinstance(error, CowMlxError) else {}
    return {key: _value(value) for key, value in details.items()}


def encode(
    operation: str, reason: str, details: dict[str, Any], size: int
) -> tuple[bytes, dict[str, Any]]:
    """Return all as UTF-8 of at most ``size`` bytes, and the details that fit."""
    fitting: dict[str, Any] = {}
    text = _encoded(operation, reason, fitting)
    for key, value in details.items():
        longer = _encoded(operation, reason, {**fitting, key: value})
        if len(longer) <= size:
            fitting[key] = value
            text = longer
    return text, fitting


def _encoded(operation: str, reason: str, details: dict[str, Any]) -> bytes:
    value = {"operation": operation, "reason": reason, "details": details}
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _value(value: object) -> str | int | float:
    """Return a value as JSON has one: no infinity, and nothing of an untrusted file's depth."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value:g}"
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return f"{value}"
    return value if isinstance(value, str | int | float) else repr(value)
