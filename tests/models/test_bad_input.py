"""Damaged and hostile folders fail with a status and a message that names what is wrong."""

from __future__ import annotations

import json
import pathlib
import struct
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from support import tiny_models
from support.loaded import load

from cowmlx.errors import BadFormat, CowMlxError, NotFound, Unsupported


def change(path: pathlib.Path, **keys: Any) -> None:
    """Change keys of config.json; None removes one."""
    config = json.loads((path / "config.json").read_text())
    config.update(keys)
    config = {key: value for key, value in config.items() if value is not None}
    (path / "config.json").write_text(json.dumps(config))


def write(path: pathlib.Path, name: str, content: bytes | str) -> None:
    (path / name).write_bytes(content.encode() if isinstance(content, str) else content)


def header(path: pathlib.Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Edit the header of model.safetensors."""
    data = (path / "model.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    fields = json.loads(data[8 : 8 + length])
    edit(fields)
    raw = json.dumps(fields).encode()
    write(path, "model.safetensors", struct.pack("<Q", len(raw)) + raw + data[8 + length :])


def tensors(path: pathlib.Path, edit: Callable[[dict[str, mx.array]], None]) -> None:
    """Edit the tensors of model.safetensors."""
    arrays = dict(mx.load(str(path / "model.safetensors")))
    mx.eval(arrays)
    edit(arrays)
    mx.save_safetensors(str(path / "model.safetensors"), arrays)


def cut(path: pathlib.Path, size: int) -> None:
    data = (path / "model.safetensors").read_bytes()
    write(path, "model.safetensors", data[:size])


Q = "model.layers.0.self_attn.q_proj.weight"
CASES: dict[str, tuple[Callable[[pathlib.Path], Any], type[CowMlxError], str]] = {
    "no config": (lambda p: (p / "config.json").unlink(), NotFound, "config.json"),
    "no weights": (lambda p: (p / "model.safetensors").unlink(), NotFound, "model*.safetensors"),
    "no tokenizer": (lambda p: (p / "tokenizer.json").unlink(), NotFound, "tokenizer.json"),
    "config not json": (
        lambda p: write(p, "config.json", '{\n  "a": oops}'),
        BadFormat,
        "line 2, column 8",
    ),
    "config empty": (lambda p: write(p, "config.json", ""), BadFormat, "line 1, column 1"),
    "config a list": (lambda p: write(p, "config.json", "[1]"), BadFormat, "object"),
    "config binary": (lambda p: write(p, "config.json", b"\xff\xfe"), BadFormat, "UTF-8"),
    "config deep": (
        lambda p: write(p, "config.json", '{"a":' + "[" * 100000 + "]" * 100000 + "}"),
        BadFormat,
        "config.json",
    ),
    "config a folder": (
        lambda p: ((p / "config.json").unlink(), (p / "config.json").mkdir()),
        CowMlxError,
        "config.json",
    ),
    "tokenizer not json": (
        lambda p: write(p, "tokenizer.json", "{nope"),
        BadFormat,
        "tokenizer.json",
    ),
    "tokenizer empty": (lambda p: write(p, "tokenizer.json", ""), BadFormat, "tokenizer.json"),
    "tokenizer odd": (
        lambda p: write(p, "tokenizer.json", '{"model": {"type": "Magic"}}'),
        BadFormat,
        "tokenizer.json",
    ),
    "tokenizer config not json": (
        lambda p: write(p, "tokenizer_config.json", "{"),
        BadFormat,
        "tokenizer_config.json",
    ),
    "tokenizer config odd": (
        lambda p: write(p, "tokenizer_config.json", '{"added_tokens_decoder": {"x": {}}}'),
        BadFormat,
        "tokenizer",
    ),
    "chat template odd": (
        lambda p: write(p, "tokenizer_config.json", '{"chat_template": 7}'),
        BadFormat,
        "chat_template",
    ),
    "no model_type": (lambda p: change(p, model_type=None), BadFormat, "'model_type'"),
    "model_type a number": (lambda p: change(p, model_type=3), BadFormat, "'model_type'"),
    "unknown model_type": (lambda p: change(p, model_type="lama"), Unsupported, "llama"),
    "helper module": (lambda p: change(p, model_type="base"), Unsupported, "'base'"),
    "cache module": (lambda p: change(p, model_type="cache"), Unsupported, "'cache'"),
    "package": (lambda p: change(p, model_type="__init__"), Unsupported, "__init__"),
    "dots": (lambda p: change(p, model_type="..utils"), Unsupported, "..utils"),
    "dotted": (lambda p: change(p, model_type="llama.Model"), Unsupported, "llama.Model"),
    "path": (lambda p: change(p, model_type="../../evil"), Unsupported, "evil"),
    "exits on import": (lambda p: change(p, model_type="olmo"), Unsupported, "SystemExit"),
    "model_file": (lambda p: change(p, model_file="m.py"), Unsupported, "trust_remote_code"),
    "missing key": (lambda p: change(p, hidden_size=None), BadFormat, "hidden_size"),
    "key of another type": (lambda p: change(p, hidden_size="big"), BadFormat, "config.json"),
    "layers without end": (
        lambda p: change(p, num_hidden_layers=10**9),
        BadFormat,
        "num_hidden_layers",
    ),
    "negative layers": (
        lambda p: change(p, num_hidden_layers=-1),
        BadFormat,
        "num_hidden_layers",
    ),
    "too few layers": (lambda p: change(p, num_hidden_layers=2), BadFormat, "model.layers.2"),
    "too many layers": (lambda p: change(p, num_hidden_layers=4), BadFormat, "model.layers.3"),
    "huge": (lambda p: change(p, hidden_size=2**20), BadFormat, "embed_tokens"),
    "zero heads": (lambda p: change(p, num_attention_heads=0, head_dim=None), BadFormat, ""),
    "rotation by no base": (lambda p: change(p, rope_theta=0.0), BadFormat, "base of rotary"),
    "rotation below 0": (lambda p: change(p, rope_theta=-1.0), BadFormat, "is -1.0"),
    "other vocabulary": (lambda p: change(p, vocab_size=7), BadFormat, "7x64"),
    "end token a word": (lambda p: change(p, eos_token_id="end"), BadFormat, "eos_token_id"),
    "empty weights": (lambda p: write(p, "model.safetensors", ""), BadFormat, "model.safetensors"),
    "garbage weights": (
        lambda p: write(p, "model.safetensors", b"\x93" * 500),
        BadFormat,
        "model.safetensors",
    ),
    "header cut": (lambda p: cut(p, 100), BadFormat, "model.safetensors"),
    "data cut": (lambda p: cut(p, -1), BadFormat, "ends at byte"),
    "header not json": (
        lambda p: write(p, "model.safetensors", struct.pack("<Q", 4) + b"{]xx"),
        BadFormat,
        "not JSON",
    ),
    "header a list": (
        lambda p: write(p, "model.safetensors", struct.pack("<Q", 2) + b"[]"),
        BadFormat,
        "object",
    ),
    "unknown dtype": (lambda p: header(p, lambda h: h[Q].update(dtype="F4")), BadFormat, "F4"),
    "no dtype": (lambda p: header(p, lambda h: h[Q].update(dtype=[1])), BadFormat, "dtype [1]"),
    "negative shape": (
        lambda p: header(p, lambda h: h[Q].update(shape=[-1, 64])),
        BadFormat,
        "shape",
    ),
    "shape too big": (
        lambda p: header(p, lambda h: h[Q].update(shape=[2**40, 2**40])),
        BadFormat,
        Q,
    ),
    "shape of thousands of digits": (
        lambda p: header(p, lambda h: h[Q].update(shape=[10**4000, 10**4000])),
        BadFormat,
        Q,
    ),
    "shape without end": (
        lambda p: header(p, lambda h: h[Q].update(shape=[2] * 10_000)),
        BadFormat,
        "[2, 2, 2, 2, 2, 2, ...]",
    ),
    "offsets swapped": (
        lambda p: header(p, lambda h: h[Q]["data_offsets"].reverse()),
        BadFormat,
        "offsets",
    ),
    "offsets past the end": (
        lambda p: header(p, lambda h: h[Q].update(data_offsets=[2**50, 2**50 + 16384])),
        BadFormat,
        "ends at byte",
    ),
    "overlap": (
        lambda p: header(p, lambda h: h[Q].update(data_offsets=[0, 16384])),
        BadFormat,
        "overlap",
    ),
    "no offsets": (lambda p: header(p, lambda h: h[Q].pop("data_offsets")), BadFormat, "offsets"),
    "missing weight": (lambda p: tensors(p, lambda t: t.pop(Q)), BadFormat, Q),
    "left-over weight": (
        lambda p: tensors(p, lambda t: t.update({"extra.weight": mx.zeros((2,))})),
        BadFormat,
        "extra.weight",
    ),
    "wrong shape": (
        lambda p: tensors(p, lambda t: t.update({Q: mx.zeros((3, 5))})),
        BadFormat,
        "3x5",
    ),
    "missing shard": (
        lambda p: (
            tensors(p, lambda t: t.pop(Q)),
            write(
                p,
                "model.safetensors.index.json",
                json.dumps({"weight_map": {Q: "model-00002-of-00002.safetensors"}}),
            ),
        ),
        NotFound,
        "model-00002-of-00002.safetensors",
    ),
    "tokenizer code": (
        lambda p: (
            (p / "tokenizer.json").unlink(),
            write(p, "tokenizer_config.json", '{"auto_map": {"AutoTokenizer": ["t.T", null]}}'),
        ),
        Unsupported,
        "trust_remote_code",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_message_names_what_is_wrong(name: str, llama: pathlib.Path) -> None:
    damage, error, words = CASES[name]
    damage(llama)
    with pytest.raises(error) as failure:
        load(llama)
    assert words in str(failure.value)


def test_missing_and_misplaced_folders(llama: pathlib.Path, tmp_path: pathlib.Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for path, words in (
        (tmp_path / "nowhere", "no such directory"),
        (llama / "config.json", "is not a directory"),
        (empty, "config.json"),
    ):
        with pytest.raises(NotFound) as failure:
            load(path)
        assert words in str(failure.value)


def test_random_damage_never_gets_further_than_an_error(llama: pathlib.Path) -> None:
    """Flipped bytes in any file: a model, or an error of ours; nothing else, and no crash."""
    import random

    rng = random.Random(7)
    names = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    whole = {name: (llama / name).read_bytes() for name in names}
    failures = 0
    for round_number in range(120):
        name = names[round_number % len(names)]
        data = bytearray(whole[name])
        end = 3000 if name == "model.safetensors" else len(data)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(end)] = rng.randrange(256)
        write(llama, name, bytes(data))
        try:
            load(llama, lazy=round_number % 3 == 0)
        except CowMlxError:
            failures += 1
        write(llama, name, whole[name])
    assert failures > 60


def test_a_folder_with_pattern_characters_in_its_name(tmp_path: pathlib.Path) -> None:
    path = tiny_models.make(tmp_path / "we[ir]d *name? ö", "llama")
    assert load(path).vocabulary_size > 300


def test_a_malformed_generation_config_is_ignored_as_mlx_lm_does(llama: pathlib.Path) -> None:
    before = load(llama, lazy=True).end_tokens
    write(llama, "generation_config.json", "{nope")
    assert load(llama, lazy=True).end_tokens == before
    write(llama, "generation_config.json", '{"eos_token_id": [5, 6]}')
    assert load(llama, lazy=True).end_tokens == {5, 6} | before


def test_a_vocabulary_without_its_unknown_token_fails_on_a_text_by_a_status():
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    from cowmlx.text.tokenizer import Tokenizer

    words = tokenizers.models.WordLevel({"a": 0}, unk_token="<unk>")
    tokenizer = Tokenizer(tokenizers.Tokenizer(words), {})
    with pytest.raises(BadFormat, match="this text"):
        tokenizer.encode("b", add_special=False, parse_special=True)
    with pytest.raises(BadFormat, match="this text"):
        tokenizer.encode_plain("b")


def test_a_vocabulary_without_tokens_that_the_network_forbids(tmp_path: pathlib.Path) -> None:
    """Phi-3 small sets the logits of tokens by their ids; mlx does not check these."""
    path = tiny_models.make(tmp_path, "phi3small", config={"vocab_size": 100351})
    with pytest.raises(BadFormat, match="vocab_size is 100351, not at least 100352"):
        load(path)


def test_a_table_of_layers_with_fewer_rows_than_the_vocabulary(tmp_path: pathlib.Path) -> None:
    """Gemma 4 looks up every token in it; mlx would read beyond its end."""
    path = tiny_models.make(tmp_path, "gemma4_text", config={"vocab_size_per_layer_input": 7})
    with pytest.raises(BadFormat, match="vocab_size_per_layer_input is 7, not at least"):
        load(path)


def test_a_module_of_mlx_lm_that_prints_does_not_reach_the_terminal(
    llama: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change(llama, model_type="olmo")
    with pytest.raises(Unsupported, match="install ai2-olmo"):
        load(llama)
    assert capfd.readouterr() == ("", "")
