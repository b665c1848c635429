"""Tokenizers of GGUF files: ``tokenizer.json``, ``tokenizer_config.json`` and end tokens."""

from __future__ import annotations

import json
from typing import NamedTuple

from cowmlx.errors import BadFormat, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.folders.gguf_file import Contents

_MAX_PIECE = 1 << 12  # characters of a token
_NORMAL, _UNKNOWN, _CONTROL, _OWN = 1, 2, 3, 4  # types of tokens
_SPACE = "\u2581"
_BYTES, _SENTENCEPIECE = "gpt2", "llama"
# Texts of tokens that end an answer, of the families that can be converted.
_ENDS = (
    *("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>"),
    *("<end_of_turn>", "<eos>", "</s>", "<|end_of_text|>"),
)
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class _Splitting(NamedTuple):
    """How a family cuts texts into words before merges.

    Attributes:
        pattern: of words, "" for GPT-2's.
        single_digits: whether every digit is a word.
        composed: whether texts are normalized to NFC.
        whole_words: whether a word that is a token needs no merges.
    """

    pattern: str = ""
    single_digits: bool = False
    composed: bool = False
    whole_words: bool = False


_LLAMA3 = _Splitting(rf"{_ENGLISH}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}", whole_words=True)
_QWEN2 = _Splitting(rf"{_ENGLISH}|{_LETTERS}|\p{{N}}|{_REST}", composed=True)
_SPLITTINGS = {
    **dict.fromkeys(("default", "gpt-2"), _Splitting()),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "smaug-bpe"), _LLAMA3),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), _QWEN2),
    "smollm": _Splitting(single_digits=True),
}


class _Vocabulary:
    """The tokens of a file, checked."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.tokens: list[str] = self._list("tokens", str)
        count = len(self.tokens)
        if not count or len(set(self.tokens)) != count:
            raise self.bad("tokenizer.ggml.tokens is empty or has a token twice")
        if max(map(len, self.tokens)) > _MAX_PIECE:
            raise self.bad(f"a token has more than {_MAX_PIECE} characters")
        self.ids = {text: index for index, text in enumerate(self.tokens)}
        self.types: list[int] = self._list("token_type", int, count) or [_NORMAL] * count

    def value(self, name: str) -> Any:
        return self.contents.metadata.get(f"tokenizer.ggml.{name}")

    def id(self, name: str) -> int | None:
        """Return the token of a role, None if there is none.

        Raises:
            BadFormat: it is outside of the vocabulary.
        """
        value = self.value(f"{name}_token_id")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.bad(f"tokenizer.ggml.{name}_token_id is {value!r}")
        if value >= len(self.tokens):
            raise self.bad(
                f"tokenizer.ggml.{name}_token_id is {value}, outside of {len(self.tokens)} tokens"
            )
        return value

    def text(self, name: str) -> str | None:
        """Return the text of the token of a role."""
        index = self.id(name)
        return None if index is None else self.tokens[index]

    def _list(self, name: str, kind: type, count: int | None = None) -> list[Any]:
        value = self.value(name)
        if value is None:
            return []
        right = isinstance(value, list) and all(isinstance(item, kind) for item in value)
        if not right or (count is not None and len(value) != count):
            raise self.bad(f"tokenizer.ggml.{name} is no list of {count or ''} {kind.__name__}")
        return list(value)

    def scores(self) -> list[float]:
        """Return the scores of the tokens."""
        scores = self._list("scores", float, len(self.tokens))
        if not scores:
            raise self.bad("it has no tokenizer.ggml.scores")
        return scores

    def merges(self) -> list[tuple[str, str]]:
        """Return the merges that the file has.

        Raises:
            BadFormat: one is of no tokens.
        """
        made = []
        for text in self._list("merges", str):
            left, space, right = text.partition(" ")
            if not space or not {left, right, left + right} <= self.ids.keys():
                raise self.bad(f"the merge {text[:60]!r} is of no tokens")
            made.append((left, right))
        if not made:
            raise self.bad("it has no tokenizer.ggml.merges")
        return made

    def flag(self, name: str, default: bool) -> bool:
        """Return a setting that is true or false."""
        value = self.value(name)
        return value if isinstance(value, bool) else default

    def bad(self, reason: str) -> BadFormat:
        """Return an error of the file."""
        path = self.contents.path
        return BadFormat(f"{path}: {reason}", reason="invalid_tokenizer", file=path)


class Texts(NamedTuple):
    """The files of a tokenizer, and the tokens that a config names."""

    tokenizer: str
    settings: str
    config: dict[str, Any]


def texts(contents: Contents, context_length: int) -> Texts:
    """Return the files of a tokenizer.

    Raises:
        BadFormat: the vocabulary is damaged.
        Unsupported: it is of a kind that cannot be converted.
    """
    known = _Vocabulary(contents)
    kind = known.value("model")
    if kind == _BYTES:
        tokenizer = _of_bytes(known)
    elif kind == _SENTENCEPIECE:
        tokenizer = _of_sentencepiece(known)
    else:
        raise _unsupported(known, f"a tokenizer of the kind {kind!r}", (_BYTES, _SENTENCEPIECE))
    _add_tokens(tokenizer, known)
    _add_ends(tokenizer, known, kind)
    ends = [known.id("eos"), known.id("eot"), *(known.ids.get(text) for text in _ENDS)]
    ends = list(dict.fromkeys(end for end in ends if end is not None and _is_control(known, end)))
    return Texts(
        tokenizer.to_str(pretty=False),
        json.dumps(_settings(known, context_length), indent=1, ensure_ascii=False),
        {"bos_token_id": known.id("bos"), "eos_token_id": ends or None},
    )


def _unsupported(known: _Vocabulary, what: str, can: Any) -> Unsupported:
    path = known.contents.path
    return Unsupported(
        f"{path} has {what}, which cannot be converted; it can be {', '.join(can)}", file=path
    )


def _is_control(known: _Vocabulary, token: int) -> bool:
    return token == known.id("eos") or known.types[token] == _CONTROL


def _settings(known: _Vocabulary, context_length: int) -> dict[str, Any]:
    """Return ``tokenizer_config.json``."""
    roles = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_length,
    }
    for name, own in roles.items():
        if (text := known.text(name)) is not None:
            settings[f"{own}_token"] = text
    template = known.contents.metadata.get("tokenizer.chat_template")
    if isinstance(template, str):
        settings["chat_template"] = template
    return settings


# ----------------------------------------------------------------- Tokenizers


def _of_bytes(known: _Vocabulary) -> Any:
    """Return a byte-level BPE tokenizer."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    name = known.value("pre") or "default"
    how = _SPLITTINGS.get(name)
    if how is None:
        raise _unsupported(known, f"a pre-tokenizer {name!r}", _SPLITTINGS)
    tokenizer: Any = Tokenizer(
        models.BPE(vocab=known.ids, merges=known.merges(), ignore_merges=how.whole_words)
    )
    if how.composed:
        tokenizer.normalizer = normalizers.NFC()
    steps: list[Any] = []
    if how.single_digits:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    if how.pattern:
        steps.append(pre_tokenizers.Split(Regex(how.pattern), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not how.pattern))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _of_sentencepiece(known: _Vocabulary) -> Any:
    """Return a BPE tokenizer with the merges that the scores of a SentencePiece model mean."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    prefixed = known.flag("add_space_prefix", True)
    tokenizer: Any = Tokenizer(
        models.BPE(
            vocab=known.ids,
            merges=_merges_of_scores(known),
            unk_token=known.text("unknown"),
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps: list[Any] = [normalizers.Prepend(_SPACE)] if prefixed else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, *([decoders.Strip(" ", 1, 0)] * prefixed)])
    return tokenizer


def _merges_of_scores(known: _Vocabulary) -> list[tuple[str, str]]:
    """Return pairs of tokens that make a token, the token with the best score first."""
    scores, ids = known.scores(), known.ids
    ranked: list[tuple[float, int, int, int, str, str]] = []
    for index, (text, kind) in enumerate(zip(known.tokens, known.types, strict=True)):
        if kind not in (_NORMAL, _OWN):
            continue
        for cut in range(1, len(text)):
            left, right = text[:cut], text[cut:]
            if left in ids and right in ids:
                ranked.append((-scores[index], index, ids[left], ids[right], left, right))
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]


def _add_tokens(tokenizer: Any, known: _Vocabulary) -> None:
    """Add the tokens that a text is searched for before it is cut into words."""
    from tokenizers import AddedToken

    by_type: dict[bool, list[str]] = {True: [], False: []}
    for text, kind in zip(known.tokens, known.types, strict=True):
        if kind in (_UNKNOWN, _CONTROL, _OWN):
            by_type[kind != _OWN].append(text)
    special = [AddedToken(text, normalized=False, special=True) for text in by_type[True]]
    tokenizer.add_special_tokens(special)
    own = [AddedToken(text, normalized=False, special=False) for text in by_type[False]]
    tokenizer.add_tokens(own)


def _add_ends(tokenizer: Any, known: _Vocabulary, kind: str) -> None:
    """Let texts begin and end with the tokens that the file asks for."""
    from tokenizers import processors

    begin = known.text("bos") if known.flag("add_bos_token", kind == _SENTENCEPIECE) else None
    end = known.text("eos") if known.flag("add_eos_token", False) else None
    named = [text for text in (begin, end) if text is not None]
    if not named:
        return
    parts = [text for text in (begin, "$A", end) if text is not None]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=parts,
        pair=[*parts, *(f"{'$B' if part == '$A' else part}:1" for part in parts)],
        special_tokens=[(text, known.ids[text]) for text in dict.fromkeys(named)],
    )
