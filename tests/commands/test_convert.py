"""``python -m cowmlx convert``: quantized folders, and conversions that were stopped."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from support import tiny_models
from support.compiler import run
from support.paths import CALF, ROOT

from cowmlx.errors import BadFormat, BadState, InputOutput, NotFound, Unsupported
from cowmlx.folders import stored_tensors
from cowmlx.models.converting import output, sources
from cowmlx.models.quantizing import Quantizing
from cowmlx.steps import finished

WIDE = {"hidden_size": 256, "head_dim": 64, "intermediate_size": 256}
SMALL = 1 << 18  # bytes of a shard
FOUR = Quantizing(4, 64, "affine")


def command(*arguments: object):
    return run([sys.executable, "-m", "cowmlx", "convert", *map(str, arguments)], cwd=ROOT)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return tiny_models.make(tmp_path_factory.mktemp("original"), "llama", config=WIDE)


@pytest.fixture(scope="module")
def quantized(tmp_path_factory):
    settings = {"group_size": 64, "bits": 4, "mode": "affine"}
    folder = tmp_path_factory.mktemp("quantized")
    return tiny_models.make(folder, "llama", config=WIDE, quantize=settings)


def steps(folder, out, how=FOUR, most=SMALL, **options):
    return output.write(sources.read(str(folder), how, None), str(out), options, most)


def weights(folder: Path):
    import mlx.core as mx

    made = {}
    for file in sorted(folder.glob("*.safetensors")):
        made |= mx.load(str(file))
    return made


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_the_command_makes_the_folder_that_mlx_lm_would(original, quantized, tmp_path):
    import mlx.core as mx

    done = command(original, tmp_path / "made", "--bits", 4)
    assert (done.returncode, done.stderr) == (0, "")
    assert "GB of weights" in done.stdout
    made, expected = weights(tmp_path / "made"), weights(quantized)
    assert made.keys() == expected.keys()
    assert all(mx.array_equal(made[name], expected[name]) for name in made)
    config, other = (
        json.loads((folder / "config.json").read_text())
        for folder in (tmp_path / "made", quantized)
    )
    assert config["quantization"] == config["quantization_config"] == other["quantization"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made"]
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "made" / name).read_bytes() == (original / name).read_bytes()


def test_plain_mlx_lm_reads_the_folder(original, tmp_path):
    finished(steps(original, tmp_path / "made", most=1 << 16))
    names = sorted(path.name for path in (tmp_path / "made").glob("*.safetensors"))
    assert len(names) > 3 and names[0] == f"model-00001-of-{len(names):05}.safetensors"
    program = (
        "import sys; from pathlib import Path; import mlx.core as mx\n"
        "from mlx_lm.utils import load_model\n"
        "net, config = load_model(Path(sys.argv[1]))\n"
        "print(net.layers[0].mlp.up_proj.bits, net(mx.array([[1, 2, 3]])).shape[1])"
    )
    done = run([sys.executable, "-c", program, tmp_path / "made"])
    assert (done.returncode, done.stdout) == (0, "4 3\n"), done.stderr


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_weights_of_another_type(original, tmp_path, dtype):
    source = sources.read(str(original), None, dtype)
    finished(output.write(source, str(tmp_path / "made"), {}))
    assert {str(array.dtype) for array in weights(tmp_path / "made").values()} == {
        f"mlx.core.{dtype}"
    }
    assert json.loads((tmp_path / "made/config.json").read_text())["torch_dtype"] == dtype


def test_a_stopped_conversion_continues_where_it_was(original, tmp_path):
    finished(steps(original, tmp_path / "whole"))
    out = tmp_path / "made"
    first = steps(original, out)
    for _ in range(3):
        next(first)
    first.close()
    assert not out.exists(), "nothing half-written takes the place"
    unfinished = tmp_path / "made.converting"
    kept = {file.name: file.stat() for file in unfinished.glob("*.safetensors")}
    assert len(kept) == 2
    damaged = unfinished / sorted(kept)[1]
    damaged.write_bytes(damaged.read_bytes()[:-1])

    finished(steps(original, out))
    assert contents(out) == contents(tmp_path / "whole")
    good = sorted(kept)[0]
    assert (out / good).stat().st_ino == kept[good].st_ino, "it was written again"
    assert not unfinished.exists()


def test_another_conversion_is_not_continued(original, tmp_path):
    first = steps(original, tmp_path / "made")
    next(first)
    next(first)
    with pytest.raises(BadState, match="another process"):
        next(steps(original, tmp_path / "made"))
    first.close()
    with pytest.raises(InputOutput, match="its options differ; delete it"):
        next(steps(original, tmp_path / "made", other=True))
    other = shutil.copytree(original, tmp_path / "other")
    with pytest.raises(InputOutput, match="its source differ"):
        next(steps(other, tmp_path / "made"))
    (tmp_path / "made.converting/conversion.json").write_text("[")
    with pytest.raises(InputOutput, match=r"conversion\.json cannot be read"):
        next(steps(original, tmp_path / "made"))


def test_folders_that_are_there_are_left(original, tmp_path):
    (tmp_path / "made").mkdir()
    (tmp_path / "made/mine").write_text("mine")
    with pytest.raises(InputOutput, match="is there already and has mine"):
        next(steps(original, tmp_path / "made"))
    (tmp_path / "else.converting").mkdir()
    (tmp_path / "else.converting/mine").write_text("mine")
    with pytest.raises(InputOutput, match=r"it has mine, and no conversion\.json"):
        next(steps(original, tmp_path / "else"))
    with pytest.raises(NotFound, match="no folder above"):
        next(steps(original, original / "config.json/made"))
    assert contents(tmp_path / "made") == {"mine": b"mine"}


def test_a_full_disk_is_found_before_weights_are_written(original, tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(InputOutput, match="the disk has 1,000"):
        next(steps(original, tmp_path / "made"))


def test_quantized_weights_are_refused(quantized):
    with pytest.raises(Unsupported, match="quantized already"):
        sources.read(str(quantized), FOUR, None)
    with pytest.raises(Unsupported, match="dtype is float16"):
        sources.read(str(quantized), None, "float16")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--bits", "7"], "quantize_bits is 7"),
        (["--group", "64"], "quantize_bits is 0"),
        (["--bits", "4", "--mode", "nvfp4", "--group", "32"], "must be 0, or 16"),
    ],
    ids=str,
)
def test_numbers_that_no_format_has_are_refused(tmp_path, options, words):
    done = command(CALF, tmp_path / "made", *options)
    assert done.returncode == 1
    assert words in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../away", "a/../../away", "/away"])
def test_no_file_is_written_outside_of_the_new_folder(original, tmp_path, name):
    source = sources.read(str(original), None, None)
    odd = source._replace(copied={name: str(tmp_path / "nothing")})
    with pytest.raises(BadFormat, match="is no name of a file in the new folder"):
        finished(output.write(odd, str(tmp_path / "made"), {}))
    assert not (tmp_path / "away").exists()


@pytest.mark.long
def test_a_tensor_of_2_gib_is_written(tmp_path):
    """As the embedding of a large vocabulary is, in float32."""
    import mlx.core as mx

    path = str(tmp_path / "model.safetensors")
    table = mx.zeros((1 << 19, 1 << 10), mx.float32)
    stored_tensors.write(path, {"table": (table.dtype, table.shape)}, [("table", table)])
    assert mx.array_equal(mx.load(path)["table"], table)
