"""What mlx says where it cannot differentiate, vectorise or compile an operation."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

from cowmlx.errors import Unsupported

_NOT_IMPLEMENTED = re.compile(
    r"\[Primitive::(vjp|jvp|vmap)\] Not implemented for ([\w:]+)|"
    r"\[([\w:]+)::(vjp|jvp|vmap)\][^\n]*(?:not|NYI)[^\n]*",
    re.IGNORECASE,
)
_WORDS = {"vjp": "differentiate", "jvp": "differentiate", "vmap": "vectorise"}


@contextmanager
def told(steps: tuple[str, ...]) -> Generator[None]:
    """Turn what mlx cannot into an error that names its primitive.

    Args:
        steps: what was derived.

    Raises:
        Unsupported: mlx lacks a derivative or a vectorisation.
    """
    try:
        yield
    except (ValueError, RuntimeError) as error:
        found = _NOT_IMPLEMENTED.search(str(error))
        if found is None or not steps:
            raise
        kind = (found[1] or found[4]).lower()
        name = found[2] or found[3]
        raise Unsupported(
            f"mlx cannot {_WORDS[kind]} {name} in this composition: {', then '.join(steps)}",
            op=name,
            steps=", then ".join(steps)[:512],
        ) from error
