"""A tokenizer.json that would take all memory or time is refused, and the process lives."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import odd_tokenizers as odd
from support.paths import CALF, ROOT
from support.signatures import EFORMAT, EINVAL

MEGABYTE = 1 << 20


def deep(depth):
    """Normalizers in each other."""
    inner = {"type": "NFC"}
    for _ in range(depth):
        inner = odd.in_turn(inner)
    return inner


def template(single, special=("<|begin|>",)):
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {text: {"id": text, "ids": [1], "tokens": [text]} for text in special},
    }


def added(content, **flags):
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
    return {"id": 5000, "content": content, "special": False, **plain, **flags}


BEGIN = {"SpecialToken": {"id": "<|begin|>", "type_id": 0}}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
THOUSANDFOLD = odd.replace("a", "a" * 1000)
OTHER = {"Sequence": {"id": "B", "type_id": 0}}
STRAY = base64.b64encode((4).to_bytes(4, "little") + b"\xff" * 4).decode()
TABLE = base64.b64encode((1024).to_bytes(4, "little") + bytes(1024) + b"x" * 9000 + b"\0").decode()

# What is put into calf's tokenizer.json, and what the message must name.
REFUSED = {
    "four thousandfold": (
        {"normalizer": odd.in_turn(*[THOUSANDFOLD] * 4), "added_tokens": [added("aaaa")]},
        ["normalizer[1]", "Replace", "8192"],
    ),
    "long prefix": (
        {"normalizer": {"type": "Prepend", "prepend": "x" * 10 * MEGABYTE}},
        ["normalizer", "Prepend", "10485761"],
    ),
    "replaced nothing": (
        {"normalizer": odd.replace("", "x" * 9000)},
        ["normalizer", "Replace", "9001"],
    ),
    "replaced matches of nothing": (
        {"normalizer": odd.replace_regex("b*", "x" * 9000)},
        ["normalizer", "Replace", "9001"],
    ),
    "table": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": TABLE}},
        ["normalizer", "Precompiled", "9000"],
    ),
    "cut table": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "//////8="}},
        ["precompiled_charsmap"],
    ),
    "table without an end": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": STRAY}},
        ["precompiled_charsmap", "unit 0"],
    ),
    "table of nothing": (
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="}},
        ["precompiled_charsmap", "unit 0"],
    ),
    "many normalizers": (
        {"normalizer": odd.in_turn(*[{"type": "NFC"}] * 100_000)},
        ["normalizer", "100000", "64"],
    ),
    "deep normalizers": ({"normalizer": deep(100)}, ["normalizer", "deep"]),
    "twice": ({"normalizer": "TWICE"}, ["twice"]),
    "many bytes": (
        {"pre_tokenizer": odd.sequence(*[{"type": "ByteLevel", "add_prefix_space": True}] * 20)},
        ["pre_tokenizer", "ByteLevel", "8192"],
    ),
    "long mark": (
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁" * 3000}},
        ["pre_tokenizer", "Metaspace", "8192"],
    ),
    "chunks of nothing": (
        {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
        ["pre_tokenizer", "FixedLength", "length 0"],
    ),
    "no type": (
        {"normalizer": {"pattern": {"String": "a"}, "content": "a" * 100_000}},
        ["normalizer", "type None"],
    ),
    "no type in a sequence": (
        {"normalizer": odd.in_turn({"type": "NFC"}, {"prepend": "x" * 100_000})},
        ["normalizer[1]", "type None"],
    ),
    "unknown type": (
        {"decoder": {"type": "Foo", "pattern": {"Regex": "(e|e)*x"}, "content": ""}},
        ["decoder", "Foo"],
    ),
    "sequence without a type": (
        {"normalizer": {"normalizers": [odd.replace("a", "b")]}},
        ["normalizer", "type None"],
    ),
    "type of another kind": (
        {"post_processor": {**template([BEGIN] * 2000), "type": "NFC"}},
        ["post_processor", "NFC"],
    ),
    "another type's members": (
        {"normalizer": {**odd.replace_regex("(?:a|a)*b", ""), "type": "BertNormalizer"}},
        ["normalizer", "BertNormalizer", "'pattern'"],
    ),
    "another processor's members": (
        {"post_processor": {**template([BEGIN] * 2000), "type": "BertProcessing"}},
        ["post_processor", "BertProcessing", "'single'"],
    ),
    "no sequence": (
        {"normalizer": {**THOUSANDFOLD, "normalizers": []}},
        ["normalizer", "Replace", "'normalizers'"],
    ),
    "no sequence of splits": (
        {"pre_tokenizer": {**odd.split({"Regex": "(a+)+$"}), "pretokenizers": []}},
        ["pre_tokenizer", "Split", "'pretokenizers'"],
    ),
    "chunks of nothing and no sequence": (
        {"pre_tokenizer": {"type": "FixedLength", "length": 0, "pretokenizers": []}},
        ["pre_tokenizer", "FixedLength", "'pretokenizers'"],
    ),
    "unknown model": ({"model": {"type": "Foo"}}, ["model", "Foo"]),
    "counts in counts": (
        {"pre_tokenizer": odd.split({"Regex": "((((((){30}){30}){30}){30}){30})"})},
        ["pre_tokenizer", "steps"],
    ),
    "exponential": (
        {"pre_tokenizer": odd.split({"Regex": "(a+)+$"})},
        ["pre_tokenizer", "(a+)+$", "exponential"],
    ),
    "exponential choice": (
        {"normalizer": odd.replace_regex("(?:a|a)*b", "")},
        ["normalizer", "exponential"],
    ),
    "cubic": (
        {"pre_tokenizer": odd.split({"Regex": ".*.*.*="})},
        ["pre_tokenizer", ".*.*.*=", "cubic"],
    ),
    "backreference": (
        {"pre_tokenizer": odd.split({"Regex": r"(a+)\1"})},
        ["pre_tokenizer", r"\1", "not supported"],
    ),
    "many special": (
        {"post_processor": template([BEGIN] * 100_000 + [TEXT])},
        ["post_processor", "100001", "1024"],
    ),
    "special of many": (
        {
            "post_processor": {
                **template([BEGIN, TEXT]),
                "special_tokens": {
                    "<|begin|>": {
                        "id": "<|begin|>",
                        "ids": [1] * 100_000,
                        "tokens": ["<|begin|>"] * 100_000,
                    }
                },
            }
        },
        ["post_processor", "100000", "1024"],
    ),
    "many copies": (
        {
            "post_processor": {
                "type": "Sequence",
                "processors": [template([TEXT] * 8), template([TEXT] * 8)],
            }
        },
        ["post_processor[1]", "64", "8"],
    ),
    "another text": ({"post_processor": template([BEGIN, OTHER])}, ["post_processor", "second"]),
    "stripped ends": (
        {"decoder": {"type": "Strip", "content": " ", "start": 0, "stop": 2}},
        ["decoder", "Strip", "2"],
    ),
    "decoder": (
        {"decoder": {"type": "Sequence", "decoders": [odd.replace("e", "x" * 1000)]}},
        ["decoder[0]", "Replace", "64"],
    ),
    "decoder's pattern": (
        {"decoder": {"type": "Sequence", "decoders": [odd.replace_regex("(e|e)*x", "")]}},
        ["decoder[0]", "exponential"],
    ),
    "decoder's prefix": (
        {"decoder": {"type": "WordPiece", "prefix": "#" * MEGABYTE, "cleanup": True}},
        ["decoder", "prefix", "1048576"],
    ),
    "long added token": (
        {"added_tokens": [added("x" * 10 * MEGABYTE)]},
        ["added_tokens", "10485760", "4096"],
    ),
    "many added tokens": (
        {"added_tokens": [{**added(f"<{n}>"), "id": 5000 + n} for n in range(20_000)]},
        ["added_tokens", "2000", "16384"],
    ),
    "long entry": (
        {"model": {"vocab": {"x" * 10 * MEGABYTE: 1300}}},
        ["model.vocab", "10485760", "4096"],
    ),
    "long unknown": (
        {"model": {"unk_token": "x" * 1000}},
        ["model.unk_token", "1000", "256"],
    ),
    "long inner prefix": (
        {"model": {"continuing_subword_prefix": "x" * 1000}},
        ["model.continuing_subword_prefix", "1000", "256"],
    ),
    "prefix that no merge has": (
        {"model": {"continuing_subword_prefix": "x"}},
        ["model.merges[", "continuing_subword_prefix", "'x'"],
    ),
    "prefix within a character": (
        {
            "model": {
                "vocab": {"a": 1300, "é": 1301},
                "merges": [["a", "é"]],
                "continuing_subword_prefix": "x",
            }
        },
        ["model.merges[0]", "'é'"],
    ),
    "prefix longer than a part": (
        {"model": {"continuing_subword_prefix": "xyz"}},
        ["model.merges[0]", "'xyz'"],
    ),
    "long words": (
        {"model": {"max_input_chars_per_word": 10**9}},
        ["max_input_chars_per_word", "1000000000", "256"],
    ),
    "a list": ({"normalizer": [1]}, ["tokenizer.json"]),
    "a number": ({"normalizer": {"type": "Prepend", "prepend": 7}}, ["tokenizer.json"]),
    "no pattern": ({"normalizer": {"type": "Replace", "content": ""}}, ["tokenizer.json"]),
}
# What is loaded; a text is tokenized, or refused where no cut is sure.
LOADED = {
    "truncated": {
        "truncation": {
            "max_length": 1,
            "strategy": "LongestFirst",
            "stride": 0,
            "direction": "Right",
        }
    },
    "padded": {
        "padding": {
            "strategy": {"Fixed": 10**9},
            "direction": "Right",
            "pad_id": 0,
            "pad_to_multiple_of": None,
            "pad_type_id": 0,
            "pad_token": "<|pad|>",
        }
    },
    "thousandfold": {"normalizer": THOUSANDFOLD},
    "default length": {"pre_tokenizer": {"type": "FixedLength"}},
    "quadratic": {"pre_tokenizer": odd.split({"Regex": r"\s+$"})},
    "empty matches": {"pre_tokenizer": odd.split({"Regex": "b*"})},
}
RUN = """
import json, resource, sys
from pathlib import Path
from support.library import Library, StatusError

lib = Library()
lib.start()
used = int(Path("/proc/self/statm").read_text().split()[0]) * 4096 if sys.platform == "linux" else 0
if used:
    resource.setrlimit(resource.RLIMIT_AS, (used + (3 << 30), used + (3 << 30)))
texts = ["The fox is red.", "a" * 5_000_000, " " * 100_000, "x y, " * 20_000]
answers = {}
for folder in map(Path, sys.argv[1:]):
    answer = answers[folder.name] = []
    try:
        model = lib.load(folder)
    except StatusError as error:
        answer.append([error.status, str(error)])
        continue
    for text in texts:
        try:
            answer.append(len(lib.tokenize(model, text)))
        except StatusError as error:
            answer.append([error.status, str(error)])
    lib.free_model(model)
lib.stop()
print(json.dumps(answers))
"""


def make(path: Path, changes) -> Path:
    """Calf with another tokenizer.json."""
    path.mkdir()
    for file in CALF.iterdir():
        if file.name != "tokenizer.json" and file.is_file():
            (path / file.name).symlink_to(file)
    state = json.loads((CALF / "tokenizer.json").read_text())
    for key, value in changes.items():
        if key == "added_tokens":
            state[key] += value
        elif key == "model":
            state[key] |= {**value, "vocab": {**state[key]["vocab"], **value.get("vocab", {})}}
        else:
            state[key] = value
    text = json.dumps(state).replace('"TWICE"', '{"type": "NFC", "type": "NFKC"}')
    (path / "tokenizer.json").write_text(text)
    return path


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What one process says to all of them, with little memory."""
    base = tmp_path_factory.mktemp("hostile")
    cases = {name: changes for name, (changes, _) in REFUSED.items()} | LOADED
    folders = [make(base / name, changes) for name, changes in cases.items()]
    path = [str(ROOT / "tests"), str(ROOT)]
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {path}\n{RUN}", *folders]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    shutil.rmtree(base)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_the_component_and_the_number(answers, name):
    [[status, message]] = answers[name]
    assert status == EFORMAT, message
    assert all(text in message for text in REFUSED[name][1]), message


@pytest.mark.parametrize("name", ["truncated", "padded"])
def test_settings_of_batches_do_nothing(answers, name):
    short, *long = answers[name]
    assert 3 < short < 20
    assert long[0][0] == EINVAL


def test_what_the_library_has_a_default_for_may_be_left_out(answers):
    short, *_ = answers["default length"]
    assert short > 3


@pytest.mark.parametrize("name", ["thousandfold", "quadratic", "empty matches"])
def test_a_slow_tokenizer_is_given_little_at_once(answers, name):
    short, word, spaces, _ = answers[name]
    assert short > 3
    assert word[0] == EINVAL, word
    assert "no cut" in word[1]
    assert (spaces if name == "quadratic" else [EINVAL])[0] == EINVAL
