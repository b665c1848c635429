"""Talk with a model in the terminal, or answer one message or the lines of a pipe."""

from __future__ import annotations

import argparse
import io
import json
import os
import secrets
import sys
from ctypes import byref, c_size_t
from typing import TYPE_CHECKING, Any

from cowmlx import json_text
from cowmlx.commands import installation, origin
from cowmlx.commands.terminal import CommandError, clear_progress, running, show_progress
from cowmlx.generated import status

if TYPE_CHECKING:
    from cowmlx.commands.chat.screen import PlainScreen
    from cowmlx.host.library import Library

_TEMPERATURE = 0.7  # where neither the user nor the model's folder says
_RECOMMENDED = "default: what the model's folder recommends, or else"
_SAMPLING: dict[str, tuple[type, str]] = {
    "temperature": (float, f"0 takes the likeliest token; {_RECOMMENDED} {_TEMPERATURE}"),
    "top_p": (float, f"sample from the likeliest tokens of this probability; {_RECOMMENDED} 1"),
    "min_p": (float, f"drop tokens below this part of the likeliest; {_RECOMMENDED} 0"),
    "top_k": (int, f"sample from this many tokens, 0 for all; {_RECOMMENDED} 0"),
    "top_n_sigma": (float, "keep logits within so many standard deviations; default: off"),
    "dry_multiplier": (float, "penalize repeated sequences (DRY); default: 0, off"),
    "dynatemp_range": (float, "vary the temperature by this much; default: 0"),
    "thinking_tokens": (int, "tokens of thinking before the answer; -1: no bound; default: -1"),
    "thinking_end_text": (str, "close thinking that is cut with this; default: the end marker"),
    "mirostat": (int, "control the surprise of tokens: 0 off, 2 on; default: 0"),
    "draft_tokens": (int, "tokens of a draft; default: 4 with --draft, or else 0"),
}
_FILTERS = ("top_p", "min_p", "typical_p", "top_k")  # that a model's folder may recommend
_MAX_BYTES = 1 << 20

# Exit statuses, besides 0 and that of Ctrl-C.
FAILED, USAGE, CONTEXT_FULL, UNSUPPORTED = 1, 2, 3, 4
_STATUSES = {
    status.EINVAL: USAGE,
    status.ECONTEXT: CONTEXT_FULL,
    status.EUNSUPPORTED: UNSUPPORTED,
}
# Of the command's own errors, for --json; ECHAT for others.
_NAMES = {USAGE: "EINVAL", CONTEXT_FULL: "ECONTEXT"}


def chat(arguments: argparse.Namespace) -> None:
    """Talk with a model in the terminal, or answer a prompt in a script."""
    origin.require_python()
    from cowmlx.commands.chat.conversation import ChatError
    from cowmlx.commands.chat.screen import screen
    from cowmlx.host.library import HostError, Library

    if isinstance(sys.stdout, io.TextIOWrapper):  # models say characters that it may lack
        sys.stdout.reconfigure(errors="backslashreplace")
    shown = screen(as_json=arguments.json)
    try:
        message = _message(arguments)
        options = {"tools": _read(arguments.tools)} if arguments.tools else {}
        show_progress(f"loading {arguments.model}")
        with Library(installation.library(), **_runtime(arguments)) as library:
            _talk(library, arguments, shown, options, message)
    except HostError as error:
        shown.error(error.name, error.message)
        raise CommandError(str(error), _STATUSES.get(error.status, FAILED)) from None
    except (ChatError, CommandError) as error:
        status = error.status if isinstance(error, CommandError) else FAILED
        shown.error(_NAMES.get(status, "ECHAT"), str(error))
        raise CommandError(str(error), status) from None


def _runtime(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the runtime's parameters."""
    size = arguments.prompt_cache_bytes
    if arguments.prompt_cache is None:
        if size is not None:
            raise CommandError("--prompt-cache-bytes needs --prompt-cache FOLDER", USAGE)
        return {}
    given = {"prompt_cache_dir": arguments.prompt_cache}
    return given if size is None else {**given, "prompt_cache_bytes": size}


def _talk(
    library: Library,
    arguments: argparse.Namespace,
    shown: PlainScreen,
    options: dict[str, Any],
    message: str | None,
) -> None:
    from cowmlx.commands.chat import input as reading
    from cowmlx.commands.chat.conversation import Conversation
    from cowmlx.commands.chat.session import Session
    from cowmlx.host.generated import declarations as abi

    model = _load(library, arguments)
    info = library.described("model_info", model)
    _check(library, model, options)
    context = library.opened("context_create", model, _context(library, arguments))
    sampling = _sampling(arguments, info["sampling"]) | _draft(library, arguments)
    conversation = Conversation(library, context, sampling, options, [])
    conversation.set_system(arguments.system)
    clear_progress()
    interactive = message is None and sys.stdin.isatty()
    if interactive:
        shown.note(f"{info['name']}: /help helps{reading.advice()}")
    session = Session(
        conversation,
        shown,
        reading.reader() if message is None else None,
        interactive=interactive,
        commands=interactive or arguments.commands,
    )
    if message is None:
        session.run()
    else:
        session.ask(message)
    last = conversation.last
    if not interactive and last is not None and last.finish == abi.FINISH_CONTEXT:
        raise CommandError("the context is full, and the answer is cut off", CONTEXT_FULL)


def _context(library: Library, arguments: argparse.Namespace) -> Any:
    """Return the context's parameters."""
    names = ("kv_bits", "checkpoint_interval")
    given = {name: getattr(arguments, name) for name in names}
    return library.params(
        "context", **{name: value for name, value in given.items() if value is not None}
    )


def _draft(library: Library, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what drafts tokens: a model, which is loaded, or the own heads of the chat's model."""
    given: dict[str, Any] = {"draft_heads": 1} if arguments.draft_heads else {}
    if arguments.draft:
        given["draft"] = _loaded(library, arguments.draft)
    return given


def _check(library: Library, model: int, options: dict[str, Any]) -> None:
    """Check that the model has a chat template which takes these options."""
    from cowmlx.host.generated import declarations as abi
    from cowmlx.host.library import HostError

    probe, given = b'[{"role": "user", "content": "Hello"}]', json.dumps(options).encode()
    count = c_size_t()
    try:
        library.call("model_chat_prompt", model, probe, len(probe), given, None, 0, byref(count))
    except HostError as error:
        if error.status != abi.EBUFFER:
            raise


def _message(arguments: argparse.Namespace) -> str | None:
    """Return the only message; None to talk."""
    from cowmlx.commands.chat import input as reading

    parts = [] if arguments.prompt is None else [arguments.prompt]
    if arguments.whole:
        parts.append(reading.whole())
    if not parts:
        return None
    if not any(part.strip() for part in parts):
        raise CommandError("the message is empty", USAGE)
    return "\n\n".join(part for part in parts if part)


def _load(library: Library, arguments: argparse.Namespace) -> int:
    from cowmlx.host.generated import declarations as abi

    kinds = {"exact": abi.ACTIVATIONS_EXACT, "int8": abi.ACTIVATIONS_INT8}
    given: dict[str, Any] = {}
    if arguments.activations:
        given["activations"] = kinds[arguments.activations]
    if arguments.adapter:
        given["adapter_path"] = arguments.adapter
    if arguments.quantize_bits:
        given["quantize_bits"] = arguments.quantize_bits
    if arguments.trust_remote_code:
        given["trust_remote_code"] = True
    return _loaded(library, arguments.model, **given)


def _loaded(library: Library, path: str, **given: Any) -> int:
    """Load a model, and show how far it is; Ctrl-C ends it."""
    from cowmlx.commands.chat.session import interrupts
    from cowmlx.host.library import HostError

    show_progress(f"loading {path}")
    with interrupts() as interrupted:

        def on_progress(fraction: float, stage: bytes) -> bool:
            show_progress(f"loading {path}: {stage.decode()} {fraction:.0%}")
            return not interrupted

        params = library.params("model", progress=on_progress, **given)
        try:
            model = library.opened("model_load", os.fsencode(path), params)
        except HostError:
            if interrupted:
                raise KeyboardInterrupt from None
            raise
    if interrupted:
        raise KeyboardInterrupt
    return model


def _sampling(arguments: argparse.Namespace, recommended: dict[str, Any]) -> dict[str, Any]:
    """Return the user's options, and for others what the model's folder recommends."""
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
            raise CommandError(f"--tools {path} is larger than {_MAX_BYTES:,} bytes", USAGE)
        return json_text.parse(text)
    except OSError as error:
        raise CommandError(f"--tools {path}: {error.strerror}", USAGE) from None
    except json_text.Malformed as error:
        raise CommandError(f"--tools {path}: {error}", USAGE) from None


_EPILOG = """\
exit status: 0 all messages are answered; 1 the model or a file cannot be used; 2 a wrong option or
value; 3 the conversation does not fit into the model's context; 4 the model cannot do what is
asked, such as a chat without a template; 130 ended by Ctrl-C
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``chat``."""
    parser = commands.add_parser("chat", help=chat.__doc__, description=__doc__, epilog=_EPILOG)
    option = parser.add_argument
    option("model", metavar="MODEL", help="a model's folder, or its name in the cache")
    text = "read one message from the standard input to its end; default: each line is a message"
    option("-", dest="whole", action="store_true", help=text)
    text = "answer this message and end; with - it comes first; default: read messages"
    option("-p", "--prompt", metavar="TEXT", help=text)
    text = "print events, one JSON object a line; default: text"
    option("--json", action="store_true", help=text)
    text = "obey lines such as /save FILE from a pipe, too; default: only in a terminal"
    option("--commands", action="store_true", help=text)
    option("--system", default="", metavar="TEXT", help="the system message; default: none")
    text = "offer tools: a JSON array of functions; the chat asks you for their results"
    option("--tools", metavar="FILE", help=f"{text}; default: none")
    text = "a LoRA or DoRA adapter for the model; default: none"
    option("--adapter", metavar="FOLDER", help=text)
    text = "whether products on a CPU round activations; default: to int8 or bfloat16 where it pays"
    option("--activations", choices=("exact", "int8"), help=text)
    text = "quantize the weights while they are read; default: as the folder has them"
    option("--quantize-bits", type=int, choices=(2, 3, 4, 5, 6, 8), help=text)
    text = "quantize the cache of keys and values; default: the model's own type"
    option("--kv-bits", type=int, choices=(4, 8), help=text)
    text = "keep the states of recurrent caches every so many tokens of a prompt; default: 1024"
    option("--checkpoint-interval", type=int, metavar="N", help=text)
    text = "a smaller model with the same vocabulary that drafts tokens; default: none"
    option("--draft", metavar="MODEL", help=text)
    text = "draft with the model's own heads for later tokens; default: no drafts"
    option("--draft-heads", action="store_true", help=text)
    text = "keep processed prompts in this folder for later chats; default: none"
    option("--prompt-cache", metavar="FOLDER", help=text)
    text = "bytes that the folder may take; default: 4 GiB"
    option("--prompt-cache-bytes", type=int, metavar="N", help=text)
    for name, (kind, text) in _SAMPLING.items():
        option(f"--{name.replace('_', '-')}", type=kind, metavar="X", dest=name, help=text)
    text = "same seed, same answers; default: another each time"
    option("--seed", type=int, metavar="N", help=text)
    text = "run Python code from the model's folder; default: refuse"
    option("--trust-remote-code", action="store_true", help=text)
    parser.set_defaults(run=running(chat, "", "model"))
