"""GGUF files as folders: the weights that they stand for, tokenizers, and damaged files."""

from __future__ import annotations

import json
import random
import struct

import mlx.core as mx
import pytest
from support import tiny_models, tokenizers
from support.paths import CALF
from support.signatures import ADD_SPECIAL

from cowmlx.errors import BadFormat, CowMlxError, Unsupported
from cowmlx.folders import gguf_file
from cowmlx.models.converting import gguf_network, gguf_tokenizer, output, sources
from cowmlx.models.quantizing import Quantizing
from cowmlx.steps import finished

gguf_models = pytest.importorskip(
    "support.gguf_models", reason="gguf is not installed: make .venv/.tools"
)

NEAR = 1e-3
START = [30, 40, 50, 60, 70, 80, 90, 100]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A folder of a family, by its name and the kind of its tokenizer."""

    def original(family, tokenizer="bpe", **config):
        name, _, own = gguf_models.FAMILIES[family]
        folder = tmp_path_factory.mktemp(family)
        changed = {**gguf_models.WIDE, **own, **config}
        return tiny_models.make(folder, name, tokenizer=tokenizer, config=changed)

    return original


@pytest.fixture
def logits(lib):
    """Logits behind a prompt, through the C ABI."""

    def logits(folder):
        model = lib.load(folder)
        context = lib.context(model)
        try:
            lib.begin(context, START, max_tokens=0)
            return lib.logits(context)
        finally:
            lib.free(context)
            lib.free_model(model)

    return logits


def converted(file, folder, quantize=None, dtype=None):
    source = sources.read(str(file), quantize, dtype)
    finished(output.write(source, str(folder), {}))
    return folder


def furthest(first, second):
    return max(abs(a - b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("kind", gguf_models.TYPES)
def test_logits_are_those_of_the_dequantized_weights(original, logits, tmp_path, kind):
    exact = gguf_models.make(tmp_path / "m.gguf", original("llama"), "llama", kind)
    folder = converted(tmp_path / "m.gguf", tmp_path / "made", dtype="float32")
    assert furthest(logits(folder), logits(exact)) < NEAR


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q8_0"])
def test_weights_keep_their_numbers_exactly(original, tmp_path, kind):
    exact = gguf_models.make(tmp_path / "m.gguf", original("llama"), "llama", kind)
    folder = converted(tmp_path / "m.gguf", tmp_path / "made")
    stored = json.loads((folder / "config.json").read_text())["torch_dtype"]
    assert stored == {"F16": "float16", "BF16": "bfloat16"}.get(kind, "float32")
    made, expected = (mx.load(str(path / "model.safetensors")) for path in (folder, exact))
    assert made.keys() == expected.keys()
    for name, array in expected.items():
        if array.ndim > 1:
            assert mx.array_equal(made[name].astype(mx.float32), array), name


@pytest.mark.parametrize("family", gguf_models.FAMILIES)
def test_every_family(original, logits, tmp_path, family):
    exact = gguf_models.make(tmp_path / "m.gguf", original(family), family)
    folder = converted(tmp_path / "m.gguf", tmp_path / "made")
    assert furthest(logits(folder), logits(exact)) < NEAR


def test_weights_can_be_quantized_again(lib, original, logits, tmp_path):
    exact = gguf_models.make(tmp_path / "m.gguf", original("llama"), "llama")
    how = Quantizing(4, 64, "affine")
    folder = converted(tmp_path / "m.gguf", tmp_path / "made", how, "float32")
    model = lib.load(exact, quantize_bits=4)
    try:
        assert lib.info(model)["quantization"]["bits"] == 4
        context = lib.context(model)
        lib.begin(context, START, max_tokens=0)
        assert furthest(lib.logits(context), logits(folder)) < NEAR
        lib.free(context)
    finally:
        lib.free_model(model)


def test_rope_of_llama_3(original, logits, tmp_path):
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    folder = original("llama", rope_scaling=scaling, rope_theta=500000.0)
    exact = gguf_models.make(tmp_path / "m.gguf", folder, "llama")
    contents = gguf_file.read(str(tmp_path / "m.gguf"))
    facts = gguf_network.Facts(contents)
    factors = [
        gguf_network._llama3_factor(500000.0 ** (2 * index / 64), 8.0) for index in range(32)
    ]
    facts.floats = lambda name: factors  # type: ignore[method-assign]
    config = gguf_network.config(facts, gguf_network.family(facts))
    assert config["rope_scaling"] == scaling
    facts.floats = lambda name: [*factors[:-1], 3.0]  # type: ignore[method-assign]
    with pytest.raises(Unsupported, match="other factors than Llama 3's"):
        gguf_network.config(facts, gguf_network.family(facts))
    assert exact.is_dir()


# ----------------------------------------------------------------- Tokenizers


@pytest.mark.parametrize("kind", ["bpe", "spm"])
def test_texts_have_the_tokens_of_the_original(lib, original, tmp_path, kind):
    folder = original("llama", kind)
    gguf_models.make(tmp_path / "m.gguf", folder, "llama")
    made = converted(tmp_path / "m.gguf", tmp_path / "made")
    models = lib.load(folder), lib.load(made)
    try:
        for text in {*tokenizers.TEXTS, "  two  spaces\n\n\ttab ", "", "\u2581"}:
            expected = lib.tokenize(models[0], text, ADD_SPECIAL)
            assert lib.tokenize(models[1], text, ADD_SPECIAL) == expected, text
            assert lib.detokenize(models[1], expected) == lib.detokenize(models[0], expected)
        messages = [{"role": "user", "content": "Hello there"}]
        assert lib.chat_prompt(models[1], messages) == lib.chat_prompt(models[0], messages)
        for name in ("eos_token", "bos_token", "chat_template"):
            assert lib.info(models[1])[name] == lib.info(models[0])[name], name
    finally:
        for model in models:
            lib.free_model(model)


# ------------------------------------------------------------- Refused, damaged


@pytest.mark.parametrize(
    ("changes", "kind", "words"),
    [
        ({"general.architecture": "bert"}, Unsupported, "'bert' cannot be converted"),
        ({"llama.expert_count": 8}, Unsupported, "with experts"),
        ({"llama.block_count": None}, BadFormat, "llama.block_count is missing"),
        ({"llama.block_count": 2**31}, BadFormat, "llama.block_count is 2147483648"),
        ({"llama.block_count": 3}, BadFormat, "lacks"),
        ({"llama.attention.head_count": 0}, BadFormat, "head_count is 0"),
        ({"llama.attention.head_count": 7}, CowMlxError, ""),
        ({"llama.rope.scaling.type": "yarn"}, Unsupported, "RoPE scaling 'yarn'"),
        ({"llama.rope.freq_base": float("nan")}, BadFormat, "rope.freq_base is nan"),
        ({"llama.context_length": "long"}, BadFormat, "context_length is 'long'"),
        ({"tokenizer.ggml.model": "bert"}, Unsupported, "tokenizer of the kind 'bert'"),
        ({"tokenizer.ggml.pre": "other"}, Unsupported, "pre-tokenizer 'other'"),
        ({"tokenizer.ggml.tokens": ["a", "a"]}, BadFormat, "a token twice"),
        ({"tokenizer.ggml.merges": ["a zz"]}, BadFormat, "the merge 'a zz' is of no tokens"),
        ({"tokenizer.ggml.eos_token_id": 10**6}, BadFormat, "eos_token_id is 1000000"),
        ({"tokenizer.ggml.token_type": [1, 2]}, BadFormat, "token_type is no list"),
        ({"split.count": 3}, Unsupported, "one of 3 parts"),
    ],
    ids=str,
)
def test_what_cannot_be_converted_is_refused(original, tmp_path, changes, kind, words):
    gguf_models.make(tmp_path / "m.gguf", original("llama"), "llama", **changes)
    with pytest.raises(kind) as error:
        sources.read(str(tmp_path / "m.gguf"), None, None)
    assert words in str(error.value)


def texted(text):
    return struct.pack("<Q", len(text)) + text.encode()


def written(file, *, tensors=1, fields=0, values=b"", described=b"", data=b"\0" * 128):
    head = b"GGUF" + struct.pack("<IQQ", 3, tensors, fields) + values + described
    file.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return str(file)


def tensor(name="w", shape=(32,), kind=0, offset=0):
    sides = struct.pack(f"<{len(shape)}Q", *shape)
    return texted(name) + struct.pack("<I", len(shape)) + sides + struct.pack("<IQ", kind, offset)


DAMAGED = [
    (b"GGUF", "ends within the version"),
    (b"GGML" + bytes(32), "does not begin with GGUF"),
    (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version"),
    (b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0), "tensors; at most"),
    (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40), "fields of metadata; at most"),
    ({"tensors": 2, "described": tensor() * 2}, "two tensors"),
    ({"described": tensor(shape=(33,))}, "of 132 bytes begins"),
    ({"described": tensor(offset=32)}, "begins at"),
    ({"described": tensor(offset=2**63)}, "begins at"),
    ({"described": tensor(offset=1)}, "begins at"),
    ({"described": tensor(shape=(2**31 - 1, 2**31 - 1, 2**31 - 1))}, "begins at"),
    ({"described": tensor(shape=(2**31,))}, "has the shape"),
    ({"described": tensor(shape=(0,))}, "has the shape"),
    ({"described": tensor(shape=(1,) * 5)}, "has 5 axes"),
    ({"described": tensor(shape=(33,), kind=2)}, "no multiple of 32"),
    ({"described": tensor(kind=99)}, "of type 99"),
    ({"described": struct.pack("<Q", 2**62)}, "a text of"),
    ({"tensors": 2, "described": tensor("a") + tensor("b")}, "overlap"),
    ({"fields": 1, "values": texted("x") + struct.pack("<I", 99)}, "unknown kind 99"),
    ({"fields": 1, "values": texted("x") + struct.pack("<IIQ", 9, 9, 1)}, "array of the kind 9"),
    ({"fields": 1, "values": texted("x") + struct.pack("<IIQ", 9, 4, 2**61)}, "items of x"),
    ({"fields": 2, "values": (texted("x") + struct.pack("<IB", 0, 1)) * 2}, "two fields"),
    (
        {
            "tensors": 0,
            "fields": 1,
            "values": texted("general.alignment") + struct.pack("<II", 4, 48),
        },
        "no power of two",
    ),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGED, ids=[words for _, words in DAMAGED])
def test_lengths_offsets_and_types_are_checked(tmp_path, damage, words):
    file = tmp_path / "m.gguf"
    if isinstance(damage, bytes):
        file.write_bytes(damage)
    else:
        written(file, **damage)
    with pytest.raises(CowMlxError) as error:
        gguf_file.read(str(file))
    assert words in str(error.value)
    assert str(file) in str(error.value)


def test_the_numbers_of_a_good_file_are_read(tmp_path):
    """The files above differ from this one in their damage alone."""
    file = written(tmp_path / "m.gguf", described=tensor(), data=struct.pack("<32f", *range(32)))
    contents = gguf_file.read(file)
    assert list(contents.numbers(contents.tensors["w"])) == list(range(32))


def test_bytes_that_are_changed_at_random_do_no_harm(original, tmp_path):
    """A file with them is read, or refused by an error of ours."""
    gguf_models.make(tmp_path / "m.gguf", original("llama"), "llama")
    whole = (tmp_path / "m.gguf").read_bytes()
    found = gguf_file.read(str(tmp_path / "m.gguf")).tensors.values()
    header = min(own.begin for own in found)
    draw, refused = random.Random(0), 0
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(draw.choice((1, 4))):
            data[draw.randrange(header)] = draw.randrange(256)
        file = tmp_path / "changed.gguf"
        file.write_bytes(data[: draw.choice((len(data), draw.randrange(len(data))))])
        try:
            contents = gguf_file.read(str(file))
            facts = gguf_network.Facts(contents)
            kind = gguf_network.family(facts)
            gguf_network.config(facts, kind)
            gguf_network.weights(facts, kind)
            gguf_tokenizer.texts(contents, 512)
        except CowMlxError:
            refused += 1
    assert refused > 50


def test_a_load_names_the_command(lib, original, tmp_path):
    from support.library import StatusError

    gguf_models.make(tmp_path / "m.gguf", original("llama"), "llama")
    with pytest.raises(StatusError, match=r"python -m cowmlx convert FILE\.gguf FOLDER"):
        lib.load(tmp_path / "m.gguf")
    assert CALF.is_dir()
