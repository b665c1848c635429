"""Tokenizers that are built of their files' parts are those that the library reads."""

from __future__ import annotations

import json
import re
from array import array

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import tokenizers as families
from tokenizers import Tokenizer

from cowmlx import _bridge, json_text
from cowmlx.errors import BadFormat
from cowmlx.text import tokenizer_backend, tokenizer_bounds, tokenizer_cache, tokenizer_parts

BPE = ("bpe", "spm")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@pytest.fixture(autouse=True, params=["C", "Python"])
def reader(request, monkeypatch):
    """The reader of vocabularies."""
    own = _bridge.read_vocabulary if request.param == "C" else lambda data, at: None
    monkeypatch.setattr(json_text, "_read_vocabulary", own)


def written(folder, text):
    file = folder / "tokenizer.json"
    file.write_text(text, encoding="utf-8")
    return str(file)


def changed(kind, **members):
    """A tokenizer's text with other members of its model."""
    state = json.loads(families.build(kind)[0])
    state["model"].update(members)
    return json.dumps(state, ensure_ascii=False)


@pytest.mark.parametrize("kind", families.KINDS)
@pytest.mark.parametrize("indent", [None, 2])
def test_a_tokenizer_is_the_one_that_the_library_reads(tmp_path, kind, indent):
    state = json.loads(families.build(kind)[0])
    file = written(tmp_path, json.dumps(state, indent=indent, ensure_ascii=indent is None))
    _, made = tokenizer_backend.File(file).load()
    library = Tokenizer.from_file(file)
    assert made.to_str() == library.to_str()
    for text in (*families.TEXTS[:8], "<|im_start|>user\n<s> [INST]  two  spaces\n\n\n", "\x00🧬"):
        assert made.encode(text).ids == library.encode(text).ids


@pytest.mark.parametrize("kind", BPE)
@pytest.mark.parametrize("size", [48, 100, 1000])
def test_slices_of_any_size_give_the_same_parts(monkeypatch, kind, size):
    data = families.build(kind)[0].encode()
    whole = tokenizer_parts.split(data)
    assert json.loads(families.build(kind)[0])["model"]["vocab"] == whole.vocabulary
    assert len(whole.merges) == len(list(whole.merges)) > 100
    monkeypatch.setattr(tokenizer_parts, "SLICE", size)
    assert tokenizer_parts.split(data) == whole


@pytest.mark.parametrize("kind", BPE)
def test_merges_may_be_texts(tmp_path, kind):
    state = json.loads(families.build(kind)[0])
    pairs = state["model"]["merges"]
    state["model"]["merges"] = [" ".join(pair) for pair in pairs]
    data = json.dumps(state).encode()
    assert [list(pair) for pair in tokenizer_parts.split(data).merges] == pairs


@pytest.mark.parametrize(
    "members",
    [
        {"merges": [["a", "b", "c"]]},
        {"merges": [["a", "no such token"]]},
        {"merges": ["ab"]},
        {"merges": [["a", "b"], "ab"]},
        {"merges": [{"a": 0, "b": 1}]},
        {"merges": {}},
        {"vocab": {"a": 1.5}, "merges": []},
        {"vocab": {"a": -1}, "merges": []},
        {"vocab": {"a": True}, "merges": []},
        {"vocab": ["a"], "merges": []},
        {"dropout": "x"},
        {"fuse_unk": 1},
        {"type": "Unigram"},
    ],
    ids=str,
)
def test_what_the_library_refuses_is_refused(tmp_path, members):
    file = written(tmp_path, changed("bpe", **members))
    with pytest.raises(BadFormat) as refused:
        tokenizer_backend.File(file).load()
    assert file in str(refused.value)
    with pytest.raises(Exception, match=r".+"):
        Tokenizer.from_file(file)


def test_cut_files_are_refused(tmp_path):
    text = families.build("spm")[0]
    for end in range(0, len(text), len(text) // 50):
        with pytest.raises(BadFormat):
            tokenizer_backend.File(written(tmp_path, text[:end])).load()


def test_a_key_twice_is_refused(tmp_path):
    text = families.build("bpe")[0]
    twice = re.sub(r'"decoder":', '"decoder": null, "decoder":', text, count=1)
    with pytest.raises(BadFormat, match="key twice"):
        tokenizer_backend.File(written(tmp_path, twice)).load()


def test_bounds_hold_for_files_in_parts(tmp_path):
    long = "x" * 5000
    state = json.loads(families.build("bpe")[0])
    state["model"]["vocab"][long] = len(state["model"]["vocab"])
    with pytest.raises(BadFormat, match="5000 characters"):
        tokenizer_backend.File(written(tmp_path, json.dumps(state))).load()


@pytest.mark.parametrize("kind", ["wordpiece", "spm"])
def test_what_is_checked_is_what_the_library_reads(tmp_path, monkeypatch, kind):
    """A file may be replaced between two looks at it."""
    monkeypatch.setattr(tokenizer_backend, "_of_parts", lambda *_: None)
    text = families.build(kind)[0]
    own = tokenizer_backend.File(written(tmp_path, text))
    others = [{"type": "Prepend", "prepend": "x" * size} for size in (10, 20)]
    check = tokenizer_bounds.check_text

    def checked(*args):
        result = check(*args)
        written(tmp_path, json.dumps({**json.loads(text), "normalizer": others.pop()}))
        return result

    monkeypatch.setattr(tokenizer_bounds, "check_text", checked)
    growth, made = own.load()
    monkeypatch.undo()
    assert check(made.to_str(), "made")[0] == growth


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tokenizer_backend, "_of_parts", lambda *_: None)
    monkeypatch.setattr(tokenizer_cache, "_SMALL", 0)
    text = families.build("spm")[0]
    own = tokenizer_backend.File(written(tmp_path, text))
    written(tmp_path, text + " ")
    with pytest.raises(BadFormat, match="changed while it was read"):
        own.load()


def test_models_of_old_files_have_no_type(tmp_path):
    for kind in families.KINDS:
        state = json.loads(families.build(kind)[0])
        model = state["model"].pop("type")
        _, made = tokenizer_backend.File(written(tmp_path, json.dumps(state))).load()
        assert type(made.model).__name__ == model


@pytest.mark.parametrize("opening, closing", ["[]", ("[[", "]]"), ('{"a":', "}"), ('[{"]":', "}]")])
def test_depth_is_bounded_whatever_surrounds_it(opening, closing):
    beside = ", ".join(['["a", "b"]', '["[", "\\""]', '{"{": "]"}'] * 200)
    for depth, is_fine in ((100, True), (300, False)):
        text = f"[{beside}, {opening * depth}1{closing * depth}, {beside}]"
        if is_fine:
            assert json_text.parse(text) == json.loads(text)
        else:
            with pytest.raises(json_text.Malformed, match="nested"):
                json_text.parse(text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(TEXT, min_size=1, max_size=20, unique=True), st.data())
def test_c_reads_what_python_reads(texts, data):
    """The texts hold any characters, escaped or not, with any white space between them."""
    ids = data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=len(texts), max_size=len(texts)))
    one = st.sampled_from(texts)
    pairs = data.draw(st.lists(st.tuples(one, one), min_size=1, max_size=20))
    vocabulary = dict(zip(texts, ids, strict=True))
    layout = {
        "ensure_ascii": data.draw(st.booleans()),
        "indent": data.draw(st.sampled_from([None, 0, 3])),
    }
    read = _bridge.read_vocabulary
    written = b"x" + json.dumps(vocabulary, **layout).encode() + b", "
    found = read(written, 1)
    assert written[found.end :] == b", "
    assert found.strings() == texts and found.ids().tolist() == ids
    written = json.dumps([list(pair) for pair in pairs], **layout).encode() + b"}"
    end, lefts, rights = found.merges(written, 0)
    assert written[end:] == b"}"
    assert [(texts[left], texts[right]) for left, right in zip(lefts, rights, strict=True)] == pairs


@pytest.mark.parametrize(
    "written",
    [
        *("", "[", "{", "{}", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', '{"a":1;"b":2}'),
        *('{"a":01}', '{"a":-1}', '{"a":1.0}', '{"a":1e1}', '{"a":true}', '{"a":4294967296}'),
        *('{"a":99999999999}', '{"a":1,"a":2}', '{"\\u0061":1,"a":2}', "{a:1}", '{"a', '{"a\\'),
        *('{"\n":1}', '{"\x00":1}', '{"\\x":1}', '{"\\u12":1}', '{"\\u12', '{"\\u12g4":1}'),
        *('{"\\ud800":1}', '{"\\udc00":1}', '{"\\ud800\\u0041":1}', '{"\\ud800\\', '{"a\\\n":1}'),
    ],
)
def test_c_reads_no_other_vocabulary(written):
    assert _bridge.read_vocabulary(written.encode(), 0) is None


@pytest.mark.parametrize(
    "written",
    [
        *("", "{", "[", "[]", "[[", '[["a"', '[["a",', '[["a","b"', '[["a","b"]', '[["a","b"],'),
        *('[["a","b"],]', '[["a"]]', '[["a","b","a"]]', '[["a","c"]]', '[["a","b"],"a b"]'),
        *('["a', '["a b"', '["ab"]', '["a b a"]', '["a c"]', '[" a"]', '["a b",["a","b"]]', "[1]"),
        *('["#version: 0.2","a b"]', "[null]"),
    ],
)
def test_c_reads_no_other_merges(written):
    known = _bridge.read_vocabulary(b'{"a": 0, "b": 1, "#version:": 2, "0.2": 3}', 0)
    assert known.merges(b'[["a", "b"]]', 0)[1:] == (array("I", [0]), array("I", [1]))
    assert known.merges(b'["b a"]', 0)[1:] == (array("I", [1]), array("I", [0]))
    assert known.merges(written.encode(), 0) is None


def test_a_text_that_is_no_utf8_is_refused():
    with pytest.raises(UnicodeDecodeError):
        _bridge.read_vocabulary(b'{"\xff": 0}', 0).strings()
