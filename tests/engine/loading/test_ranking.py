"""Scores of documents: by the logits of yes and no, and by classification heads."""

from __future__ import annotations

import json
import shutil
from ctypes import c_char, c_float, c_size_t

import mlx.core as mx
import numpy as np
import pytest
from support import reference
from support.library import StatusError
from support.signatures import (
    EBUFFER,
    ECONTEXT,
    EFORMAT,
    EINVAL,
    EUNSUPPORTED,
    PARSE_SPECIAL,
    cow_mlx_text,
)
from tokenizers import Tokenizer

QUERY = "Which animal is red?"
DOCUMENTS = [
    "A fox is red, and it eats mice.",
    "cow",
    "The quick brown fox jumps over the lazy dog. " * 3,
    "",
    "Größe, Übermut, naïve café <|end|>",
]
PROMPT = "Query: {query}\nDocument: {document}\nAnswer:"
# Soft caps and scales behind the head, heads that are an embedding, and caches of every kind.
FAMILIES = ["llama", "qwen3", "gemma2", "cohere2", "mamba2", "recurrent_gemma", "falcon_h1"]


def answers(lib, model) -> dict[str, str]:
    """Two texts that are a token each."""
    found = ("fox", "cow", "dog", " a", " the", "a", "b")
    single = [text for text in found if len(lib.tokenize(model, text)) == 1]
    return {"yes": single[-1], "no": single[-2]}


def tokens_of(lib, model, document, query=QUERY):
    return lib.tokenize(model, PROMPT.format(query=query, document=document), PARSE_SPECIAL)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_score_is_the_logit_of_yes_less_that_of_no(lib, tiny, open_context, family):
    """As a context gives them behind the same prompt."""
    model = tiny(family)
    named = answers(lib, model)
    yes, no = (lib.tokenize(model, text)[0] for text in (named["yes"], named["no"]))
    context, expected = open_context(model), []
    plain = [text for text in DOCUMENTS if "<|" not in text]
    for document in plain:
        lib.begin(context, tokens_of(lib, model, document), max_tokens=0)
        logits = np.array(lib.logits(context), np.float64)
        expected.append(logits[yes] - logits[no])
    got = lib.rank(model, QUERY, plain, prompt=PROMPT, normalize=False, **named)
    np.testing.assert_allclose(np.ravel(got), expected, rtol=1e-4, atol=1e-4)
    parts = lib.rank(model, QUERY, plain, prompt=PROMPT, **named)
    np.testing.assert_allclose(np.ravel(parts), 1 / (1 + np.exp(-np.array(expected))), atol=1e-5)
    # Alone, or with others and their padding.
    for batch_tokens in (1, 64):
        alone = lib.rank(model, QUERY, plain, prompt=PROMPT, batch_tokens=batch_tokens, **named)
        np.testing.assert_allclose(alone, parts, atol=1e-5)


def test_special_tokens_are_parsed_in_the_prompt_and_nowhere_else(lib, tiny, open_context):
    model = tiny("llama")
    named = answers(lib, model)
    end = lib.info(model)["end_tokens"][0]
    options = {**named, "normalize": False}
    (with_token,), (with_text,) = (
        lib.rank(model, QUERY, ["fox"], prompt=f"{{query}}{text}{{document}}", **options)
        for text in (end["text"], "|" + end["text"][1:])
    )
    assert with_token != with_text
    (inside,) = lib.rank(model, QUERY, [end["text"] + "fox"], prompt="{query}{document}", **options)
    assert inside != with_token


# ------------------------------------------------------------- Classification heads


@pytest.fixture(scope="module")
def classifier(once, folder):
    """Folders of tiny models with a head for labels in the place of that for tokens."""

    def classifier(family, count=1, *, bias=False, packed=False, **changes):
        def fill(path):
            shutil.copytree(folder(family), path, dirs_exist_ok=True)
            config = json.loads((path / "config.json").read_text())
            config["architectures"] = ["TinyForSequenceClassification"]
            config["id2label"] = {str(index): f"kind {index}" for index in range(count)}
            (path / "config.json").write_text(json.dumps({**config, **changes}))
            stored = mx.load(str(path / "model.safetensors"))
            weights = {name: own for name, own in stored.items() if "lm_head" not in name}
            weights["score.weight"] = mx.random.normal((count, 64), key=mx.random.key(7))
            if packed:
                head = mx.quantize(weights.pop("score.weight"), group_size=32, bits=8)
                names = ("score.weight", "score.scales", "score.biases")
                weights |= dict(zip(names, head, strict=True))
            if bias:
                weights["score.bias"] = mx.random.normal((count,), key=mx.random.key(8))
            mx.save_safetensors(str(path / "model.safetensors"), weights, {"format": "mlx"})

        name = "-".join(map(str, ("classifier", family, count, bias, packed, *changes)))
        return once(name, fill)

    return classifier


def pair(folder, document):
    """The tokens that the tokenizers library makes of a pair."""
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    backend.encode_special_tokens = True
    return backend.encode(QUERY, document).ids


def test_a_head_gives_the_scores_that_numpy_makes_of_mlx_lms_hidden_states(
    lib, classifier, folder, tmp_path
):
    families = ["llama", "qwen3", "mamba2"]
    heads = [
        classifier(family, count, bias=family == "llama")
        for count, family in enumerate(families, 1)
    ]
    tasks = [
        {"folder": str(folder(family)), "embed": [pair(head, text) for text in DOCUMENTS]}
        for family, head in zip(families, heads, strict=True)
    ]
    for head, answer in zip(heads, reference.run(tasks, tmp_path), strict=True):
        weights = mx.load(str(head / "model.safetensors"))
        hidden = np.array([each["last"] for each in answer["vectors"]], np.float64)
        expected = hidden @ np.array(weights["score.weight"], np.float64).T
        if "score.bias" in weights:
            expected += np.array(weights["score.bias"], np.float64)
        model = lib.load(head)
        names = lib.info(model)["labels"]
        assert names == [f"kind {index}" for index in range(expected.shape[1])]
        got = lib.rank(model, QUERY, DOCUMENTS, normalize=False)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
        parts = np.exp(expected - expected.max(axis=1, keepdims=True))
        parts = parts / parts.sum(axis=1, keepdims=True)
        wanted = parts if expected.shape[1] > 1 else 1 / (1 + np.exp(-expected))
        np.testing.assert_allclose(lib.rank(model, QUERY, DOCUMENTS), wanted, atol=1e-5)
        lib.free_model(model)


def test_a_packed_head_gives_all_but_the_scores_of_a_plain_one(lib, classifier):
    found = []
    for packed in (False, True):
        model = lib.load(classifier("llama-rough", 3, packed=packed))
        found.append(lib.rank(model, QUERY, DOCUMENTS, normalize=False))
        lib.free_model(model)
    assert found[0] != found[1]
    np.testing.assert_allclose(found[1], found[0], atol=0.02 * np.abs(found[0]).max())


def test_a_classifier_generates_nothing_and_has_no_answers(lib, classifier):
    model = lib.load(classifier("llama"))
    assert len(lib.embed(model, ["fox"])) == 1
    refused(EUNSUPPORTED, "classif", lambda: lib.context(model))
    refused(EINVAL, "yes head", lambda: lib.rank(model, QUERY, ["a"], yes="a"))
    refused(EINVAL, "instruction", lambda: lib.rank(model, QUERY, ["a"], instruction="a"))
    prompt = "{instruction} {query} {document}"
    given = lib.rank(model, QUERY, ["a"], prompt=prompt)
    assert given != lib.rank(model, QUERY, ["a"], prompt=prompt, instruction="b")
    lib.free_model(model)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"id2label": {"0": "a", "1": "b"}}, "score.weight 1 2"),
        ({"architectures": ["TinyForCausalLM"]}, "lm_head.weight"),
    ],
    ids=["labels", "no classifier"],
)
def test_heads_that_do_not_fit_their_config_are_refused(lib, classifier, changes, words):
    refused(EFORMAT, words, lambda: lib.load(classifier("llama", **changes)))


def test_several_labels_of_a_decoder_may_hold(lib, classifier):
    model = lib.load(classifier("llama", 3, problem_type="multi_label_classification"))
    told = lib.classify(model, "fox")
    scores = lib.rank(model, "", ["fox"], prompt="{query}{document}", normalize=False)[0]
    assert told["multiple"]
    numbers = {own["label"]: own["probability"] for own in told["labels"]}
    got = [numbers[f"kind {index}"] for index in range(3)]
    np.testing.assert_allclose(got, 1 / (1 + np.exp(-np.array(scores))), atol=1e-5)
    lib.free_model(model)


def test_inspect_tells_of_a_classifier_that_it_loads(lib, classifier):
    path = bytes(classifier("llama"))
    told = json.loads(bytes(lib._fill(c_char, lib.c.cow_mlx_model_inspect, path, 0)))
    assert told["loads"]


# ------------------------------------------------------------- Long documents and bounds


def refused(status, words, call):
    with pytest.raises(StatusError) as error:
        call()
    assert error.value.status == status, error.value
    for word in words.split():
        assert word in str(error.value)


def test_long_documents_are_refused_or_cut_at_their_end(lib, tiny, classifier):
    model = tiny("llama")
    options = {**answers(lib, model), "prompt": PROMPT, "normalize": False}
    long = "The fox sleeps. " * 400
    refused(ECONTEXT, "documents[1] 512", lambda: lib.rank(model, QUERY, ["a", long], **options))
    cut = lib.rank(model, QUERY, ["a", long, long + "more"], truncate=True, **options)
    assert cut[1] == cut[2]
    bounded = {**options, "max_tokens": 60}
    refused(ECONTEXT, "documents[0] 60", lambda: lib.rank(model, QUERY, [long], **bounded))
    (short,) = lib.rank(model, QUERY, [long], truncate=True, **bounded)
    assert short != cut[1]
    refused(
        ECONTEXT, "without", lambda: lib.rank(model, QUERY * 40, ["a"], truncate=True, **bounded)
    )
    refused(EINVAL, "max_tokens 513", lambda: lib.rank(model, "", ["a"], **options, max_tokens=513))


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        ({"prompt": "{query}"}, EINVAL, "prompt {document}"),
        ({"prompt": "{document}"}, EINVAL, "prompt {query}"),
        ({"prompt": "{query}{document}{document}"}, EINVAL, "prompt {document} 2"),
        ({"prompt": PROMPT, "instruction": "find"}, EINVAL, "instruction prompt"),
        ({"yes": "two words of it"}, EINVAL, "yes one"),
        ({"no": ""}, EINVAL, "no one"),
        ({"no": "same"}, EINVAL, "yes no"),
        ({"batch_tokens": 0}, EINVAL, "batch_tokens 0"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(lib, tiny, options, status, words):
    model = tiny("llama")
    named = answers(lib, model)
    if options.get("no") == "same":
        options = {"no": named["yes"]}
    given = {"prompt": PROMPT, **named, **options}
    refused(status, words, lambda: lib.rank(model, QUERY, ["a"], **given))


def test_where_no_prompt_is_known_one_has_to_be_given(lib, calf):
    named = {"yes": "a", "no": "b"}
    refused(EUNSUPPORTED, "prompt <|im_start|>", lambda: lib.rank(calf, QUERY, ["a"], **named))
    assert lib.rank(calf, QUERY, ["a"], prompt=PROMPT, **named)


def test_the_size_is_told_before_there_is_room(lib, tiny):
    model = tiny("llama")
    params = lib.params("rank", prompt=PROMPT, **answers(lib, model))
    texts = (cow_mlx_text * 2)((b"a", 1), (b"b", 1))
    labels, scores = c_size_t(77), (c_float * 2)(7, 7)
    call = (model, QUERY.encode(), texts, 2, params)
    assert lib.c.cow_mlx_model_rank(*call, scores, 1, labels) == EBUFFER
    assert (labels.value, list(scores)) == (1, [7, 7])
    assert lib.c.cow_mlx_model_rank(*call, scores, 2, labels) == 0
    assert scores[0] != 7


QWEN = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: Find.\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


def test_the_prompt_of_qwen3_reranker_is_known(lib, tiny):
    """With its special tokens, in the words that it was trained with."""
    model = tiny("llama")
    named = answers(lib, model)
    expected = lib.rank(model, QUERY, DOCUMENTS, prompt=QWEN, normalize=False, **named)
    found = lib.rank(model, QUERY, DOCUMENTS, instruction="Find.", normalize=False, **named)
    assert found == expected
