"""Heads of encoders: scores of pairs, labels of texts, entities in them."""

from __future__ import annotations

import json

import mlx.core as mx
import numpy as np
import pytest
from support import tiny_encoders
from support.callbacks import refused
from support.signatures import ECONTEXT, EFORMAT, EINVAL, EUNSUPPORTED
from support.tiny_encoders import CONFIGS, PAIRS, TEXTS, written

from cowmlx.services.classifying import Word, merged_words

SEQUENCE, TOKENS = "SequenceClassification", "TokenClassification"
NAMES = sorted(CONFIGS)
CLOSE = 1e-4


def softmax(rows):
    parts = np.exp(rows - np.max(rows, axis=-1, keepdims=True))
    return parts / parts.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def classifier(lib, tmp_path_factory):
    loaded = {}

    def classifier(name, head=SEQUENCE, **config):
        key = json.dumps([name, head, config])
        if key not in loaded:
            path = tmp_path_factory.mktemp("heads") / name
            loaded[key] = lib.load(tiny_encoders.make(path, name, head, config=config))
        return loaded[key]

    yield classifier
    for model in loaded.values():
        lib.free_model(model)


@pytest.mark.parametrize("name", NAMES)
def test_scores_of_pairs_are_those_of_transformers(lib, classifier, name):
    model, expected = classifier(name), tiny_encoders.fixture(name, SEQUENCE)["pairs"]
    for (first, second), wanted in zip(PAIRS, expected, strict=True):
        query, document = written(first), written(second)
        others = [document, written(TEXTS[1]), document]
        got = lib.rank(model, query, others, normalize=False)
        np.testing.assert_allclose([got[0], got[2]], [wanted] * 2, rtol=CLOSE, atol=CLOSE)
        (alone,) = lib.rank(model, query, [document])
        np.testing.assert_allclose(alone, softmax(wanted), atol=CLOSE)


@pytest.mark.parametrize("name", NAMES)
def test_labels_of_texts_are_those_of_transformers(lib, classifier, name):
    model, expected = classifier(name), tiny_encoders.fixture(name, SEQUENCE)["texts"]
    assert lib.info(model)["tasks"] == ["embed", "rank", "classify"]
    for text, wanted in zip(TEXTS, softmax(expected), strict=True):
        told = lib.classify(model, written(text))
        assert not told["multiple"]
        numbers = {own["label"]: own["probability"] for own in told["labels"]}
        assert list(numbers.values()) == sorted(numbers.values(), reverse=True)
        got = [numbers[f"kind {index}"] for index in range(3)]
        np.testing.assert_allclose(got, wanted, atol=CLOSE)


def test_several_labels_may_hold(lib, classifier):
    model = classifier("bert", problem_type="multi_label_classification")
    expected = np.array(tiny_encoders.fixture("bert", SEQUENCE)["texts"][2])
    told = lib.classify(model, written(TEXTS[2]))
    assert told["multiple"]
    numbers = {own["label"]: own["probability"] for own in told["labels"]}
    got = [numbers[f"kind {index}"] for index in range(3)]
    np.testing.assert_allclose(got, 1 / (1 + np.exp(-expected)), atol=CLOSE)


def test_a_text_without_letters_has_labels_too(lib, classifier):
    assert len(lib.classify(classifier("bert"), "")["labels"]) == 3


BIO = {"id2label": {"0": "O", "1": "B-PER", "2": "I-PER"}}


@pytest.mark.parametrize("name", NAMES)
def test_entities_are_those_of_transformers_scores(lib, classifier, name):
    model, expected = classifier(name, TOKENS, **BIO), tiny_encoders.fixture(name, TOKENS)["tokens"]
    assert lib.info(model)["tasks"] == ["embed", "classify"]
    for text, scores in zip(TEXTS[:4], expected, strict=True):
        chances = softmax(np.array(scores))[1:-1]  # without [CLS] and [SEP]
        words, at = [], 0
        for token, chance in zip(text, chances, strict=True):
            piece = tiny_encoders.VOCABULARY[token]
            if piece.startswith("##"):
                words[-1] = words[-1]._replace(end=words[-1].end + len(piece) - 2)
            else:
                begin = words[-1].end + 1 if words else at
                label = BIO["id2label"][str(int(chance.argmax()))]
                words.append(Word(label, float(chance.max()), begin, begin + len(piece)))
        wanted = merged_words(written(text), words)
        got = lib.classify(model, written(text))["entities"]
        numbers = [own.pop("probability") for own in got]
        np.testing.assert_allclose(numbers, [own.pop("probability") for own in wanted], atol=CLOSE)
        assert got == wanted


def test_words_of_one_kind_are_merged_and_places_are_bytes():
    text = "Zoë Größe met Al, Bo."
    labels = ["B-PER", "I-PER", "O", "B-PER", "O", "B-PER", "O"]
    places = [(0, 3), (3, 9), (10, 13), (14, 16), (16, 17), (18, 20), (20, 21)]
    words = [Word(label, 0.5, *place) for label, place in zip(labels, places, strict=True)]
    found = merged_words(text, words)
    assert [own["text"] for own in found] == ["Zoë Größe", "Al", "Bo"]
    assert {own["label"] for own in found} == {"PER"}
    for own in found:
        assert text.encode()[own["begin"] : own["end"]].decode() == own["text"]
    assert [own["text"] for own in merged_words(text, words[1:2])] == ["Größe"]
    plain = [word._replace(label="X") for word in words[:2]]
    assert [own["text"] for own in merged_words(text, plain)] == ["Zoë Größe"]
    other = [words[0], words[1]._replace(label="I-LOC")]
    assert [own["label"] for own in merged_words(text, other)] == ["PER", "LOC"]
    nameless = [Word(label, 0.5, *words[0][2:]) for label in ("", "B-")]
    assert [own["text"] for own in merged_words(text, nameless)] == ["Zoë", "Zoë"]


def test_what_a_head_cannot_do_is_refused(lib, classifier, tiny):
    model, tokens = classifier("bert"), classifier("bert", TOKENS, **BIO)
    refused(EUNSUPPORTED, "bert embed classify", lambda: lib.rank(tokens, "ba", ["be"]))
    refused(EUNSUPPORTED, "llama generate", lambda: lib.classify(tiny("llama"), "ba"))
    refused(EUNSUPPORTED, "context_create encoder", lambda: lib.context(model))
    refused(
        EINVAL, "prompt pair", lambda: lib.rank(model, "ba", ["be"], prompt="{query}{document}")
    )
    refused(EINVAL, "instruction pair", lambda: lib.rank(model, "ba", ["be"], instruction="a"))
    refused(EINVAL, "yes head", lambda: lib.rank(model, "ba", ["be"], yes="a"))
    long = written(TEXTS[-1]) + " ba" * 3
    refused(ECONTEXT, "text 43 40 shorter", lambda: lib.classify(model, long))
    refused(ECONTEXT, "documents[0]", lambda: lib.rank(model, "ba", [long]))
    cut = lib.rank(model, "ba", [long], truncate=True)
    assert np.isfinite(cut).all()


def test_a_head_that_does_not_fit_its_config_is_refused(lib, tmp_path):
    two = {"id2label": {"0": "a", "1": "b"}}
    folder = tiny_encoders.make(tmp_path / "two", "bert", SEQUENCE, config=two)
    refused(EFORMAT, "head.out.weight 3x48 2x48", lambda: lib.load(folder))
    odd = tiny_encoders.make(tmp_path / "odd", "bert", SEQUENCE, config={"id2label": {"1": "a"}})
    refused(EFORMAT, "id2label", lambda: lib.load(odd))
    folder = tiny_encoders.make(tmp_path / "none", "bert", SEQUENCE)
    file = str(folder / "model.safetensors")
    stored = {name: own for name, own in mx.load(file).items() if "classifier" not in name}
    mx.eval(stored)
    mx.save_safetensors(file, stored)
    refused(EFORMAT, "head.out.weight", lambda: lib.load(folder))


@pytest.mark.parametrize("head", [SEQUENCE, TOKENS])
def test_scores_that_are_no_numbers_are_refused(lib, tmp_path, head):
    """JSON has neither NaN nor infinity."""
    folder = tiny_encoders.make(tmp_path / "odd", "bert", head)
    file = str(folder / "model.safetensors")
    stored = dict(mx.load(file))
    stored["classifier.bias"] = mx.full((3,), float("nan"))
    mx.eval(stored)
    mx.save_safetensors(file, stored)
    model = lib.load(folder)
    refused(EFORMAT, f"NaN {folder}", lambda: lib.classify(model, "ba"))
    lib.free_model(model)


def test_labels_that_are_only_counted_are_bounded(lib, tmp_path):
    config = {"id2label": None, "num_labels": 1 << 24}
    folder = tiny_encoders.make(tmp_path / "many", "bert", SEQUENCE, config=config)
    refused(EFORMAT, "num_labels 16777216 65536", lambda: lib.load(folder))


def rewritten(folder, change):
    """A folder whose tokenizer.json is changed."""
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    change(tokenizer)
    file.write_text(json.dumps(tokenizer))
    return folder


def test_token_types_that_the_network_does_not_know_are_refused(lib, tmp_path):
    def change(tokenizer):
        for piece in tokenizer["post_processor"]["pair"][3:]:
            next(iter(piece.values()))["type_id"] = 7

    folder = rewritten(tiny_encoders.make(tmp_path / "types", "bert", SEQUENCE), change)
    model = lib.load(folder)
    refused(EFORMAT, "token type 7 2", lambda: lib.rank(model, "ba", ["be"]))
    lib.free_model(model)


def test_every_token_around_a_pair_has_its_own_type(lib, tmp_path):
    def change(tokenizer):
        tokenizer["post_processor"]["pair"] += [{"SpecialToken": {"id": "[SEP]", "type_id": 0}}]

    folder = tiny_encoders.make(tmp_path / "types", "bert", SEQUENCE)
    model = lib.load(rewritten(folder, change))
    (got,) = lib.rank(model, "ba", ["be"], normalize=False)
    lib.free_model(model)

    def other(tokenizer):
        tokenizer["post_processor"]["pair"][-1]["SpecialToken"]["type_id"] = 1

    model = lib.load(rewritten(folder, other))
    (wrong,) = lib.rank(model, "ba", ["be"], normalize=False)
    lib.free_model(model)
    assert not np.allclose(got, wrong, atol=1e-3)


def test_pairs_of_a_tokenizer_that_does_not_know_the_letter_a(lib, tmp_path):
    def change(tokenizer):
        vocabulary = {**dict.fromkeys(tiny_encoders.SPECIAL), "0": None, "1": None}
        vocabulary = {token: index for index, token in enumerate(vocabulary)}
        tokenizer["model"] = {"type": "BPE", "vocab": vocabulary, "merges": []}

    folder = rewritten(tiny_encoders.make(tmp_path / "digits", "bert", SEQUENCE), change)
    model = lib.load(folder)
    scores = lib.rank(model, "01", ["10", "0a1", "1"], normalize=False)
    assert np.isfinite(scores).all()
    assert scores[0] != scores[2]
    lib.free_model(model)


@pytest.mark.parametrize("head", [SEQUENCE, TOKENS])
def test_a_head_reads_a_text_without_the_prompts_of_its_folder(lib, classifier, tmp_path, head):
    model = classifier("bert", head, **(BIO if head == TOKENS else {}))
    config = BIO if head == TOKENS else {}
    folder = tiny_encoders.make(tmp_path / "prompts", "bert", head, config=config)
    kind, prompts = "sentence_transformers.models.Transformer", {"a": "ba "}
    for name, value in (
        ("modules.json", [{"path": "", "type": kind}]),
        ("sentence_bert_config.json", {"do_lower_case": True}),
        ("config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": "a"}),
    ):
        (folder / name).write_text(json.dumps(value))
    own = lib.load(folder)
    text = "İ ba BE ke"
    assert lib.classify(own, text) == lib.classify(model, text)
    lib.free_model(own)
