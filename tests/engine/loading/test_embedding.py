"""Vectors are the pooled hidden states that plain mlx-lm computes, however texts are batched."""

from __future__ import annotations

import json
import math
import threading
from ctypes import c_float, c_size_t, pointer
from itertools import chain

import pytest
from driver import KINDS, greedy, prompt
from support import loaded, reference, tiny_models
from support.library import StatusError
from support.outputs import Buffer
from support.paths import CALF
from support.rounding import assert_as_exact
from support.signatures import (
    ADD_SPECIAL,
    EBUFFER,
    ECANCELED,
    ECONTEXT,
    EHANDLE,
    EINVAL,
    OK,
    PARSE_SPECIAL,
    POOLING_CLS,
    POOLING_LAST,
    POOLING_MAX,
    POOLING_MEAN,
    POOLING_WEIGHTED,
)
from support.threads import together

from cowmlx.accelerate import kernels
from cowmlx.services.embedding import tokens_of

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "fox",
    "A model reads tokens and writes tokens; every token is a piece of text.",
    "Größe, Übermut, naïve café",
]
# More than one chunk of it is processed at a time, and a short text beside it.
LONG = [" ".join(TEXTS) * 10, "fox", "The dog sleeps. " * 70]
LONG_MODELS = ["llama-long", "gemma3-long", "mamba2"]
POOLINGS = {"mean": POOLING_MEAN, "last": POOLING_LAST, "cls": POOLING_CLS}
CLOSE = 1e-5


def texts_of(model: str) -> list[str]:
    return LONG if model in LONG_MODELS else TEXTS


@pytest.fixture(scope="module")
def plain(lib, once, folder, tiny):
    """mlx-lm's pooled hidden states for a model's texts, a vector per text, and their errors."""
    names = [*tiny_models.FAMILIES, *(name for name in LONG_MODELS if "long" in name)]

    def ask(path):
        tasks = [
            {
                "folder": str(folder(name)),
                "embed": [lib.tokenize(tiny(name), text, ADD_SPECIAL) for text in texts_of(name)],
            }
            for name in names
        ]
        (path / "answers.json").write_text(json.dumps(reference.run(tasks, path)))

    answers = json.loads((once("embeddings", ask) / "answers.json").read_text())

    def plain(name: str, pooling: str) -> tuple[list[list[float]], list[list[float]]]:
        answer = answers[names.index(name)]
        assert "error" not in answer, f"mlx-lm fails itself: {answer['error']}"
        vectors, errors = (
            [each[pooling] for each in answer[kind]] for kind in ("vectors", "errors")
        )
        return vectors, errors

    return plain


def close(got, wanted, tolerance=CLOSE):
    """Whether vectors are equal but for rounding, measured by their largest values."""
    return len(got) == len(wanted) and all(
        len(a) == len(b)
        and max(abs(x - y) for x, y in zip(a, b, strict=True)) <= tolerance * max(map(abs, b))
        for a, b in zip(got, wanted, strict=True)
    )


def length(vector):
    return math.sqrt(sum(value * value for value in vector))


# ------------------------------------------------------------- What they are


def assert_pooled(got, wanted, errors):
    """Fail unless vectors are mlx-lm's, but for the order of sums."""
    assert list(map(len, got)) == list(map(len, wanted))
    if kernels.available():
        assert_as_exact(*(list(chain(*vectors)) for vectors in (got, wanted, errors)))
    else:
        assert close(got, wanted)


@pytest.mark.plain
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_vectors_are_pooled_hidden_states(lib, tiny, plain, family, pooling):
    got = lib.embed(tiny(family), texts_of(family), pooling=POOLINGS[pooling], normalize=False)
    assert_pooled(got, *plain(family, pooling))


@pytest.mark.plain
def test_max_and_weighted_mean_are_of_the_states_of_all_tokens(lib, tiny):
    """The state of a token is the last one of the text that ends with it."""
    model = tiny("llama-long")
    words = " ".join(TEXTS).split()[:9] + ["fox"] * 520
    text = " ".join(words)
    tokens = lib.tokenize(model, text, ADD_SPECIAL)
    cuts = [count for count in range(1, len(tokens)) if count < 12 or count in (511, 512, 513)]
    prefixes = [lib.detokenize(model, tokens[:count]) for count in cuts]
    assert [lib.tokenize(model, own, ADD_SPECIAL) for own in prefixes] == [
        tokens[:count] for count in cuts
    ]
    short = prefixes[9]
    states = lib.embed(model, prefixes[:10], pooling=POOLING_LAST, normalize=False)
    got = {
        pooling: lib.embed(model, [text, short], pooling=pooling, normalize=False)
        for pooling in (POOLING_MAX, POOLING_WEIGHTED)
    }
    assert close([got[POOLING_MAX][1]], [list(map(max, zip(*states, strict=True)))])
    weighted = [
        sum((at + 1) * value for at, value in enumerate(column)) / 55
        for column in zip(*states, strict=True)
    ]
    assert close([got[POOLING_WEIGHTED][1]], [weighted])
    for state in lib.embed(model, prefixes[10:], pooling=POOLING_LAST, normalize=False):
        assert all(a >= b - CLOSE for a, b in zip(got[POOLING_MAX][0], state, strict=True))


@pytest.mark.plain
@pytest.mark.parametrize("model", LONG_MODELS)
@pytest.mark.parametrize(
    ("pooling", "batch_tokens"), [("mean", 1), ("mean", 4096), ("last", 4096), ("cls", 4096)]
)
def test_long_texts_are_processed_in_chunks(lib, tiny, plain, model, pooling, batch_tokens):
    """With others beside them, or alone."""
    assert all(len(lib.tokenize(tiny(model), LONG[number])) > 512 for number in (0, 2))
    got = lib.embed(
        tiny(model),
        LONG,
        pooling=POOLINGS[pooling],
        normalize=False,
        batch_tokens=batch_tokens,
    )
    assert_pooled(got, *plain(model, pooling))


def test_the_vectors_of_calf_tell_texts_apart(lib, calf):
    fox, same, other = lib.embed(calf, ["a red fox", "a red fox", "3 + 4 = 7"])
    assert close([fox], [same])
    assert sum(a * b for a, b in zip(fox, other, strict=True)) < 0.99


@pytest.mark.plain
def test_mean_pooling_and_normalisation_are_the_defaults(lib, tiny, plain):
    vectors, errors = plain("llama", "mean")
    lengths = [length(vector) for vector in vectors]
    unit, parts = (
        [[value / size for value in each] for size, each in zip(lengths, some, strict=True)]
        for some in (vectors, errors)
    )
    assert_pooled(lib.embed(tiny("llama"), TEXTS), unit, parts)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_normalised_vectors_have_length_1(lib, tiny, pooling):
    for vector in lib.embed(tiny("mamba2"), TEXTS, pooling=POOLINGS[pooling], normalize=True):
        assert length(vector) == pytest.approx(1, abs=CLOSE)


@pytest.mark.parametrize("normalize", [True, False])
def test_zeros_stay_zeros(lib, folder, tmp_path, normalize):
    import mlx.core as mx

    (tmp_path / "adapter_config.json").write_text('{"fine_tune_type": "full"}')
    mx.save_safetensors(
        str(tmp_path / "adapters.safetensors"), {"model.norm.weight": mx.zeros((64,))}
    )
    model = lib.load(folder("llama"), adapter_path=tmp_path)
    assert lib.embed(model, TEXTS, normalize=normalize) == [[0.0] * 64] * len(TEXTS)
    lib.free_model(model)


def test_a_model_of_16_bits_is_pooled_in_32(lib, folder, tmp_path):
    """Thousands of hidden states add up; their mean would lose its digits in bfloat16."""
    import mlx.core as mx

    path = tiny_models.make(tmp_path, "llama", config={"max_position_embeddings": 8192})
    weights = mx.load(str(path / "model.safetensors"))
    halves = {name: array.astype(mx.bfloat16) for name, array in weights.items()}
    mx.save_safetensors(str(path / "model.safetensors"), halves, metadata={"format": "mlx"})
    text = "fox " * 1000
    wide, half = lib.load(folder("llama-long")), lib.load(path)
    wanted, got = (lib.embed(model, [text], normalize=False) for model in (wide, half))
    assert close(got, wanted, tolerance=0.02)
    lib.free_model(wide)
    lib.free_model(half)


# --------------------------------------------------------------------- Batches


@pytest.mark.parametrize("family", [*KINDS, "qwen3_moe", "gpt_oss", "recurrent_gemma", "jamba"])
@pytest.mark.parametrize("batch_tokens", [60, 300])
def test_a_batch_gives_what_each_text_gives_alone(lib, tiny, family, batch_tokens):
    texts = [" ".join(TEXTS[: 1 + number % 4])[: 5 + 11 * number] for number in range(12)]
    model = tiny(family)
    alone = [lib.embed(model, [text], normalize=False)[0] for text in texts]
    assert close(lib.embed(model, texts, normalize=False, batch_tokens=batch_tokens), alone)


def test_vectors_come_in_the_order_of_the_texts(lib, tiny):
    texts = [TEXTS[2][:size] for size in (40, 3, 17, 60, 9, 3, 28)]
    forward = lib.embed(tiny("llama"), texts, batch_tokens=50)
    backward = lib.embed(tiny("llama"), texts[::-1], batch_tokens=50)
    assert close(backward[::-1], forward)
    assert not close(backward, forward)


def test_many_texts_in_many_batches(lib, tiny):
    texts = [f"{number} {TEXTS[number % 4]}" for number in range(500)]
    together_ = lib.embed(tiny("llama"), texts)
    some = range(0, 500, 61)
    assert close(
        [together_[number] for number in some],
        [lib.embed(tiny("llama"), [texts[number]])[0] for number in some],
    )


# ------------------------------------------------------------------------ Tokens


def test_add_special_adds_the_tokens_that_frame_a_text(lib, folder, tmp_path):
    model = lib.load(tiny_models.make(tmp_path, "llama", tokenizer="spm"))
    bare = lib.tokenize(model, "fox")
    framed = lib.tokenize(model, "fox", ADD_SPECIAL)
    assert framed != bare
    cls = {"pooling": POOLING_CLS}
    first = [lib.embed(model, [text], **cls)[0] for text in ("fox", "The dog")]
    assert close(first[:1], first[1:]), "the first token is the same special one"
    without = [lib.embed(model, [text], add_special=False, **cls)[0] for text in ("fox", "The dog")]
    assert not close(without[:1], without[1:])
    lib.free_model(model)


def test_special_tokens_in_a_text_are_plain_text(lib, tiny):
    model = tiny("llama")
    special = lib.info(model)["eos_token"]["text"]
    spelled = lib.tokenize(model, special)
    assert len(spelled) > 1 == len(lib.tokenize(model, special, PARSE_SPECIAL))
    # Behind its first letter a text does not look special, and what it ends with is the same.
    got = lib.embed(model, [special], pooling=POOLING_CLS, add_special=False)
    wanted = lib.embed(
        model, [lib.detokenize(model, spelled[:1])], pooling=POOLING_CLS, add_special=False
    )
    assert close(got, wanted)


# ------------------------------------------------------------- Sizes and buffers


def call(lib, model, texts, out, params=None):
    from support.signatures import cow_mlx_text

    data = [text.encode() for text in texts]
    array = (cow_mlx_text * len(data))(*((text, len(text)) for text in data))
    return lib.c.cow_mlx_model_embed(model, array, len(data), params, *out.arguments())


def test_a_size_query_gives_the_dimensions_and_reads_no_text(lib, tiny):
    out = Buffer(c_float, 0)
    assert call(lib, tiny("llama"), ["fox" * 10000], out) == OK
    assert out.length.value == 64


def test_no_texts_give_the_dimensions(lib, tiny):
    out = Buffer(c_float, 8)
    assert call(lib, tiny("llama"), [], out) == OK
    assert out.length.value == 64
    out.check(0)
    dims = c_size_t(0)
    assert lib.c.cow_mlx_model_embed(tiny("llama"), None, 0, None, None, 0, pointer(dims)) == OK
    assert dims.value == 64


@pytest.mark.parametrize("missing", [1, 64, 127])
def test_a_buffer_too_small_gets_nothing_but_the_dimensions(lib, tiny, missing):
    out = Buffer(c_float, 128 - missing)
    assert call(lib, tiny("llama"), ["fox", "dog"], out) == EBUFFER
    assert out.length.value == 64
    out.check_untouched(size_allowed=True)


def test_a_larger_buffer_is_not_filled_up(lib, tiny):
    assert len(lib.embed(tiny("llama"), ["fox"], capacity=1000)) == 1


def test_a_text_may_end_at_its_nul(lib, tiny):
    from support.signatures import NUL, cow_mlx_text

    array = (cow_mlx_text * 2)((b"fox", NUL), (b"fox dog", 3))
    out = Buffer(c_float, 128)
    assert lib.c.cow_mlx_model_embed(tiny("llama"), array, 2, None, *out.arguments()) == OK
    assert close([out.data[:64]], [out.data[64:128]])


# ---------------------------------------------------------------------- Refusals


@pytest.mark.parametrize(
    "values",
    [{"pooling": 6}, {"pooling": -1}, {"batch_tokens": 0}, {"batch_tokens": 2**63}],
    ids=str,
)
def test_a_value_out_of_range_is_named(lib, tiny, values):
    with pytest.raises(StatusError, match=next(iter(values))) as refused:
        lib.embed(tiny("llama"), ["fox"], **values)
    assert refused.value.status == EINVAL


def test_a_text_without_tokens_is_named(lib, tiny):
    with pytest.raises(StatusError, match=r"texts\[2\]") as refused:
        lib.embed(tiny("llama"), ["fox", "dog", "", "cat"], add_special=False)
    assert refused.value.status == EINVAL


def test_a_text_longer_than_the_context_length_is_named(lib, tiny):
    limit = lib.info(tiny("llama"))["context_length"]
    with pytest.raises(StatusError, match=rf"texts\[1\].*{limit}") as refused:
        lib.embed(tiny("llama"), ["fox", "fox " * limit])
    assert refused.value.status == ECONTEXT


def test_a_text_that_is_not_utf_8_is_named(lib, tiny):
    with pytest.raises(StatusError, match=r"texts\[1\]") as refused:
        lib.embed(tiny("llama"), ["fox", b"\xff\xfe"], capacity=128)
    assert refused.value.status == EINVAL


def test_a_handle_of_another_kind(lib, context):
    with pytest.raises(StatusError) as unknown:
        lib.embed(context, ["fox"])
    assert unknown.value.status == EHANDLE


def test_a_refusal_leaves_nothing_behind(lib, tiny):
    model = tiny("llama")
    wanted = lib.embed(model, TEXTS)
    lib.trim_memory()
    before = lib.info()["memory"]["active"]
    for texts in (["fox", "fox " * 600], ["fox", ""]):
        with pytest.raises(StatusError):
            lib.embed(model, texts, add_special=False)
    lib.trim_memory()
    assert lib.info()["memory"]["active"] <= before
    assert lib.embed(model, TEXTS) == wanted


@pytest.mark.parametrize("family", ["llama", "mamba2"])
def test_a_model_that_has_embedded_gives_its_memory_back(lib, folder, family):
    def come_and_go():
        model = lib.load(folder(family))
        lib.embed(model, TEXTS)
        lib.free_model(model)
        lib.trim_memory()
        return lib.info()["memory"]["active"]

    come_and_go()  # modules of mlx-lm make constants when they are first used
    assert come_and_go() == come_and_go()


# ------------------------------------------------------------------- Beside others


def test_contexts_generate_and_threads_embed_at_once(lib, tiny, oracle, open_context):
    models = ["llama", "mamba2"]
    wanted = {model: lib.embed(tiny(model), TEXTS) for model in models}
    tokens = {model: oracle(model).after(prompt(9)) for model in models}
    failures = []

    def embed(model):
        for _ in range(4):
            if not close(lib.embed(tiny(model), TEXTS, batch_tokens=30), wanted[model]):
                failures.append(f"vectors of {model}")

    def generate(model, context):
        for _ in range(4):
            if greedy(lib, context, prompt(9)) != tokens[model]:
                failures.append(f"tokens of {model}")

    contexts = [open_context(tiny(model)) for model in models]
    works = [lambda model=model: embed(model) for model in models * 2]
    works += [
        lambda model=model, context=context: generate(model, context)
        for model, context in zip(models, contexts, strict=True)
    ]
    together(*works)
    assert not failures


def test_a_context_generates_while_texts_are_embedded(lib, tiny, open_context):
    """All its tokens come before the last of many batches."""
    ended = []

    def embed():
        lib.embed(tiny("llama"), TEXTS * 100, batch_tokens=64)
        ended.append("embedding")

    def generate():
        greedy(lib, open_context(tiny("llama")), prompt(9))
        ended.append("generation")

    together(embed, generate)
    assert ended == ["generation", "embedding"]


def test_a_model_freed_while_it_embeds_cancels_the_call(lib, folder):
    """The call may not have arrived when the model is freed; then it is tried again."""

    def attempt(pause):
        model = lib.load(folder("llama"))
        outcome = []

        def embed():
            try:
                lib.embed(model, TEXTS * 2000, capacity=64 * 4 * 2000, batch_tokens=64)
            except StatusError as error:
                outcome.append(error.status)

        thread = threading.Thread(target=embed)
        thread.start()
        for _ in range(pause):
            lib.info()
        lib.free_model(model)
        thread.join()
        return outcome

    for pause in range(1, 100):
        outcome = attempt(pause)
        if outcome != [EHANDLE]:
            break
    assert outcome == [ECANCELED]


def test_many_short_texts_are_tokenized_in_several_turns():
    tokenizer = loaded.load(CALF).tokenizer
    texts = ["a", "of"] * 4000
    begun, ends = [], []

    def tokenize(index, text):
        begun.append(index)
        return tokenizer.encode_steps(text, add_special=True, parse_special=False)

    steps = tokens_of(texts, tokenize)
    try:
        while True:
            next(steps)
            ends.append(len(begun))
    except StopIteration as stop:
        tokens = stop.value
    wanted = [tokenizer.encode(text, add_special=True, parse_special=False) for text in texts[:2]]
    assert [list(each) for each in tokens] == wanted * 4000
    assert max(after - before for before, after in zip([0, *ends], ends, strict=False)) <= 1000
    assert ends[-1] == len(texts)
