"""Trained layers: contexts take them, plain mlx-lm reads them, and the serving model stays."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from support import heads, tiny_models, tiny_vision_models
from support.loaded import drain, load

from cowmlx.accelerate.blocks import parameters
from cowmlx.errors import CowMlxError, InputOutput, NotFound, OutOfMemory, Unsupported
from cowmlx.models import adapters, mtp
from cowmlx.models import network as networks
from cowmlx.models.images import ImageStore
from cowmlx.training.language import export
from cowmlx.training.language.objective import LanguageObjective
from cowmlx.training.language.options import LanguageOptions
from cowmlx.training.language.token_inputs import TokenBatch
from cowmlx.vision import image_encoders

HERE = pathlib.Path(__file__).parent
FOUR_BITS = {"group_size": 32, "bits": 4}
TOKENS = [5, 9, 40, 41, 42, 7, 60, 61]
# Family, its quantization, the trained layers, and the written form.
CASES: dict[str, tuple[str, dict[str, Any] | None, dict[str, Any], dict[str, Any]]] = {
    "lora": ("llama", None, {"type": "lora"}, {}),
    "dora": ("llama", None, {"type": "dora"}, {}),
    "last layer": ("llama", None, {"type": "lora", "num_layers": 1}, {}),
    "keys": ("llama", None, {"keys": ["self_attn.q_proj", "lm_head", "model.embed_tokens"]}, {}),
    "four bits": ("llama", FOUR_BITS, {"type": "lora"}, {}),
    "experts": ("qwen3_moe", None, {"type": "lora"}, {}),
    "fused": ("llama", None, {"type": "lora"}, {"fuse": True}),
    "fused dora": ("llama", None, {"type": "dora"}, {"fuse": True}),
    "fused experts": ("qwen3_moe", None, {"type": "lora"}, {"fuse": True}),
    "dequantized": ("llama", FOUR_BITS, {"type": "lora"}, {"fuse": True, "dequantize": True}),
    "partly dequantized": (
        "llama",
        FOUR_BITS,
        {"type": "lora", "keys": ["self_attn.q_proj"]},
        {"fuse": True, "dequantize": True},
    ),
    "full": ("qwen3", None, {"type": "full"}, {}),
    "last layer, full": ("mamba2", None, {"type": "full", "num_layers": 1}, {}),
}


def trained(model: Any, options: dict[str, Any], steps: int = 3) -> LanguageObjective:
    """Train a few steps, so steep that logits change."""
    made: LanguageObjective = drain(LanguageObjective.steps(model, LanguageOptions(options)))[0]
    batch = TokenBatch(mx.array([TOKENS]), mx.ones((1, len(TOKENS)), mx.bool_))
    for _ in range(steps):
        _, count, gradients = made.gradients(batch, None)
        rate = 3e-3 / count
        values = {name: value - rate * gradients[name] for name, value in made.parameters().items()}
        mx.eval(values)
        made.set_parameters(values)
    return made


def training(model: Any) -> set[str]:
    """The modules that are in training mode."""
    return {name for name, module in model.network.named_modules() if module.training}


def logits(model: Any) -> mx.array:
    found: mx.array = model.network(mx.array([TOKENS]), cache=model.make_cache())
    mx.eval(found)
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Train and write each case, and let plain mlx-lm read it."""
    folder = tmp_path_factory.mktemp("exported")
    found, requests = {}, []
    for index, (name, (family, quantize, options, how)) in enumerate(CASES.items()):
        path = tiny_models.make(folder / f"model-{index}", family, quantize=quantize)
        model = load(path)
        before, modes = logits(model), training(model)
        run = trained(model, options)
        place = folder / f"out-{index}"
        drain(export.export(run, str(place), **how))
        whole = (place / "config.json").exists()
        request: dict[str, Any] = {"tokens": TOKENS}
        request |= {"path": str(place)} if whole else {"path": str(path), "adapter": str(place)}
        requests.append(request)
        found[name] = {
            "model": model,
            "run": run,
            "before": before,
            "modes": modes,
            "ours": logits(export.published(run)),
            "place": place,
        }
    done = subprocess.run(
        [sys.executable, str(HERE / "plain_reader.py"), str(folder)],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    for name, file in zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True):
        found[name]["plain"] = mx.load(file)["logits"]
    return found


@pytest.mark.plain
@pytest.mark.parametrize("name", CASES)
def test_plain_mlx_lm_reads_what_was_trained(name: str, made: dict[str, dict[str, Any]]) -> None:
    case = made[name]
    assert mx.allclose(case["plain"], case["ours"], rtol=1e-3, atol=2e-3).item()
    changed = mx.abs(case["ours"] - case["before"]).max().item()
    assert changed > 0.05


@pytest.mark.plain
@pytest.mark.parametrize("name", CASES)
def test_the_trained_network_is_the_published_one(
    name: str, made: dict[str, dict[str, Any]]
) -> None:
    run = made[name]["run"]
    run.network.eval()
    plain = run.network(mx.array([TOKENS]))
    run.network.train()
    assert mx.allclose(plain, made[name]["ours"], rtol=1e-3, atol=2e-3).item()


@pytest.mark.plain
@pytest.mark.parametrize("name", CASES)
def test_the_serving_model_stays_as_it_is(name: str, made: dict[str, dict[str, Any]]) -> None:
    case = made[name]
    assert mx.array_equal(logits(case["model"]), case["before"]).item()
    assert training(case["model"]) == case["modes"]


def test_publishing_copies_no_weights_of_the_model(tmp_path: pathlib.Path) -> None:
    model = load(tiny_models.make(tmp_path, "llama"))
    run = trained(model, {"type": "lora"})
    published = export.published(run)
    own = {id(array) for array in flat(model.network)}
    more = [array for array in flat(published.network) if id(array) not in own]
    assert sum(array.nbytes for array in more) == sum(
        array.nbytes for array in run.parameters().values()
    )
    # Later training leaves it unchanged.
    before = logits(published)
    run.set_parameters({name: value + 1 for name, value in run.parameters().items()})
    assert mx.array_equal(logits(published), before).item()
    assert published.weights_version != model.weights_version


def flat(network: Any) -> list[mx.array]:
    return [array for _, array in tree_flatten(network.parameters())]


@pytest.mark.parametrize("family", tiny_vision_models.FAMILIES)
def test_towers_are_written(tmp_path: pathlib.Path, family: str) -> None:
    """Under names with which the folder loads, whatever the network calls its weights."""
    path = tiny_vision_models.make(tmp_path / "model", family)
    run = trained(load(path), {"type": "lora"})
    drain(export.export(run, str(tmp_path / "out"), fuse=True))
    again = load(tmp_path / "out")
    assert isinstance(again.images, ImageStore)
    assert parameters(again.network).keys() == parameters(run.model.network).keys()
    for folder in (path, tmp_path / "out"):
        assert towers(folder, run.model.config) == towers(path, run.model.config) != {}
    drain(again.images.encoder._read_tower())


def towers(folder: pathlib.Path, config: dict[str, Any]) -> dict[str, Any]:
    """The bytes of the weights of a tower, by their names without "model."."""
    stored: Any = mx.load(str(folder / "model.safetensors"))
    return {
        name.removeprefix("model."): array.tolist()
        for name, array in stored.items()
        if image_encoders.is_of_tower(name, config)
    }


@pytest.mark.parametrize("family", heads.ARCHITECTURES)
def test_heads_that_draft_are_written(tmp_path: pathlib.Path, family: str) -> None:
    path = tiny_models.make(tmp_path / "model", family)
    heads.add(path, family, stored_less_one=family == "qwen3_5")
    run = trained(load(path), {"type": "lora", "num_layers": 1})
    drain(export.export(run, str(tmp_path / "out"), fuse=True))
    head, again = (mtp.head_of(load(folder)) for folder in (path, tmp_path / "out"))
    expected, found = dict(tree_flatten(head.parameters())), dict(tree_flatten(again.parameters()))
    assert expected.keys() == found.keys()
    assert all(mx.array_equal(array, found[name]).item() for name, array in expected.items())


def test_weights_with_a_global_scale_are_not_merged(tmp_path: pathlib.Path) -> None:
    run = trained(
        load(tiny_models.make(tmp_path / "model", "llama", quantize=FOUR_BITS)), {"type": "lora"}
    )
    net = networks.share(export.published(run).network)
    next(iter(adapters.layers_of(net).values())).linear.global_scale = mx.array(2.0)
    with pytest.raises(Unsupported, match=r"the weights of .* have a global scale"):
        export._fuse(net, dequantize=False)


def test_requantised_layers_stay_packed(tmp_path: pathlib.Path) -> None:
    path = tiny_models.make(tmp_path / "model", "llama", quantize=FOUR_BITS)
    model = load(path)
    run = trained(model, {"type": "lora"})
    drain(export.export(run, str(tmp_path / "out"), fuse=True))
    again = load(tmp_path / "out")
    assert again.quantization == model.quantization
    assert {name: array.shape for name, array in parameters(again.network).items()} == {
        name: array.shape for name, array in parameters(model.network).items()
    }
    assert again.tokenizer.encode("The fox", add_special=True, parse_special=True)


def test_a_model_of_sixteen_bits_is_written_as_one(tmp_path: pathlib.Path) -> None:
    path = tiny_models.make(tmp_path / "model", "llama")
    stored = mx.load(str(path / "model.safetensors"))
    half = {name: array.astype(mx.bfloat16) for name, array in stored.items()}  # type: ignore[union-attr]
    mx.save_safetensors(str(path / "model.safetensors"), half, metadata={"format": "mlx"})
    run = trained(load(path), {"type": "full"})
    assert {value.dtype for value in run.parameters().values()} == {mx.float32}
    drain(export.export(run, str(tmp_path / "out")))
    written = mx.load(str(tmp_path / "out" / "model.safetensors"))
    assert {array.dtype for array in written.values()} == {mx.bfloat16}  # type: ignore[union-attr]
    assert {array.dtype for array in flat(export.published(run).network)} == {mx.bfloat16}


def test_a_copy_for_contexts_takes_room_and_turns(tmp_path: pathlib.Path) -> None:
    """All weights of 16 bits, trained in float32, may be gigabytes; those of float32 are shared."""
    path = tiny_models.make(tmp_path / "model", "llama")
    sizes: list[int] = []
    shared = trained(load(path), {"type": "full"})
    drain(export.published_steps(shared, lambda size, what: sizes.append(size)))
    assert sizes == [0]
    stored = mx.load(str(path / "model.safetensors"))
    half = {name: array.astype(mx.bfloat16) for name, array in stored.items()}  # type: ignore[union-attr]
    mx.save_safetensors(str(path / "model.safetensors"), half, metadata={"format": "mlx"})
    run = trained(load(path), {"type": "full"})
    asked: list[int] = []
    turns = sum(1 for _ in export.published_steps(run, lambda size, what: asked.append(size)))
    copied = export.stored(run)
    assert turns == len(copied) > 10
    assert asked == [sum(array.nbytes for array in copied.values())]

    def refuse(size: int, what: str) -> None:
        raise OutOfMemory(f"{what} has no room")

    with pytest.raises(OutOfMemory, match="the adapter has no room"):
        drain(export.published_steps(run, refuse))


def test_an_export_replaces_an_earlier_one_and_nothing_else(tmp_path: pathlib.Path) -> None:
    run = trained(load(tiny_models.make(tmp_path / "model", "llama")), {"type": "lora"})
    place = tmp_path / "out"
    drain(export.export(run, str(place)))
    (place / ".DS_Store").write_bytes(b"of macOS")
    drain(export.export(run, str(place)))
    assert sorted(file.name for file in place.iterdir()) == [
        "adapter_config.json",
        "adapters.safetensors",
    ]
    other = tmp_path / "home"
    other.mkdir()
    (other / "letter.txt").write_text("Dear")
    with pytest.raises(InputOutput, match="has other files"):
        drain(export.export(run, str(other)))
    assert [file.name for file in other.iterdir()] == ["letter.txt"]
    (place / "old").write_text("x")
    with pytest.raises(InputOutput, match=r"has other files \(old\)"):
        drain(export.export(run, str(place)))
    assert (place / "old").read_text() == "x"
    with pytest.raises(NotFound, match="no folder"):
        drain(export.export(run, str(tmp_path / "none" / "out")))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["home", "model", "out"]


@pytest.mark.parametrize("name", ["thesis.tex", "notes.txt", "src/precious.c", "src", "link"])
def test_a_model_beside_other_files_is_not_replaced(tmp_path: pathlib.Path, name: str) -> None:
    run = trained(load(tiny_models.make(tmp_path / "model", "llama")), {"type": "lora"})
    place = tmp_path / "out"
    drain(export.export(run, str(place), fuse=True))
    if name == "link":
        (place / "model.safetensors").rename(tmp_path / "weights")
        (place / "model.safetensors").symlink_to(tmp_path / "weights")
    elif name == "src":
        (place / name).mkdir()
    else:
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("x")
    before = sorted(place.rglob("*"))
    with pytest.raises(InputOutput, match="has other files") as caught:
        drain(export.export(run, str(place), fuse=True))
    assert caught.value.reason == "write_failed"
    assert sorted(place.rglob("*")) == before


def test_an_export_with_templates_is_replaced(tmp_path: pathlib.Path) -> None:
    path = tiny_models.make(tmp_path / "model", "llama")
    templates = path / "additional_chat_templates"
    templates.mkdir()
    (templates / "tool_use.jinja").write_text("{{ messages }}")
    run = trained(load(path), {"type": "lora"})
    place = tmp_path / "out"
    for _ in range(2):
        drain(export.export(run, str(place), fuse=True))
    assert (place / templates.name / "tool_use.jinja").exists()
    (place / templates.name / "mine.jinja").write_text("x")
    with pytest.raises(InputOutput, match=r"has other files \(additional_chat_templates/mine"):
        drain(export.export(run, str(place), fuse=True))


@pytest.mark.parametrize("how", [{}, {"fuse": True}])
def test_the_folder_of_the_model_is_not_replaced(tmp_path: pathlib.Path, how: Any) -> None:
    path = tiny_models.make(tmp_path / "model", "llama")
    run = trained(load(path), {"type": "lora"})
    (tmp_path / "link").symlink_to(path)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    for place in (path, tmp_path / "link"):
        with pytest.raises(InputOutput, match="the model that is trained is there"):
            drain(export.export(run, str(place), **how))
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_what_a_killed_export_left_is_removed(tmp_path: pathlib.Path) -> None:
    run = trained(load(tiny_models.make(tmp_path / "model", "llama")), {"type": "lora"})
    place = tmp_path / "out"
    steps = export.export(run, str(place))
    next(steps)  # one that runs, whose folder stays
    (running,) = tmp_path.glob(".out.*")
    left = tmp_path / ".out.partial-0123456789abcdef"
    other = tmp_path / ".out.partial-mine"
    for folder in (left, other):
        folder.mkdir()
        (folder / "adapters.safetensors").write_text("x")
    drain(export.export(run, str(place)))
    assert {folder.name for folder in tmp_path.glob(".out.*")} == {running.name, other.name}
    drain(steps)
    assert sorted(file.name for file in place.iterdir()) == [
        "adapter_config.json",
        "adapters.safetensors",
    ]


def test_an_export_that_was_killed_between_renames_comes_back(tmp_path: pathlib.Path) -> None:
    run = trained(load(tiny_models.make(tmp_path / "model", "llama")), {"type": "lora"})
    place, away = tmp_path / "out", tmp_path / ".out.earlier-0123456789abcdef"
    drain(export.export(run, str(place)))
    place.rename(away)
    steps = export.export(run, str(place))
    next(steps)
    assert place.exists() and not away.exists()
    steps.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model", "out"]


@pytest.mark.parametrize("after", [0, 1])
def test_an_export_that_is_broken_off_leaves_nothing(tmp_path: pathlib.Path, after: int) -> None:
    run = trained(load(tiny_models.make(tmp_path / "model", "llama")), {"type": "full"})
    place = tmp_path / "out"
    drain(export.export(run, str(place)))
    kept = {file.name: file.read_bytes() for file in place.iterdir()}
    run.set_parameters({name: value * 2 for name, value in run.parameters().items()})
    steps = export.export(run, str(place))
    for _ in range(after + 1):
        next(steps)
    steps.close()
    assert {file.name: file.read_bytes() for file in place.iterdir()} == kept
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model", "out"]


def test_a_full_disk_loses_nothing(tmp_path: pathlib.Path) -> None:
    """A limit of the size of files stands for a full disk."""
    import resource
    import signal

    run = trained(load(tiny_models.make(tmp_path / "model", "llama")), {"type": "lora"})
    place = tmp_path / "out"
    drain(export.export(run, str(place)))
    kept = {file.name: file.read_bytes() for file in place.iterdir()}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(CowMlxError, match="cannot write") as caught:
            drain(export.export(run, str(place)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.reason == "write_failed"
    assert {file.name: file.read_bytes() for file in place.iterdir()} == kept
    assert sorted(file.name for file in tmp_path.iterdir()) == ["model", "out"]


def test_a_model_with_a_weight_of_another_shape_is_not_written(tmp_path):
    run = trained(load(tiny_models.make(tmp_path / "model", "llama")), {"type": "full"})
    run._values["model.norm.weight"] = mx.ones(65)
    with pytest.raises(CowMlxError, match=r"model.norm.weight is \(65,\), not \(64,\)"):
        drain(export.export(run, str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()


def test_an_adapter_that_its_config_does_not_declare_is_not_written(tmp_path):
    run = trained(load(tiny_models.make(tmp_path / "model", "llama")), {"type": "lora"})
    name = next(iter(run._values))
    run._values[name] = mx.ones((65, 8))
    with pytest.raises(CowMlxError, match=rf"{name} has the shape \(65, 8\), and its config decl"):
        drain(export.export(run, str(tmp_path / "out")))
    del run._values[name]
    with pytest.raises(CowMlxError, match=rf"{name} has the shape None, and its config decl"):
        drain(export.export(run, str(tmp_path / "out")))
    assert not (tmp_path / "out").exists()
