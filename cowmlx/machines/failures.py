"""What workers and ranks say when something fails, and what hosts make of it."""

from __future__ import annotations

from typing import get_args

from cowmlx import errors
from cowmlx.generated.reasons import Reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_TEXT = 1000
_KINDS: dict[str, type[errors.CowMlxError]] = {
    kind.__name__: kind
    for kind in (
        errors.InvalidArgument,
        errors.NotFound,
        errors.BadFormat,
        errors.Unsupported,
        errors.OutOfMemory,
        errors.InputOutput,
        errors.BadState,
        errors.Lost,
    )
}
_REASONS = frozenset(get_args(Reason))


def described(error: BaseException) -> dict[str, Any]:
    """Return an error as it is sent."""
    kind = next((name for name, kind in _KINDS.items() if isinstance(error, kind)), "")
    told = str(error) if kind else f"{type(error).__name__}: {error}"
    return {"kind": kind, "reason": getattr(error, "reason", ""), "message": told[:MAX_TEXT]}


def understood(told: object, address: str, rank: int) -> errors.CowMlxError:
    """Return the error that a machine has told of; whatever it is, it is one of ours."""
    told = told if isinstance(told, dict) else {}
    message = printable(told.get("message")) or "it does not say why"
    kind = _KINDS.get(str(told.get("kind")), errors.Lost)
    given: Any = told.get("reason")
    reason: Any = given if isinstance(given, str) and given in _REASONS else None
    if kind is errors.Lost and reason is None:
        reason = "machine_lost"
    whose = {"machine": address, "rank": rank} if reason == "machine_lost" else {}
    return kind(f"rank {rank} ({address}): {message}", reason=reason, **whose)


def printable(text: object) -> str:
    """Return a text of another machine's, as far as it can be shown."""
    if not isinstance(text, str):
        return ""
    return "".join(letter if letter.isprintable() else " " for letter in text[:MAX_TEXT])
