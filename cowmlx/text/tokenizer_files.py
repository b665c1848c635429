"""From a folder's tokenizer files to a :class:`Tokenizer`, as AutoTokenizer reads them.

transformers 5 takes only vocabulary, merges and post-processor from ``tokenizer.json`` for some
values of ``tokenizer_class`` and builds normalizer, pre-tokenizer and decoder again. Models were
trained and templates written with what AutoTokenizer does, so the same is done here for the
classes that language models name; every other class uses the file as it stands.
"""

from __future__ import annotations

import os
from functools import partial
from weakref import WeakValueDictionary

from cowmlx import resources
from cowmlx.errors import BadFormat, NotFound, Unsupported
from cowmlx.folders import config as config_files
from cowmlx.text import tokenizer_backend, tokenizer_bounds, vocabulary_file
from cowmlx.text.tokenizer import Tokenizer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_NAMED = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
# Vocabularies that only the packages behind the full route can read.
_FOREIGN = (
    *("tokenizer.model", "tiktoken.model", "spiece.model"),
    *("tekken.json", "vocab.json", "vocab.txt"),
)


def read_config(path: str) -> dict[str, Any]:
    """Read ``tokenizer_config.json``; an absent one is empty.

    Raises:
        BadFormat, InputOutput: malformed or unreadable.
    """
    return config_files.read_json(os.path.join(path, "tokenizer_config.json"), optional=True)


def needs_full_route(
    path: str, settings: dict[str, Any], config: dict[str, Any], *, trust_remote_code: bool
) -> bool:
    """Tell whether only transformers can make this folder's tokenizer.

    Args:
        path: the model's folder.
        settings: its ``tokenizer_config.json``.
        config: its ``config.json``.
        trust_remote_code: whether code of the folder may run.

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
    if vocabulary_file.is_usable(path, settings, config):
        return False
    names = os.listdir(path)
    if any(name in _FOREIGN or name.endswith(".tiktoken") for name in names):
        return True
    raise NotFound(
        f"{path} has no tokenizer.json nor another tokenizer file", file="tokenizer.json"
    )


def load(path: str, settings: dict[str, Any], config: dict[str, Any]) -> Tokenizer:
    """Make the tokenizer of ``tokenizer.json``, or of ``vocab.txt`` where that is all there is.

    Args:
        path: the model's folder.
        settings: its ``tokenizer_config.json``.
        config: its ``config.json``.

    Raises:
        BadFormat: a file is malformed.
        Unsupported: the package tokenizers is not there.
    """
    if not os.path.isfile(os.path.join(path, "tokenizer.json")):
        growth, backend, special = vocabulary_file.load(path, settings)
        tokenizer = Tokenizer(backend, special)
        tokenizer.growth = growth
        return tokenizer
    file = tokenizer_backend.File(os.path.join(path, "tokenizer.json"))
    key = _key(file, path, config)
    shared = _shared.get(key) if file.digest else None
    growth, backend = file.load() if shared is None else (shared.growth, shared.backend)
    try:
        if shared is None:
            shared = _Shared(growth, backend, _assemble(path, backend, settings, config))
        tokenizer = Tokenizer(backend, dict(shared.special))
    except (TypeError, ValueError, KeyError, AttributeError) as exc:
        raise BadFormat(
            f"{path}: the tokenizer's files do not fit together ({type(exc).__name__}: {exc})",
            reason="invalid_tokenizer",
            file=path,
        ) from exc
    if file.digest:
        _shared[key] = shared
        resources.trim()  # its parts were there in other forms
    tokenizer.growth = growth
    tokenizer.shared = shared
    return tokenizer


class _Shared:
    """What tokenizers of equal files share while one of them is used."""

    def __init__(self, growth: int, backend: Any, special: dict[str, str]) -> None:
        self.growth = growth
        self.backend = backend
        self.special = special


# By the contents of files and what else a tokenizer is made of.
_shared: WeakValueDictionary[tuple[str, ...], _Shared] = WeakValueDictionary()


def _key(file: tokenizer_backend.File, path: str, config: dict[str, Any]) -> tuple[str, ...]:
    """Return all that a tokenizer is made of, its large files by their hash."""
    if not file.digest:
        return ()
    from hashlib import sha256  # late: small models need none of it

    others = []
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        place = os.path.join(path, name)
        found = os.path.exists(place)
        others.append(sha256(config_files.read_bytes(place)).hexdigest() if found else "")
    return file.digest, *others, *(str(config.get(k)) for k in ("model_type", "tokenizer_class"))


def _assemble(
    path: str, backend: Any, settings: dict[str, Any], config: dict[str, Any]
) -> dict[str, str]:
    """Give a tokenizer what the other files say; returns its named special tokens."""
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
    name = class_name(
        declared if isinstance(declared, str) else None,
        str(config.get("model_type", "")),
        byte_level=is_byte_level(backend),
    )
    special = defaults(name)
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
        rebuild(backend, name, {**settings, **special})
    backend.no_truncation()
    backend.no_padding()
    _add_tokens(backend, added or {}, special, extra)
    if backend.post_processor is None:  # transformers makes this one
        from tokenizers import processors

        backend.post_processor = processors.TemplateProcessing(
            single="$A:0", pair="$A:0 $B:1", special_tokens=[]
        )
    return special


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


_GPT2_END = "<|endoftext|>"
_GPT2_NAMES = ("unk_token", "bos_token", "eos_token")

# Named special tokens that a class has when the files name none.
_DEFAULTS: dict[str, dict[str, str]] = {
    "LlamaTokenizer": {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    "GemmaTokenizer": {
        f"{name}_token": f"<{name}>" for name in ("unk", "bos", "eos", "pad", "mask")
    },
    "Qwen2Tokenizer": dict.fromkeys(("unk_token", "eos_token", "pad_token"), _GPT2_END),
    "Qwen3_5Tokenizer": dict.fromkeys(("unk_token", "eos_token", "pad_token"), _GPT2_END),
    "GPT2Tokenizer": dict.fromkeys(_GPT2_NAMES, _GPT2_END),
    "GPTNeoXTokenizer": {**dict.fromkeys(_GPT2_NAMES, _GPT2_END), "pad_token": "<|padding|>"},
    "CohereTokenizer": {
        "unk_token": "<UNK>",
        "bos_token": "<BOS_TOKEN>",
        "eos_token": "<|END_OF_TURN_TOKEN|>",
        "pad_token": "<PAD>",
        "cls_token": "<CLS>",
        "sep_token": "<SEP>",
        "mask_token": "<MASK_TOKEN>",
    },
}

# The class that transformers registers for a model type of mlx-lm.
_REGISTERED: dict[str, str] = {
    model_type: name
    for name, model_types in {
        "CohereTokenizer": "cohere cohere2",
        "GemmaTokenizer": "gemma gemma2 gemma3 gemma3_text gemma3n recurrent_gemma",
        "GPTNeoXTokenizer": "falcon_mamba gpt_neox mamba mamba2 olmo olmoe",
        "GPT2Tokenizer": "dbrx gpt2 gptj phi starcoder2",
        "Qwen2Tokenizer": "qwen2 qwen2_5_vl qwen2_moe qwen2_vl qwen3 qwen3_moe qwen3_next qwen3_vl"
        " qwen3_vl_moe",
        "Qwen3_5Tokenizer": "qwen3_5 qwen3_5_moe",
    }.items()
    for model_type in model_types.split()
}
# Model types whose registered class overrides the one that their folders name.
_OVERRIDING = frozenset(("qwen2", "qwen3_5", "qwen3_5_moe"))

# Model types for which transformers uses the file as it stands, whatever class is named.
_STORED = (
    "ernie4_5 ernie4_5_moe glm glm4 glm4_moe glm4_moe_lite gpt_bigcode granite granitemoe "
    "granitemoehybrid internlm2 internlm3 iquestcoder jamba kimi_k25 kimi_linear llava "
    "mimo_v2_flash minicpm3 minimax_m2 ministral3 mistral mistral3 mixtral nemotron olmo2 "
    "olmo3 olmo_hybrid phi3 phimoe pixtral stablelm"
)
_AS_STORED = frozenset(_STORED.split())

_QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    r"|[^\r\n\p{L}\p{N}]?\p{L}+"
    r"|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
# The same with combining marks counted as letters.
_QWEN3_5_WORDS = _QWEN2_WORDS.replace(r"?\p{L}+", r"?[\p{L}\p{M}]+").replace(
    r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"
)


def class_name(declared: str | None, model_type: str, *, byte_level: bool) -> str | None:
    """Return the class that AutoTokenizer would build again; None if it uses the file as stored.

    Args:
        declared: ``tokenizer_class`` of the tokenizer's or the model's config.
        model_type: the model's.
        byte_level: whether the file's pre-tokenizer or decoder is byte-level.
    """
    declared = (declared or "").removesuffix("Fast")
    registered = _REGISTERED.get(model_type)
    byte_level_llama = declared == "LlamaTokenizer" and byte_level
    if model_type in _AS_STORED or (byte_level_llama and model_type not in _OVERRIDING):
        chosen = None
    elif not declared or (model_type in _OVERRIDING and declared != registered):
        chosen = registered
    else:
        chosen = declared
    return chosen if chosen in _DEFAULTS else None


def defaults(name: str | None) -> dict[str, str]:
    """Return the special tokens that a class has when the files name none."""
    return dict(_DEFAULTS.get(name or "", {}))


def rebuild(backend: Any, name: str, options: dict[str, Any]) -> None:
    """Give a tokenizer the parts that its class builds again.

    A tokenizer whose model is not BPE is left alone: transformers gives it a vocabulary
    without merges, which no model was trained with.

    Args:
        backend: a tokenizer of the library, just loaded from its file.
        name: one of the names :func:`class_name` returns.
        options: ``tokenizer_config.json`` and the named special tokens.
    """
    if type(backend.model).__name__ == "BPE":
        _BUILDERS[name](backend, options)


def is_byte_level(backend: Any) -> bool:
    """Tell whether a tokenizer's pre-tokenizer or decoder is byte-level."""
    return any(
        part is not None and b'"ByteLevel"' in part.__getstate__()
        for part in (backend.pre_tokenizer, backend.decoder)
    )


def _set_model(backend: Any, *, fuse: bool, fallback: bool, unknown: str | None) -> None:
    model = backend.model
    model.fuse_unk = fuse
    model.byte_fallback = fallback
    model.unk_token = unknown
    model.ignore_merges = False
    model.dropout = None


def _llama(backend: Any, options: dict[str, Any]) -> None:
    from tokenizers import decoders, pre_tokenizers

    prefix = options.get("add_prefix_space")
    prefix = True if prefix is None else bool(prefix)
    scheme = ("always" if options.get("legacy", False) else "first") if prefix else "never"
    steps: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefix:
        steps.append(decoders.Strip(content=" ", left=1))
    _set_model(backend, fuse=True, fallback=True, unknown=None)
    backend.normalizer = None
    backend.pre_tokenizer = pre_tokenizers.Metaspace(
        replacement="▁", prepend_scheme=scheme, split=False
    )
    backend.decoder = decoders.Sequence(steps)


def _gemma(backend: Any, options: dict[str, Any]) -> None:
    from tokenizers import decoders, normalizers, pre_tokenizers

    _set_model(backend, fuse=True, fallback=True, unknown=options.get("unk_token"))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(
        pattern=" ", behavior="merged_with_previous", invert=False
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )


def _byte_level(
    backend: Any,
    options: dict[str, Any],
    *,
    normalized: bool = True,
    words: str | None = None,
    digits: bool = False,
) -> None:
    """Give a tokenizer byte-level parts.

    Args:
        backend: the tokenizer.
        options: may have ``add_prefix_space``.
        normalized: whether texts are normalized, by NFC.
        words: a pattern to split at; that of GPT-2 if not given.
        digits: split digits from each other, too.
    """
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    if words is not None:
        steps.append(pre_tokenizers.Split(Regex(words), behavior="isolated", invert=False))
    prefix = bool(options.get("add_prefix_space"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=words is None))
    _set_model(backend, fuse=False, fallback=False, unknown=None)
    backend.normalizer = normalizers.NFC() if normalized else None
    backend.pre_tokenizer = steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)
    backend.decoder = decoders.ByteLevel()


_BUILDERS: dict[str, Callable[[Any, dict[str, Any]], None]] = {
    "LlamaTokenizer": _llama,
    "GemmaTokenizer": _gemma,
    "Qwen2Tokenizer": partial(_byte_level, words=_QWEN2_WORDS),
    "Qwen3_5Tokenizer": partial(_byte_level, words=_QWEN3_5_WORDS),
    "GPT2Tokenizer": partial(_byte_level, normalized=False),
    "GPTNeoXTokenizer": _byte_level,
    "CohereTokenizer": partial(_byte_level, digits=True),
}
