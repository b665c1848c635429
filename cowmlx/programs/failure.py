"""Errors of programs: each names the node, its operation and its function."""

from __future__ import annotations

from collections.abc import Sequence

from cowmlx.errors import CowMlxError, InvalidArgument, Unsupported
from cowmlx.programs.bounds import MAX_NAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.generated.reasons import Reason


class ProgramError(InvalidArgument):
    """A program, or something given to one, that is wrong.

    Args:
        reason: one of ``COW_MLX_REASONS``.
        sentence: what is wrong, and what would be accepted.
        details: what ``cow_mlx_error_details`` has with the reason; None is left out.
    """

    def __init__(self, reason: Reason, sentence: str, **details: Any) -> None:
        super().__init__(sentence, reason=reason, **details)


def text_of(name: str | bytes) -> str:
    """Return a name of a file as text: those that are not UTF-8 are read as bytes."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else name


def shown(value: object, limit: int = 80) -> str:
    """Return a value from outside for a message, of bounded length."""
    if isinstance(value, dict | list):
        return "a list" if isinstance(value, list) else "an object"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**64:
        return "a huge number"
    value = text_of(value) if isinstance(value, bytes) else value
    text = repr(value[: limit + 1] if isinstance(value, str) else value)
    return text if len(text) <= limit + 2 else f"{text[:limit]}…"


def refused(
    what: str, value: object, accepted: str, reason: Reason = "wrong_type", **details: Any
) -> ProgramError:
    """Return the error of a value that is not what is accepted."""
    text = shown(value)
    return ProgramError(
        reason,
        f"{what} is {text}, must be {accepted}",
        **{"value": text, "accepted": accepted, **details},
    )


def too_many(what: str, number: int, unit: str, limit: int, hint: str = "") -> ProgramError:
    """Return the error of more than a bound."""
    return ProgramError(
        "limit_exceeded",
        f"{what} has {number} {unit}, must have at most {limit}{hint}",
        needed=number,
        limit=limit,
    )


def require_count(noun: str, given: int, count: int, declared: Sequence[Any]) -> None:
    """Raise ProgramError unless a run has as many inputs or outputs as its program."""
    if given != count:
        names = ", ".join(shown(each.name) for each in declared[:16])
        raise ProgramError(
            "missing" if given < count else "out_of_range",
            f"the run has {given} {noun}, must have {count}: {names}",
            argument=noun,
            value=given,
            accepted=f"{count}",
        )


def place_of(node: str, op: str, function: str = "") -> str:
    """Return where a node is, for a message."""
    within = f" in function {shown(function)}" if function else ""
    return f"node {shown(node)} ({op}){within}"


def placed(error: CowMlxError, node: str, op: str, function: str = "") -> CowMlxError:
    """Return an error of an operation with the node that it is of."""
    details = {
        **error.details,
        "node": node[:MAX_NAME],
        "op": op,
        "function": function[:MAX_NAME] or None,
    }
    message = f"{place_of(node, op, function)}: {error}"
    if isinstance(error, InvalidArgument):
        return ProgramError(error.reason, message, **details)
    kind = Unsupported if isinstance(error, Unsupported) else CowMlxError
    return kind(message, reason=error.reason, **details)


def combined(problems: Sequence[CowMlxError], more: int = 0) -> CowMlxError:
    """Return one error for several: the first's, with the sentences of all.

    Args:
        problems: one at least.
        more: how many there are beside them.
    """
    first = problems[0]
    if len(problems) == 1:
        return first
    sentences = [str(error) for error in problems]
    sentences += [f"and {more} more" for _ in range(more > 0)]
    message = "; ".join(sentences)
    details = {**first.details, "problems": len(problems) + more}
    if isinstance(first, InvalidArgument):
        return ProgramError(first.reason, message, **details)
    kind = Unsupported if isinstance(first, Unsupported) else CowMlxError
    return kind(message, reason=first.reason, **details)
