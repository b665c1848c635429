"""The models that lie in Hugging Face's cache and in folders, and whether they fit this machine."""

from __future__ import annotations

import argparse
import json
import os
from typing import TYPE_CHECKING, Any

from cowmlx.commands import installation, origin
from cowmlx.commands.terminal import CommandError, running, show_progress, write

if TYPE_CHECKING:
    from cowmlx.host.library import Library

_COMFORTABLE = 0.75  # of the machine's memory: the rest is the system's and other programs'
_BESIDE = 40 << 20  # bytes of the process besides the weights
_TOKENS = 4000  # of a conversation whose cache has to fit, too
_MAX_NAME = 48


def models(arguments: argparse.Namespace) -> None:
    """List the models in Hugging Face's cache and in folders: size, and whether they load."""
    origin.require_python()
    from cowmlx.host.library import HostError, Library

    try:
        with Library(installation.library()) as library:
            rows = [_described(library, path, arguments) for path in _folders(arguments.folder)]
    except HostError as error:  # of the start
        raise CommandError(str(error)) from None
    if arguments.json:
        write(json.dumps(rows, indent=1) + "\n")
    elif rows:
        write(_table(rows))
    else:
        write("no models; name folders, or download one: hf download ORG/NAME\n")


def _described(library: Library, path: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what is known of a folder, and whether it fits."""
    from cowmlx.host.library import HostError

    show_progress(f"looking at {path}")
    try:
        facts = library.described("model_inspect", os.fsencode(path), arguments.kv_bits)
    except HostError as error:  # an unfinished download
        facts = {"name": os.path.basename(path), "path": path, "loads": False}
        facts["problem"] = {"message": error.message}
    return {**facts, **_fits(facts)}


def _folders(given: list[str]) -> list[str]:
    """Return folders that may be models: the cache's entries, given ones, and folders in them."""
    from cowmlx.folders import places

    folders = []
    cache = places.cache()
    if os.path.isdir(cache):
        folders = [os.path.join(cache, name) for name in sorted(os.listdir(cache))]
        folders = [path for path in folders if os.path.basename(path).startswith("models--")]
    for folder in given:
        folder = places.resolved(folder)
        if folder.endswith(".gguf") and os.path.isfile(folder):
            folders.append(folder)  # the library says what to do with it
            continue
        if not os.path.isdir(folder):
            raise CommandError(f"no such directory: {folder}")
        if _is_model(folder):
            folders.append(folder)
            continue
        inner = (os.path.join(folder, name) for name in sorted(os.listdir(folder)))
        folders += [path for path in inner if _is_model(path)]
    return folders


def _is_model(path: str) -> bool:
    """Whether a folder is a model's, also in another format."""
    if not os.path.isdir(path):
        return False
    try:
        names = os.listdir(path)
    except OSError:  # not the user's
        return False
    return (
        "config.json" in names
        or os.path.basename(os.path.abspath(path)).startswith("models--")
        or any(name.endswith((".gguf", ".safetensors")) for name in names)
    )


def _fits(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the bytes that a conversation takes, and whether this machine has them."""
    if not facts["loads"]:
        return {"needed_bytes": None, "fits": None}
    cache = (facts["cache_bytes_per_1000_tokens"] or 0) * _TOKENS // 1000
    needed = facts["bytes"] + cache + _BESIDE
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fits = "yes" if needed <= _COMFORTABLE * memory else "tight" if needed <= memory else "no"
    return {"needed_bytes": needed, "fits": fits}


def _table(found: list[dict[str, Any]]) -> str:
    heads = ("model", "architecture", "parameters", "bits", "memory", "context", "fits")
    rows = [heads, *(_row(facts) for facts in found)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(heads))]
    lines = [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    for facts in found:
        if facts["problem"]:
            lines += ["", f"{facts['name']}: {facts['problem']['message']}"]
    return "\n".join(lines) + "\n"


def _row(facts: dict[str, Any]) -> tuple[str, ...]:
    name = facts["name"]
    if len(name) > _MAX_NAME:
        name = name[: _MAX_NAME - 1] + "…"
    architecture = facts.get("architecture") or "?"
    if not facts["loads"]:
        return (name, architecture, "", "", "", "", "does not load")
    return (
        name,
        architecture,
        _short(facts["parameters"]),
        str(facts["bits"]),
        f"{facts['needed_bytes'] / 1e9:.2f} GB",
        f"{facts['context_length']:,}",
        facts["fits"],
    )


def _short(count: int) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``models``."""
    parser = commands.add_parser("models", help=models.__doc__, description=models.__doc__)
    option = parser.add_argument
    option("folder", metavar="FOLDER", nargs="*", help="a model's folder, or a folder of models")
    text = "print all that is known as JSON; default: a table"
    option("--json", action="store_true", help=text)
    text = "compute memory for keys and values of so many bits; default: 0, the model's own type"
    option("--kv-bits", type=int, choices=(0, 4, 8), default=0, help=text)
    parser.set_defaults(run=running(models, "", "folder"))
