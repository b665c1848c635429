"""Loading: light imports, progress with the weights really evaluated, cancelling, info."""

from __future__ import annotations

import gc
import json
import os
import pathlib
import struct
import subprocess
import sys
from itertools import pairwise

import mlx.core as mx
import pytest
from support import tiny_models
from support.loaded import drain, load
from support.parameters import stored

from cowmlx.folders import safetensors, weights
from cowmlx.models import registry
from cowmlx.networks import architectures, light_route

ROOT = pathlib.Path(__file__).parents[2]


def run(program: str, *arguments: str) -> str:
    """Run a program in a separate process; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


LIGHT = """
import sys
import resource, os
limits, names = resource.getrlimit(resource.RLIMIT_NOFILE), dict(os.environ)
before = set(sys.modules)
import cowmlx.models.registry as registry
early = set(sys.modules) - before
heavy = {"transformers", "huggingface_hub", "mlx_lm", "numpy", "torch", "jinja2", "tokenizers",
         "mlx", "mlx.core", "dataclasses", "inspect", "ast", "difflib"}
assert not early & heavy, early & heavy
for path in sys.argv[1:]:
    loading = registry.load(path, adapter_path=None, lazy=False, trust_remote_code=False)
    while True:
        try:
            next(loading)
        except StopIteration as stop:
            model = stop.value
            break
    assert model.route == "light"
    prompt = model.chat_template.prompt_tokens(
        model.tokenizer, [{"role": "user", "content": "Hi"}], {})
    import mlx.core as mx
    mx.eval(model.network(mx.array([prompt]), cache=model.make_cache()))
    model.info()
registry.supported_architectures()
heavy = {"transformers", "huggingface_hub", "mlx_lm", "torch", "numpy"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits
assert dict(os.environ) == names
"""


def test_the_light_route_imports_nothing_heavy_and_changes_nothing(folder: pathlib.Path) -> None:
    families = ("llama", "qwen3_next", "gemma3_text", "mamba2")
    run(LIGHT, *(str(tiny_models.make(folder / f"light-{name}", name)) for name in families))


def test_a_start_imports_no_module_that_few_hosts_need() -> None:
    """Each of them takes milliseconds: archives, OpenSSL, copies of files."""
    late = {"zipfile", "bz2", "lzma", "shutil", "_hashlib", "numpy", "jinja2"}
    found = run("import sys, cowmlx.engine, cowmlx.models.registry\nprint(*sys.modules)").split()
    assert not late & set(found)


def test_nearly_every_architecture_is_light() -> None:
    names = [
        name
        for name in registry.supported_architectures()
        if name not in light_route.remappings()[0]
    ]
    heavy = [name for name in names if not architectures.is_light(name)]
    assert heavy == ["plamo2"]
    program = """
import sys
from cowmlx.errors import Unsupported
from cowmlx.networks import architectures
failed = []
for name in sys.argv[1:]:
    try:
        module = architectures.load(name)
        assert module.Model and module.ModelArgs
    except Unsupported:
        failed.append(name)
assert "mlx_lm" not in sys.modules and "transformers" not in sys.modules
print(*failed)
"""
    light = [name for name in names if name not in heavy]
    assert len(light) > 100
    # It asks for a package and calls sys.exit without it.
    assert run(program, *light).split()[-1:] == ["olmo"]


def test_architectures_are_those_of_plain_mlx_lm() -> None:
    names = set(registry.supported_architectures())
    assert {"llama", "mistral", "solar_open", "lfm2-vl", "kimi_k2", "qwen3_next"} <= names
    assert not {"base", "cache", "switch_layers", "rope_utils", "ssm", "mla", "pipeline"} & names
    program = """
import json
from mlx_lm.utils import MODEL_ARCHITECTURE_REMAPPING, MODEL_REMAPPING
print(json.dumps([MODEL_REMAPPING, [[*k, v] for k, v in MODEL_ARCHITECTURE_REMAPPING.items()]]))
"""
    by_type, by_class = json.loads(run(program).splitlines()[-1])
    assert light_route.remappings() == (by_type, {(a, b): c for a, b, c in by_class})


def test_progress_rises_with_the_bytes_evaluated(llama: pathlib.Path) -> None:
    model, steps = drain(
        registry.load(str(llama), adapter_path=None, lazy=False, trust_remote_code=False)
    )
    fractions = [fraction for fraction, _ in steps]
    assert fractions[0] == 0.0
    assert fractions[-1] == 1.0
    assert fractions == sorted(fractions)
    during = [fraction for fraction, stage in steps if stage == "weights"]
    assert len(during) >= model.config["num_hidden_layers"]
    sizes = {
        name: array.nbytes for name, array in weights.flatten(model.network.parameters()).items()
    }
    total = sum(sizes.values())
    layer = sum(size for name, size in sizes.items() if name.startswith("model.layers.1."))
    assert any(abs(b - a - layer / total) < 1e-9 for a, b in pairwise(during))


def test_groups_are_bounded_in_bytes(llama: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = drain(registry.load(str(llama), adapter_path=None, lazy=False, trust_remote_code=False))
    monkeypatch.setattr(weights, "GROUP_BYTES", 1)
    many = drain(registry.load(str(llama), adapter_path=None, lazy=False, trust_remote_code=False))
    arrays = len(weights.flatten(many[0].network.parameters()))
    assert len(many[1]) == arrays + 3
    assert len(few[1]) < len(many[1])


def test_memory_grows_group_by_group_and_is_released_on_close(folder: pathlib.Path) -> None:
    path = tiny_models.make(folder / "bigger", "llama", config={"hidden_size": 256})
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    loading = registry.load(str(path), adapter_path=None, lazy=False, trust_remote_code=False)
    seen = []
    for fraction, stage in loading:
        seen.append((fraction, mx.get_active_memory() - before, stage))
        if fraction > 0.5:
            break
    assert seen[-1][1] > 0
    assert max(held for fraction, held, _ in seen if fraction == 0.0) < seen[-1][1] / 4
    loading.close()
    gc.collect()
    mx.clear_cache()
    assert mx.get_active_memory() <= before


def test_lazy_evaluates_nothing(folder: pathlib.Path) -> None:
    path = tiny_models.make(folder / "bigger", "llama", config={"hidden_size": 256})
    gc.collect()
    before = mx.get_active_memory()
    model, steps = drain(
        registry.load(str(path), adapter_path=None, lazy=True, trust_remote_code=False)
    )
    assert mx.get_active_memory() - before < model.nbytes / 10
    assert steps[0][0] == 0.0
    assert steps[-1][0] == 1.0


def test_a_failed_load_leaves_nothing(llama: pathlib.Path) -> None:
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    gc.collect()
    mx.clear_cache()
    before = mx.get_active_memory()
    with pytest.raises(Exception, match="no place for"):
        load(llama)
    gc.collect()
    mx.clear_cache()
    assert mx.get_active_memory() <= before


def test_several_shards(llama: pathlib.Path) -> None:
    whole = load(llama)
    arrays = stored(whole.network)
    names = sorted(arrays)
    (llama / "model.safetensors").unlink()
    for number in range(3):
        part = {name: arrays[name] for name in names[number::3]}
        mx.save_safetensors(str(llama / f"model-0000{number + 1}-of-00003.safetensors"), part)
    split = load(llama)
    tokens = mx.array([[1, 2, 3]])
    assert mx.array_equal(split.network(tokens), whole.network(tokens)).item()


def test_info_is_json_and_complete(llama: pathlib.Path) -> None:
    model = load(llama)
    info = json.loads(json.dumps(model.info()))
    assert info["architecture"] == "llama"
    assert info["route"] == "light"
    assert info["path"] == str(llama)
    assert info["bytes"] == model.nbytes == 4 * info["parameters"]
    assert info["context_length"] == 512
    assert info["vocabulary_size"] == model.vocabulary_size == info["tokenizer_size"]
    assert info["eos_token"] == {"id": 2, "text": "<|im_end|>"}
    assert info["end_tokens"] == [{"id": 2, "text": "<|im_end|>"}]
    assert info["chat_template"] is True
    assert info["tools"] is False
    assert info["thinking"] is False
    assert info["quantization"] is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"max_position_embeddings": 77}, 77),
        ({"max_position_embeddings": None, "n_positions": 78}, 78),
        ({"max_position_embeddings": None, "text_config": {"max_position_embeddings": 79}}, 79),
        ({"max_position_embeddings": None}, 32768),
        ({"max_position_embeddings": True}, 32768),
        ({"max_position_embeddings": float("inf")}, 32768),
        ({"max_position_embeddings": 10**7, "n_positions": 78}, 78),
    ],
)
def test_context_length(changes: dict[str, object], expected: int) -> None:
    from cowmlx.folders import config

    settings = {key: value for key, value in changes.items() if value is not None}
    assert config.context_length(settings, {}) == expected
    known = config.context_length(settings, {"model_max_length": 99})
    assert known == (99 if expected == 32768 else expected)
    assert config.context_length(settings, {"model_max_length": 10**30}) == expected


def test_rows_of_logits_count_not_the_config(folder: pathlib.Path) -> None:
    path = tiny_models.make(folder / "padded", "llama", config={"vocab_size": 500})
    model = load(path)
    assert model.vocabulary_size == 500
    assert model.tokenizer.vocabulary_size < 500
    assert model.tokenizer.decode([499], skip_special=False) == ""


def test_tiny_models_are_reproducible(tmp_path: pathlib.Path) -> None:
    program = """
import hashlib, pathlib, sys
sys.path.insert(0, "tests")
from support import tiny_models
from support.parameters import stored
for family in ("qwen3_moe", "phi", "mamba2", "rwkv7"):
    path = tiny_models.make(pathlib.Path(sys.argv[1]), family, seed=3)
    print(hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest())
    tiny_models.make(pathlib.Path(sys.argv[1]), sys.argv[2])
"""
    others = {"a": "gpt2", "b": "llama"}
    assert len({run(program, str(tmp_path / name), other) for name, other in others.items()}) == 1
    assert os.listdir(tmp_path / "a")


def test_loading_leaves_no_work_behind(llama: pathlib.Path, folder: pathlib.Path) -> None:
    """Initial values, never computed, would lengthen mlx's random key with every load."""
    graph = folder / "key.dot"

    def after_loads(count: int) -> int:
        for _ in range(count):
            load(llama)
        mx.export_to_dot(str(graph), mx.random.state[0])
        return len(graph.read_text().splitlines())

    assert after_loads(1) == after_loads(3)


def test_the_table_of_types_is_what_mlx_reads(tmp_path: pathlib.Path) -> None:
    import mlx.core as mx

    for name, (own, size) in safetensors.DTYPES.items():
        entry = {"dtype": name, "shape": [3], "data_offsets": [0, 3 * size]}
        header = json.dumps({"w": entry}).encode()
        file = tmp_path / f"{name}.safetensors"
        file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(3 * size))
        assert safetensors.check_file(str(file)) == {"w": [3]}
        if name == "F64":
            with pytest.raises(RuntimeError, match="unsupported dtype F64"):
                safetensors.load(str(file))
            continue
        (array,) = safetensors.load(str(file)).values()
        assert (array.dtype, array.nbytes) == (getattr(mx, own), 3 * size)
