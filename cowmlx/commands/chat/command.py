"""Talk with a model in the terminal; /help tells what it can do."""

from __future__ import annotations

import argparse
import os
import secrets
import sys

from cowmlx import json_text
from cowmlx.commands import installation, pythons
from cowmlx.commands.terminal import CommandError, running

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.host.library import Library

_TEMPERATURE = 0.7  # where neither the user nor the model's folder says
_SAMPLING = {
    "temperature": float,
    "top_p": float,
    "min_p": float,
    "top_k": int,
    "top_n_sigma": float,
    "dry_multiplier": float,
    "dynatemp_range": float,
    "mirostat": int,
}
_FILTERS = ("top_p", "min_p", "typical_p", "top_k")  # that a model's folder may recommend
_MAX_BYTES = 1 << 20


def chat(arguments: argparse.Namespace) -> None:
    """Talk with a model in the terminal."""
    if lack := pythons.wrong():
        raise CommandError(f"{lack}; {pythons.right()}")
    from cowmlx.commands.chat.conversation import Conversation
    from cowmlx.commands.chat.input import reader
    from cowmlx.commands.chat.screen import screen
    from cowmlx.commands.chat.session import Session
    from cowmlx.host.library import HostError, Library

    options = {"tools": _read(arguments.tools)} if arguments.tools else {}
    shown = screen()
    try:
        with Library(installation.library()) as library:
            model = _load(library, arguments)
            info = library.described("model_info", model)
            params = {"kv_bits": arguments.kv_bits} if arguments.kv_bits else {}
            filled = library.params("context", **params)
            context = library.opened("context_create", model, filled)
            sampling = _sampling(arguments, info["sampling"])
            conversation = Conversation(library, context, sampling, options, [])
            conversation.set_system(arguments.system)
            if sys.stdin.isatty():
                shown.note(f"{info['name']}: /help helps")
            Session(conversation, shown, reader()).run()
    except HostError as error:
        raise CommandError(str(error)) from None


def _load(library: Library, arguments: argparse.Namespace) -> int:
    from cowmlx.host import declarations as abi

    kinds = {"exact": abi.ACTIVATIONS_EXACT, "int8": abi.ACTIVATIONS_INT8}
    given: dict[str, Any] = {}
    if arguments.activations:
        given["activations"] = kinds[arguments.activations]
    if arguments.adapter:
        given["adapter_path"] = arguments.adapter
    if arguments.trust_remote_code:
        given["trust_remote_code"] = True
    params = library.params("model", **given)
    return library.opened("model_load", os.fsencode(arguments.model), params)


def _sampling(arguments: argparse.Namespace, recommended: dict[str, Any]) -> dict[str, Any]:
    """What the user says, or else what the model's folder recommends."""
    given = {name: getattr(arguments, name) for name in _SAMPLING}
    said = {name: value for name, value in given.items() if value is not None}
    if said.get("mirostat"):  # which goes with no filter
        recommended = {name: recommended[name] for name in recommended if name not in _FILTERS}
    seed = secrets.randbits(64) if arguments.seed is None else arguments.seed % 2**64
    return {"temperature": _TEMPERATURE, **recommended, **said, "seed": seed}


def _read(path: str) -> Any:
    try:
        with open(path, "rb") as file:
            text = file.read(_MAX_BYTES + 1)
        if len(text) > _MAX_BYTES:
            raise CommandError(f"{path} is larger than {_MAX_BYTES:,} bytes")
        return json_text.parse(text)
    except (OSError, json_text.Malformed) as error:
        raise CommandError(f"{path}: {error}") from None


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``chat``."""
    parser = commands.add_parser("chat", help=chat.__doc__, description=__doc__)
    parser.add_argument("model", metavar="MODEL", help="a model's folder")
    parser.add_argument("--system", default="", metavar="TEXT", help="what the model is told first")
    parser.add_argument("--tools", metavar="FILE", help="tools as JSON; you give what they give")
    parser.add_argument("--adapter", metavar="FOLDER", help="an adapter of the model")
    parser.add_argument("--activations", choices=("exact", "int8"), help="as in the header")
    parser.add_argument("--kv-bits", type=int, choices=(4, 8), help="quantise keys and values")
    for name, kind in _SAMPLING.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar="X", dest=name)
    parser.add_argument("--seed", type=int, metavar="N", help="the same seed, the same answers")
    parser.add_argument("--trust-remote-code", action="store_true", help="run the folder's code")
    parser.set_defaults(run=running(chat, "", "model"))
