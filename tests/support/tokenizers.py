"""Small tokenizers of every family, made of a few sentences; the same ones every time."""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any

TEXTS = [
    "The quick brown fox jumps over the lazy dog. The dog sleeps, and the fox runs away.",
    "A model reads tokens and writes tokens; every token is a piece of text.",
    "def add(a, b):\n    return a + b\n\nprint(add(1, 2))\n",
    "Größe, Übermut, naïve café, façade, señor, smörgåsbord.",
    "Привет, мир! Как дела сегодня? Хорошо, спасибо.",
    "日本語のテキストと中文文本和한국어 텍스트.",
    "Numbers: 0 1 2 3 42 1999 2024 3.14159; emoji: 🙂🚀👩‍👩‍👧.",
    "She said: \"I don't know, they've gone.\" It's fine, isn't it?",
] * 3

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPM_CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'user' %}[INST] {{ message['content'] }} [/INST]"
    "{% elif message['role'] == 'assistant' %} {{ message['content'] }}{{ eos_token }}"
    "{% else %}<<{{ message['role'] }}>> {{ message['content'] }}\n{% endif %}{% endfor %}"
)
KINDS = ("bpe", "spm", "spm_unigram", "unigram", "wordpiece")


@cache
def build(kind: str) -> tuple[str, str]:
    """Return ``tokenizer.json`` and ``tokenizer_config.json`` of a kind, as text."""
    makers: dict[str, Any] = {
        "bpe": _byte_level,
        "spm": _sentencepiece_bpe,
        "spm_unigram": _sentencepiece_unigram,
        "unigram": _metaspace_unigram,
        "wordpiece": _wordpiece,
    }
    tokenizer, config = makers[kind]()
    return tokenizer.to_str(), json.dumps(config, ensure_ascii=False, indent=1)


def _special(*texts: str) -> list[Any]:
    from tokenizers import AddedToken

    return [AddedToken(text, special=True, normalized=False) for text in texts]


def _byte_level() -> tuple[Any, dict[str, Any]]:
    """ByteLevel BPE with ChatML tokens, as GPT-2 and Qwen have it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    splitter = pre_tokenizers.ByteLevel(add_prefix_space=False)
    merges = _merges([word for text in TEXTS for word, _ in splitter.pre_tokenize_str(text)], 121)
    symbols = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    symbols += [left + right for left, right in merges]
    tokenizer = Tokenizer(models.BPE(vocab=_numbered(symbols), merges=merges))
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(_special(*special))
    return tokenizer, {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }


def _spm_parts(tokenizer: Any) -> None:
    from tokenizers import decoders, processors

    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )


def _spm_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "chat_template": SPM_CHAT_TEMPLATE,
    }


_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


_ENDS = ["<unk>", "<s>", "</s>"]


def _sentencepiece_bpe() -> tuple[Any, dict[str, Any]]:
    """BPE with byte fallback and ▁ for spaces, as Llama 2 and Mistral have it."""
    from tokenizers import Tokenizer, models, normalizers

    merges = _merges(_words(), 120)
    symbols = _ENDS + _BYTES + sorted({c for word in _words() for c in word})
    symbols += [left + right for left, right in merges]
    tokenizer = Tokenizer(
        models.BPE(
            vocab=_numbered(symbols),
            merges=merges,
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    _spm_parts(tokenizer)
    tokenizer.add_special_tokens(_special(*_ENDS))
    return tokenizer, _spm_config()


def _sentencepiece_unigram() -> tuple[Any, dict[str, Any]]:
    """Unigram with byte fallback and ▁ for spaces, the prefix at the start only."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = [(text, 0.0) for text in _ENDS] + [(text, -20.0) for text in _BYTES]
    tokenizer = Tokenizer(
        models.Unigram(vocab=vocabulary + _pieces(200), unk_id=0, byte_fallback=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    _spm_parts(tokenizer)
    tokenizer.add_special_tokens(_special(*_ENDS))
    return tokenizer, _spm_config()


def _metaspace_unigram() -> tuple[Any, dict[str, Any]]:
    """Unigram with a Metaspace decoder, as T5 and XGLM have it."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocabulary = [(text, 0.0) for text in _ENDS] + _pieces(300)
    tokenizer = Tokenizer(models.Unigram(vocab=vocabulary, unk_id=0))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)]
    )
    tokenizer.add_special_tokens(_special(*_ENDS))
    return tokenizer, _spm_config()


def _wordpiece() -> tuple[Any, dict[str, Any]]:
    """WordPiece as BERT has it."""
    from tokenizers import (
        Tokenizer,
        decoders,
        models,
        normalizers,
        pre_tokenizers,
        processors,
    )

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    normalizer, splitter = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words = [
        word
        for text in TEXTS
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))
    ]
    letters = sorted({c for word in words for c in word})
    whole = [text for text, _ in _pieces(60, words) if len(text) > 1]
    symbols = special + letters + ["##" + c for c in letters] + whole + ["##" + t for t in whole]
    tokenizer = Tokenizer(models.WordPiece(vocab=_numbered(symbols), unk_token="[UNK]"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.add_special_tokens(_special(*special))
    return tokenizer, {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "eos_token": "[SEP]",
        "pad_token": "[PAD]",
        "chat_template": "{% for m in messages %}[CLS] {{ m.role }} : {{ m.content }} [SEP]"
        "{% endfor %}",
    }


def _words() -> list[str]:
    """The words of the Latin sentences, with ▁ in front as SentencePiece has it."""
    return ["▁" + word for text in TEXTS[:5] for word in text.split()]


def _numbered(symbols: list[str]) -> dict[str, int]:
    """Number symbols in order, each once."""
    return {text: index for index, text in enumerate(dict.fromkeys(symbols))}


def _merges(words: list[str], count: int) -> list[tuple[str, str]]:
    """Learn byte-pair merges; the library's trainer gives others from run to run."""
    counted = {tuple(word): number for word, number in Counter(words).items()}
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, number in counted.items():
            for pair in pairwise(word):
                pairs[pair] += number
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        counted = {_merged(word, best): number for word, number in counted.items()}
    return merges


def _merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    result: list[str] = []
    for symbol in word:
        if result and (result[-1], symbol) == pair:
            result[-1] += symbol
        else:
            result.append(symbol)
    return tuple(result)


def _pieces(count: int, words: list[str] | None = None) -> list[tuple[str, float]]:
    """Return every letter and the commonest longer pieces, with log-probability-like scores."""
    words = _words() if words is None else words
    found: Counter[str] = Counter()
    for word in words:
        for begin in range(len(word)):
            for end in range(begin + 1, min(len(word), begin + 7) + 1):
                found[word[begin:end]] += 1
    letters = [text for text in found if len(text) == 1]
    longer = sorted(
        (text for text in found if len(text) > 1),
        key=lambda text: (-found[text] * len(text), text),
    )
    chosen = sorted(letters) + longer[: max(count - len(letters), 0)]
    total = sum(found.values())
    return [(text, round(math.log(found[text] / total) * 0.9, 3)) for text in chosen]
