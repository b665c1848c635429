"""Tokens, special tokens and end tokens equal AutoTokenizer's, whatever class is named."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from loading import auto_tokenizers, load_tokenizer
from support import tokenizers as kinds

TEXTS = [
    "",
    " ",
    "Hello",
    " Hello world",
    "The quick brown fox, it's done. don't I'LL 12345",
    "two  spaces\n\nand\ttabs \n x",
    "Größe naïve e\u0301 日本語 Привет 🙂👩\u200d👩\u200d👧",
    "<s>a</s> <|im_start|>user\nhi<|im_end|><|endoftext|> [CLS] x [SEP] <unk>",
    "a<s>b <s> c",
    "\x00\x01\x7f\ufffd",
]
# Kind, tokenizer_class, model_type, further settings of tokenizer_config.json.
CASES: list[tuple[str, str | None, str, dict[str, Any]]] = [
    *((kind, "PreTrainedTokenizerFast", "llama", {}) for kind in kinds.KINDS),
    *((kind, None, "llama", {}) for kind in kinds.KINDS),
    *((kind, "TokenizersBackend", "qwen2", {}) for kind in ("bpe", "spm")),
    *((kind, "PreTrainedTokenizer", "llama", {}) for kind in ("bpe", "spm")),
    *((kind, "NoSuchTokenizerFast", "llama", {}) for kind in ("bpe", "spm")),
    ("bpe", "LlamaTokenizerFast", "llama", {}),
    ("bpe", "LlamaTokenizer", "qwen2", {}),
    ("spm", "LlamaTokenizerFast", "llama", {}),
    ("spm", "LlamaTokenizer", "llama", {"legacy": True}),
    ("spm", "LlamaTokenizer", "llama", {"legacy": False, "add_prefix_space": False}),
    ("spm", "LlamaTokenizer", "llama", {"legacy": None, "add_prefix_space": None}),
    ("spm", "LlamaTokenizer", "mistral", {}),
    ("spm", "LlamaTokenizer", "phi3", {}),
    ("spm", "LlamaTokenizer", "olmo2", {}),
    ("spm", "LlamaTokenizer", "gemma", {}),
    ("spm", "GemmaTokenizerFast", "gemma", {}),
    ("spm", "GemmaTokenizer", "gemma2", {"add_bos_token": True}),
    ("spm", None, "gemma2", {}),
    ("bpe", "Qwen2TokenizerFast", "qwen2", {}),
    ("bpe", "Qwen2Tokenizer", "qwen3", {}),
    ("bpe", "Qwen2Tokenizer", "llama", {"add_prefix_space": True}),
    ("bpe", "Qwen2Tokenizer", "stablelm", {}),
    ("bpe", None, "qwen2", {}),
    ("bpe", None, "qwen3", {}),
    ("bpe", "PreTrainedTokenizerFast", "qwen2", {}),
    ("bpe", "GPT2TokenizerFast", "gpt2", {}),
    ("bpe", "GPT2Tokenizer", "starcoder2", {"add_prefix_space": True}),
    ("bpe", "GPT2Tokenizer", "llama", {"bos_token": None}),
    ("bpe", None, "gpt2", {}),
    ("bpe", "GPTNeoXTokenizerFast", "gpt_neox", {}),
    ("bpe", "GPTNeoXTokenizer", "mamba", {}),
    ("bpe", "CohereTokenizerFast", "cohere", {}),
    ("bpe", "CohereTokenizer", "cohere2", {"bos_token": "<|endoftext|>"}),
    # Settings that AutoTokenizer ignores where there is a tokenizer.json.
    ("spm", "PreTrainedTokenizerFast", "llama", {"add_bos_token": False, "add_eos_token": True}),
    (
        "bpe",
        "PreTrainedTokenizerFast",
        "llama",
        {"add_bos_token": True, "bos_token": "<|im_start|>"},
    ),
    # Tokens that only the config knows.
    ("bpe", "PreTrainedTokenizerFast", "llama", {"bos_token": "<new>", "unk_token": None}),
    ("bpe", "PreTrainedTokenizerFast", "llama", {"additional_special_tokens": ["<a>", "<b>"]}),
    ("bpe", "PreTrainedTokenizerFast", "llama", {"extra_special_tokens": {"image_token": "<img>"}}),
    (
        "bpe",
        "PreTrainedTokenizerFast",
        "llama",
        {
            "added_tokens_decoder": {
                "0": {"content": "<|endoftext|>", "special": True},
                "381": {"content": "<tool>", "special": False, "lstrip": True},
                "380": {"content": "hello", "special": False, "normalized": True},
            }
        },
    ),
    (
        "spm",
        "LlamaTokenizer",
        "llama",
        {"bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": False}},
    ),
]


def folder_of(
    place: pathlib.Path, kind: str, name: str | None, model_type: str, changes: dict[str, Any]
) -> pathlib.Path:
    """Write the files of a tokenizer alone."""
    place.mkdir(parents=True)
    tokenizer, settings = kinds.build(kind)
    config = {**json.loads(settings), "tokenizer_class": name, **changes}
    if name is None:
        del config["tokenizer_class"]
    (place / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    (place / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (place / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def answers(folder: pathlib.Path) -> list[tuple[pathlib.Path, dict[str, Any]]]:
    paths = [folder_of(folder / f"case-{i}", *case) for i, case in enumerate(CASES)]
    found = auto_tokenizers([{"path": str(path), "texts": TEXTS} for path in paths])
    return list(zip(paths, found, strict=True))


@pytest.mark.parametrize(
    "number", range(len(CASES)), ids=lambda i: "-".join(map(str, CASES[i][:3]))
)
def test_equals_auto_tokenizer(
    number: int, answers: list[tuple[pathlib.Path, dict[str, Any]]]
) -> None:
    path, expected = answers[number]
    assert "refusal" not in expected
    tokenizer, _ = load_tokenizer(path)
    for index, text in enumerate(TEXTS):
        for add_special, key in ((True, "with_special"), (False, "without_special")):
            tokens = tokenizer.encode(text, add_special=add_special, parse_special=True)
            assert tokens == expected[key][index], (text, expected["class"])
    assert tokenizer.special_tokens == expected["special"]
    assert tokenizer.vocabulary_size == expected["size"]
    ends = {tokenizer.eos_token_id} - {None}
    assert sorted(ends) == expected["end_tokens"]


@pytest.mark.parametrize(
    "number", range(len(CASES)), ids=lambda i: "-".join(map(str, CASES[i][:3]))
)
def test_special_text_gives_no_special_token_unless_parsed(
    number: int, answers: list[tuple[pathlib.Path, dict[str, Any]]]
) -> None:
    path, expected = answers[number]
    tokenizer, _ = load_tokenizer(path)
    unknown = tokenizer.token_id(tokenizer.special_tokens.get("unk_token", ""))
    for index, text in enumerate(TEXTS):
        tokens = tokenizer.encode(text, add_special=False, parse_special=False)
        assert not (tokenizer.special_ids - {unknown}) & set(tokens), text
        plain = expected["plain"][index]
        if not (tokenizer.special_ids - {unknown}) & set(plain):
            # Where transformers' own split_special_tokens is safe, it is the same.
            assert tokens == plain, text


def test_an_added_letter_is_decoded_as_itself(tmp_path: pathlib.Path) -> None:
    """DeepSeek LLM's "ö" is an added token: byte-level BPE has this letter for a byte, 0xF6."""
    path = folder_of(tmp_path / "letters", "bpe", "LlamaTokenizerFast", "llama", {})
    stored = json.loads((path / "tokenizer.json").read_text(encoding="utf-8"))
    letter = {**stored["added_tokens"][0], "content": "ö", "special": False, "normalized": True}
    del stored["model"]["vocab"]["ö"]
    letter["id"] = max(stored["model"]["vocab"].values()) + 1
    stored["added_tokens"].append(letter)
    (path / "tokenizer.json").write_text(json.dumps(stored), encoding="utf-8")
    (expected,) = auto_tokenizers([{"path": str(path), "texts": ["Größe"]}])
    tokenizer, _ = load_tokenizer(path)
    tokens = tokenizer.encode("Größe", add_special=True, parse_special=True)
    assert tokens == expected["with_special"][0]
    assert tokenizer.token_id("ö") in tokens
    assert expected["decoded"] == ["Gr\ufffdße"]
    assert tokenizer.decode(tokens, skip_special=False) == "Größe"
