"""From a folder's tokenizer files to a :class:`Tokenizer`, as AutoTokenizer reads them."""

from __future__ import annotations

import os

from cowmlx import resources
from cowmlx.errors import BadFormat, NotFound, Unsupported
from cowmlx.folders import config as config_files
from cowmlx.text import tokenizer_bounds, tokenizer_classes
from cowmlx.text.tokenizer import Tokenizer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMED = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
# How many times its file's size a tokenizer takes, while it is being read.
_TIMES_IN_MEMORY = 16
# Vocabularies that only the packages behind the full route can read.
_FOREIGN = (
    "tokenizer.model",
    "tiktoken.model",
    "tekken.json",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
)


def read_config(path: str) -> dict[str, Any]:
    """Read ``tokenizer_config.json``; an absent one is empty.

    Raises:
        BadFormat, InputOutput: malformed or unreadable.
    """
    return config_files.read_json(os.path.join(path, "tokenizer_config.json"), optional=True)


def needs_full_route(path: str, settings: dict[str, Any], *, trust_remote_code: bool) -> bool:
    """Tell whether only transformers can make this folder's tokenizer.

    Raises:
        NotFound: the folder has no tokenizer at all.
        Unsupported: it needs code from the folder, which is not trusted.
    """
    own_code = _own_code(settings)
    if os.path.isfile(os.path.join(path, "tokenizer.json")):
        special_class = settings.get("tokenizer_class") == "NewlineTokenizer"
        return (
            special_class
            or settings.get("fix_mistral_regex") is True
            or (own_code and trust_remote_code)
        )
    if own_code:
        if not trust_remote_code:
            raise Unsupported(
                f"the tokenizer of {path} is code in that folder; set "
                "trust_remote_code if you trust it",
                reason="untrusted_code",
                file=path,
            )
        return True
    names = os.listdir(path)
    if any(name in _FOREIGN or name.endswith(".tiktoken") for name in names):
        return True
    raise NotFound(
        f"{path} has no tokenizer.json nor another tokenizer file", file="tokenizer.json"
    )


def load(path: str, settings: dict[str, Any], config: dict[str, Any]) -> Tokenizer:
    """Make the tokenizer of ``tokenizer.json``.

    Args:
        path: the model's folder.
        settings: its ``tokenizer_config.json``.
        config: its ``config.json``.

    Raises:
        BadFormat: a file is malformed.
        Unsupported: the package tokenizers is not there.
    """
    file = os.path.join(path, "tokenizer.json")
    growth = tokenizer_bounds.check(file)
    backend = _parse(file)
    try:
        tokenizer = _assemble(path, backend, settings, config)
    except (TypeError, ValueError, KeyError, AttributeError) as exc:
        raise BadFormat(
            f"{path}: the tokenizer's files do not fit together ({type(exc).__name__}: {exc})",
            reason="invalid_tokenizer",
            file=path,
        ) from exc
    tokenizer.growth = growth
    return tokenizer


def _parse(file: str) -> Any:
    try:
        import tokenizers
    except ImportError as exc:
        raise Unsupported(
            f"{file} needs the package tokenizers, which cannot be imported here ({exc}); "
            "install it",
            reason="package_unusable",
            package="tokenizers",
        ) from exc

    if not os.path.getsize(file):
        raise BadFormat(f"{file} is empty", file=file)
    # The library ends the process where memory does.
    resources.require_memory(_TIMES_IN_MEMORY * os.path.getsize(file), file)
    try:
        return tokenizers.Tokenizer.from_file(file)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as exc:
        # The library's panics are no Exceptions.
        raise BadFormat(
            f"{file} is not a usable tokenizer ({exc})", reason="invalid_tokenizer", file=file
        ) from exc


def _assemble(
    path: str, backend: Any, settings: dict[str, Any], config: dict[str, Any]
) -> Tokenizer:
    added = settings.get("added_tokens_decoder")
    tokens = {key: settings[key] for key in settings if key.endswith("_token")}
    extra = settings.get("extra_special_tokens") or settings.get("additional_special_tokens") or []
    if added is None:
        file = os.path.join(path, "special_tokens_map.json")
        legacy = config_files.read_json(file, optional=True)
        tokens.update({key: value for key, value in legacy.items() if key.endswith("_token")})
        extra = (
            legacy.get("extra_special_tokens") or legacy.get("additional_special_tokens") or extra
        )
    if isinstance(extra, dict):
        tokens.update(extra)
        extra = []
    declared = settings.get("tokenizer_class") or config.get("tokenizer_class")
    name = tokenizer_classes.class_name(
        declared if isinstance(declared, str) else None,
        str(config.get("model_type", "")),
        byte_level=tokenizer_classes.is_byte_level(backend),
    )
    special = tokenizer_classes.defaults(name)
    for key, value in tokens.items():
        text = _text(value)
        if text is not None:
            special[key] = text
        elif key in settings and value is None:
            # An explicit null unsets what the class would have.
            special.pop(key, None)
    order = {key: place for place, key in enumerate(_NAMED)}
    special = dict(sorted(special.items(), key=lambda item: order.get(item[0], len(order))))
    if name is not None:
        tokenizer_classes.rebuild(backend, name, {**settings, **special})
    backend.no_truncation()
    backend.no_padding()
    _add_tokens(backend, added or {}, special, extra)
    if backend.post_processor is None:
        _add_nothing(backend)
    return Tokenizer(backend, special)


def _add_tokens(
    backend: Any, stored: dict[str, Any], special: dict[str, str], extra: list[Any]
) -> None:
    """Add the tokens that the configs know and ``tokenizer.json`` does not."""
    from tokenizers import AddedToken

    have = {token.content for token in backend.get_added_tokens_decoder().values()}
    new: list[Any] = []
    for _, fields in sorted(stored.items(), key=lambda item: int(item[0])):
        if fields["content"] not in have:
            flags = {key: value for key, value in fields.items() if key != "__type"}
            new.append(AddedToken(**flags))
            have.add(fields["content"])
    for text in [*special.values(), *(_text(token) for token in extra)]:
        if text and text not in have:
            new.append(AddedToken(text, special=True))
            have.add(text)
    tokenizer_bounds.check_added(have, "tokenizer_config.json")
    if new:
        backend.add_tokens(new)


def _add_nothing(backend: Any) -> None:
    """Use the post-processor that transformers makes when the file has none."""
    from tokenizers import processors

    backend.post_processor = processors.TemplateProcessing(
        single="$A:0", pair="$A:0 $B:1", special_tokens=[]
    )


def _text(token: Any) -> str | None:
    """Return a token's text: the files hold strings, or objects with a content."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _own_code(settings: dict[str, Any]) -> bool:
    mapping = settings.get("auto_map")
    if isinstance(mapping, dict):
        mapping = mapping.get("AutoTokenizer")
    return bool(mapping)
