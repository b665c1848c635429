"""What a model's folder says for its users: how to sample, and under which licence it is."""

from __future__ import annotations

import os
import re

from cowmlx.errors import CowMlxError
from cowmlx.folders import config as config_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Of generation_config.json: the members of cow_mlx_generation_params by the same names.
_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, 100),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "typical_p": (0, 1),
    "top_k": (0, 2**31 - 1),
    "repetition_penalty": (0, 100),
}
_POSITIVE = ("top_p", "typical_p", "repetition_penalty")
_WHOLE = ("top_k",)
_MAX_README = 1 << 16  # bytes that are looked through for a licence
_FRONT = re.compile(r"---\s*\n(.*?)\n---\s*\n", re.DOTALL)
_LICENSE = re.compile(r"^license(_name)?:\s*[\"']?([\w.+-]{1,64})", re.MULTILINE)


def sampling(path: str) -> dict[str, float]:
    """Return what ``generation_config.json`` recommends; values that cannot be are left out.

    Greedy where it says that nothing is to be sampled.
    """
    try:
        found = config_files.read_json(os.path.join(path, "generation_config.json"), optional=True)
    except CowMlxError:
        return {}  # mlx-lm ignores a malformed one
    if found.get("do_sample") is False:
        return {"temperature": 0.0}
    told: dict[str, float] = {}
    for name, (low, high) in _RANGES.items():
        value = found.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if low <= value <= high and not (name in _POSITIVE and value == 0):
            told[name] = int(value) if name in _WHOLE else float(value)
    return told


def licence(path: str, config: dict[str, Any]) -> str | None:
    """Return the licence that the config or the front matter of the README names."""
    named = config.get("license")
    if isinstance(named, str) and _LICENSE.fullmatch(f"license: {named}"):
        return named
    try:
        with open(os.path.join(path, "README.md"), "rb") as file:
            text = file.read(_MAX_README).decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError:
        return None
    front = _FRONT.match(text)
    found = dict(_LICENSE.findall(front[1])) if front else {}
    return found.get("_name") or found.get("")
