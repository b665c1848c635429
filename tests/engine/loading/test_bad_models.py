"""Model folders with something wrong: the right status, a message that helps, and nothing left."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from driver import greedy, prompt
from support import tiny_models
from support.library import StatusError
from support.signatures import EFORMAT, EINVAL, ENOENT, EUNSUPPORTED


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of a good model's folder, to be spoilt."""
    return Path(shutil.copytree(folder("llama"), tmp_path / "model"))


def edit(path, **changes):
    """Change keys of a JSON file; None removes one."""
    value = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: kept for key, kept in value.items() if kept is not None}))


@pytest.fixture
def refused(lib, tiny, oracle, open_context):
    """Loads a folder that must be refused; returns the message."""
    working = open_context(tiny("llama"))

    def refused(path, status, *words, **params):
        before = lib.info()["handles"]
        with pytest.raises(StatusError) as error:
            lib.load(path, **params)
        message = error.value.message
        assert error.value.status == status, message
        assert message.startswith("model_load: ")
        for word in words:
            assert str(word) in message, message
        assert "Traceback" not in message
        assert lib.info()["handles"] == before
        assert greedy(lib, working, prompt(5), 4) == oracle("llama").after(prompt(5), 4)
        return message

    return refused


# ------------------------------------------------------------- The folder


def test_a_path_that_is_not_there(refused, tmp_path):
    refused(tmp_path / "nowhere", ENOENT, tmp_path / "nowhere")


def test_a_file_instead_of_a_folder(refused, copy):
    refused(copy / "config.json", ENOENT, copy / "config.json", "folder")


def test_an_empty_folder(refused, tmp_path):
    refused(tmp_path, ENOENT, "config.json")


def test_an_empty_path(refused):
    refused("", ENOENT)


def test_a_name_on_the_hub_is_no_path(refused):
    """The network is never touched."""
    refused("mlx-community/Llama-3.2-1B-Instruct-4bit", ENOENT)


def test_a_path_that_is_no_utf8(refused, lib, copy):
    strange = os.fsencode(copy.parent) + b"/mod\xffel"
    os.rename(copy, strange)
    assert "path is not UTF-8" in refused(os.fsdecode(strange), EINVAL)


@pytest.mark.parametrize("name", ["modèle ü 模型 🦊", "with space", "per%cent {brace} 'quote\""])
def test_a_path_with_unusual_characters(lib, copy, name):
    os.rename(copy, copy.parent / name)
    model = lib.load(copy.parent / name)
    assert lib.info(model)["path"].endswith(name)
    lib.free_model(model)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(refused, copy):
    (copy / "config.json").chmod(0)
    refused(copy, -11, "config.json")


def test_messages_name_the_operation_once(refused, tmp_path, copy):
    assert refused(tmp_path / "nowhere", ENOENT).count("model_load") == 1
    edit(copy / "config.json", model_type="cow")
    assert refused(copy, EUNSUPPORTED).count("model_load") == 1


# ------------------------------------------------------------- The config


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json"])
def test_a_missing_file(refused, copy, missing):
    (copy / missing).unlink()
    refused(copy, ENOENT, missing)


def test_missing_weights(refused, copy):
    (copy / "model.safetensors").unlink()
    refused(copy, ENOENT, "safetensors")


def test_a_config_that_is_no_json(refused, copy):
    (copy / "config.json").write_text('{\n "model_type": llama\n}')
    refused(copy, EFORMAT, "config.json", "line 2", "column 16")


@pytest.mark.parametrize("text", ["", "[]", "3", "null", '"llama"', "{}", "\xff", "[" * 100000])
def test_a_config_that_is_no_config(refused, copy, text):
    (copy / "config.json").write_text(text, encoding="latin-1")
    refused(copy, EFORMAT, "config.json")


def test_an_unknown_architecture(refused, copy):
    edit(copy / "config.json", model_type="cow")
    refused(copy, EUNSUPPORTED, "cow")


@pytest.mark.parametrize(
    "change",
    [
        {"use_bidirectional_attention": True},
        {"use_bidirectional_attention": "all"},
        {"is_causal": False},
        {"text_config": {"is_causal": False}},
    ],
)
def test_tokens_that_see_those_behind_them(refused, copy, change):
    """Computed without them, vectors would be others."""
    edit(copy / "config.json", **change)
    (key, value), prefix = *change.items(), ""
    if isinstance(value, dict):
        ((key, _),), prefix = value.items(), "text_config."
    refused(copy, EUNSUPPORTED, f"config.json: {prefix}{key} is", "llama")


def test_tokens_of_images_alone_that_see_those_behind_them(lib, copy):
    edit(copy / "config.json", use_bidirectional_attention="vision", is_causal=True)
    lib.free_model(lib.load(copy))


@pytest.mark.parametrize(
    "name",
    ["../llama", "llama.attention", "os", "__init__", "base", "cache", "", 3, None, ["llama"]],
)
def test_a_model_type_that_names_no_architecture(refused, copy, name):
    edit(copy / "config.json", model_type=name)
    wrong_kind = not isinstance(name, str) or not name
    refused(copy, EFORMAT if wrong_kind else EUNSUPPORTED, "model_type" if wrong_kind else name)


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "vocab_size", "rms_norm_eps"])
def test_a_config_that_lacks_a_key(refused, copy, key):
    edit(copy / "config.json", **{key: None})
    refused(copy, EFORMAT, key)


@pytest.mark.parametrize(
    "changes",
    [
        {"hidden_size": "64"},
        {"hidden_size": -64},
        {"hidden_size": 0},
        {"num_attention_heads": 0},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": -1},
        {"vocab_size": 10**12},
        {"vocab_size": None},
        {"rope_scaling": {"type": "nonsense"}},
        {"eos_token_id": "end"},
        {"eos_token_id": [1.5]},
    ],
    ids=str,
)
def test_a_config_with_a_value_that_cannot_be(refused, copy, changes):
    edit(copy / "config.json", **changes)
    refused(copy, EFORMAT)


def test_a_deeply_nested_config(refused, copy):
    (copy / "config.json").write_text('{"a":' * 50000 + "1" + "}" * 50000)
    refused(copy, EFORMAT, "config.json")


# ------------------------------------------------------------ The weights


@pytest.mark.parametrize("size", [0, 1, 7, 8, 100, 1000, -1, -1000])
def test_truncated_weights(refused, copy, size):
    path = copy / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:size])
    refused(copy, EFORMAT, "model.safetensors")


@pytest.mark.parametrize(
    "data",
    [
        b"garbage" * 1000,
        b"\xff" * 64,
        (2**62).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{]",
        (2).to_bytes(8, "little") + b"[]",
        (10**9).to_bytes(8, "little") + b"{" * 1000,
    ],
    ids=["words", "ones", "huge header", "no JSON", "no object", "short header"],
)
def test_garbage_for_weights(refused, copy, data):
    (copy / "model.safetensors").write_bytes(data)
    refused(copy, EFORMAT, "model.safetensors")


def header_of(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def with_header(path, header, body):
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


@pytest.mark.parametrize(
    "change",
    [
        {"data_offsets": [0, 10**9]},
        {"data_offsets": [-8, 8]},
        {"data_offsets": [64, 0]},
        {"data_offsets": [2**63, 2**63 + 4]},
        {"dtype": "F33"},
        {"shape": [-1, 4]},
        {"shape": [2**40, 2**40]},
        {"shape": "64"},
    ],
    ids=str,
)
def test_a_weight_described_wrongly(refused, copy, change):
    """Such a weight would be read from outside of the file."""
    path = copy / "model.safetensors"
    header, body = header_of(path)
    name = next(key for key in header if key.endswith("weight"))
    with_header(path, {**header, name: {**header[name], **change}}, body)
    refused(copy, EFORMAT)


def test_weights_that_lack_one(refused, copy):
    path = copy / "model.safetensors"
    header, body = header_of(path)
    name = next(key for key in header if key.endswith("norm.weight"))
    del header[name]
    with_header(path, header, body)
    refused(copy, EFORMAT, name)


def test_weights_with_one_too_many(refused, copy):
    path = copy / "model.safetensors"
    header, body = header_of(path)
    name = next(key for key in header if key.endswith("norm.weight"))
    with_header(path, {**header, "model.layers.99.extra.weight": header[name]}, body)
    refused(copy, EFORMAT, "model.layers.99.extra.weight")


def test_weights_of_another_shape(refused, copy):
    edit(copy / "config.json", intermediate_size=128)
    refused(copy, EFORMAT, "96", "128", "mlp")


def test_weights_of_another_model(refused, copy, folder):
    shutil.copy(folder("mamba2") / "model.safetensors", copy / "model.safetensors")
    refused(copy, EFORMAT)


def test_a_shard_of_the_index_that_is_not_there(refused, copy):
    header, _ = header_of(copy / "model.safetensors")
    names = [name for name in header if name != "__metadata__"]
    index = {"weight_map": dict.fromkeys(names, "model-00001-of-00002.safetensors")}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    (copy / "model.safetensors").rename(copy / "model-00002-of-00002.safetensors")
    path = copy / "model-00002-of-00002.safetensors"
    header, body = header_of(path)
    del header[names[0]]
    with_header(path, header, body)
    refused(copy, ENOENT, "model-00001-of-00002.safetensors")


# ---------------------------------------------------------- The tokenizer


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model": {"type": "Cow"}}', "\xff\xfe"])
def test_a_tokenizer_that_is_none(refused, copy, text):
    (copy / "tokenizer.json").write_text(text, encoding="latin-1")
    refused(copy, EFORMAT, "tokenizer")


def test_tokenizer_settings_that_are_no_json(refused, copy):
    (copy / "tokenizer_config.json").write_text("{]")
    refused(copy, EFORMAT, "tokenizer_config.json")


def test_a_chat_template_that_is_no_template(refused, lib, copy):
    """Either the load says so, or the first use."""
    edit(copy / "tokenizer_config.json", chat_template="{% for message in %}")
    try:
        model = lib.load(copy)
    except StatusError as error:
        assert error.status == EFORMAT
        assert "template" in error.message
        return
    with pytest.raises(StatusError) as error:
        lib.chat_prompt(model, [{"role": "user", "content": "hi"}])
    lib.free_model(model)
    assert "template" in error.value.message
    assert error.value.name in ("EINVAL", "EFORMAT")


# ------------------------------------------------------- Code in the folder


CODE = """
import pathlib
pathlib.Path(__file__).with_name("was-run").touch()
from mlx_lm.models.llama import Model, ModelArgs
"""


def test_code_of_the_folder_is_refused_and_not_run(refused, copy):
    (copy / "llama_of_ours.py").write_text(CODE)
    edit(copy / "config.json", model_file="llama_of_ours.py")
    refused(copy, EUNSUPPORTED, "trust_remote_code", "llama_of_ours.py")
    assert not (copy / "was-run").exists()


def test_code_of_the_folder_is_run_if_the_host_says_so(lib, copy, oracle, open_context):
    pytest.importorskip("transformers")
    (copy / "llama_of_ours.py").write_text(CODE)
    edit(copy / "config.json", model_file="llama_of_ours.py")
    model = lib.load(copy, trust_remote_code=True)
    assert (copy / "was-run").exists()
    assert greedy(lib, open_context(model), prompt(5)) == oracle("llama").after(prompt(5))
    lib.free_model(model)


@pytest.mark.parametrize("key", ["auto_map", "custom_pipelines"])
def test_code_for_other_programs_in_the_folder_is_neither_needed_nor_run(lib, copy, key):
    (copy / "modeling_ours.py").write_text(CODE)
    edit(copy / "config.json", **{key: {"AutoModelForCausalLM": "modeling_ours.Model"}})
    lib.free_model(lib.load(copy))
    assert not (copy / "was-run").exists()


@pytest.mark.parametrize("name", ["../outside.py", "/tmp/outside.py"])
def test_code_outside_of_the_folder_is_refused(refused, copy, name):
    edit(copy / "config.json", model_file=name)
    refused(copy, EUNSUPPORTED)


def test_a_template_cannot_leave_its_sandbox(lib, copy):
    evil = "{{ ().__class__.__base__.__subclasses__() }}"
    edit(copy / "tokenizer_config.json", chat_template=evil)
    try:
        model = lib.load(copy)
    except StatusError:
        return
    with pytest.raises(StatusError) as error:
        lib.chat_prompt(model, [{"role": "user", "content": "hi"}])
    lib.free_model(model)
    assert error.value.name == "EINVAL"


NAMES = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "model.safetensors",
    "extra.jinja",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_in_the_folder_keeps_nobody_waiting(refused, copy, name):
    (copy / name).unlink(missing_ok=True)
    os.mkfifo(copy / name)
    assert f"{name} is neither a file nor a directory" in refused(copy, EFORMAT)


def test_a_device_in_the_folder_is_not_read(refused, copy):
    (copy / "tokenizer_config.json").unlink(missing_ok=True)
    (copy / "tokenizer_config.json").symlink_to("/dev/zero")
    assert "neither a file nor a directory" in refused(copy, EFORMAT)


def test_an_enormous_text_is_not_read(refused, copy):
    with open(copy / "tokenizer_config.json", "wb") as file:
        file.truncate(1 << 40)
    assert "is larger than" in refused(copy, EFORMAT)


def test_a_process_with_too_many_open_files(lib, folder):
    """Neither the folder nor the library is to blame."""
    import resource

    path = folder("llama")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 1, limit[1]))
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                spare.append(os.open("/dev/null", os.O_RDONLY))
        with pytest.raises(StatusError, match=r"EIO: .*Too many open files"):
            lib.load(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        for fd in spare:
            os.close(fd)
    lib.free_model(lib.load(path))


def test_layers_without_keys_are_counted_before_they_are_made(lib, tmp_path):
    folder = tiny_models.make(tmp_path / "model", "afm7")
    config = json.loads((folder / "config.json").read_text())
    config["num_kv_reuse_layers"] = 2**31 - 1
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(StatusError, match="num_kv_reuse_layers is 2147483647, not within") as error:
        lib.load(folder)
    assert error.value.status == EFORMAT
