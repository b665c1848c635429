"""``bundle`` writes all or nothing; ``verify`` names what is no longer as it was written."""

from __future__ import annotations

import json
import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest
from support.compiler import run
from support.paths import CALF, ROOT

from cowmlx.bundle import BundleError, assemble, manifest

pytestmark = pytest.mark.xdist_group("bundle")


def command(*arguments: object) -> tuple[int, str, str]:
    done = run([sys.executable, "-m", "cowmlx", *arguments], cwd=ROOT)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def copy(small, tmp_path) -> Path:
    return Path(shutil.copytree(small, tmp_path / "copy", symlinks=True))


def test_verify_is_content_with_what_was_written(small):
    assert command("verify", small)[0] == 0


def test_verify_names_what_is_missing_changed_and_extra(copy):
    header = copy / "include/cow_mlx.h"
    header.write_bytes(header.read_bytes().replace(b"1.0.0", b"1.0.1"))
    (copy / "lib/libcowmlx.extra").touch()
    shutil.rmtree(copy / "licences/Python")
    status, out, _ = command("verify", copy)
    assert status == 1
    assert "changed: include/cow_mlx.h" in out
    assert "extra: lib/libcowmlx.extra" in out
    assert "missing: licences/Python/" in out
    assert len(out.splitlines()) == 3


def test_verify_names_a_link_that_leads_elsewhere(copy):
    link = next(path for path in (copy / "lib").iterdir() if path.is_symlink())
    link.unlink()
    link.symlink_to("/lib/libc.so.6")
    assert manifest.verify(copy) == [f"changed: lib/{link.name}"]


def test_manifest_that_names_files_outside_is_refused(copy):
    told = json.loads((copy / manifest.NAME).read_text())
    told["files"]["../../etc/passwd"] = {"sha256": "", "bytes": 0}
    (copy / manifest.NAME).write_text(json.dumps(told))
    status, _, error = command("verify", copy)
    assert status == 1
    assert "outside" in error


@pytest.mark.parametrize("text", [None, "", "[]", '{"format": 1}', '{"format": 99, "files": {}}'])
def test_folder_that_is_no_bundle(tmp_path, text):
    if text is not None:
        (tmp_path / manifest.NAME).write_text(text)
    with pytest.raises(BundleError, match=manifest.NAME):
        manifest.verify(tmp_path)


@pytest.mark.parametrize("place", ["full", "file", "no/parent", "file/below"])
def test_bad_place_is_refused_and_left_as_it_was(tmp_path, place):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine").touch()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    status, _, error = command("bundle", tmp_path / place)
    assert status == 1
    assert place.split("/")[0] in error
    assert sorted(tmp_path.rglob("*")) == before


def test_force_replaces_bundles_only(tmp_path):
    (tmp_path / "mine").touch()
    status, _, error = command("bundle", tmp_path, "--force")
    assert (status, (tmp_path / "mine").exists()) == (1, True)
    assert manifest.NAME in error


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--without", "mlx"], "chat, grammar, openblas"),
        (["--with-model", "/no/model"], "config.json"),
    ],
)
def test_bad_option_says_what_would_do(tmp_path, options, named):
    status, _, error = command("bundle", tmp_path / "bundle", *options)
    assert status == 1
    assert all(word in error for word in named.split(", "))
    assert not list(tmp_path.iterdir())


def test_bundle_that_does_not_work_leaves_nothing(tmp_path):
    """The model in it is broken, which the bundle's own check finds."""
    broken = tmp_path / "broken"
    shutil.copytree(CALF, broken)
    (broken / "tokenizer.json").write_text("{")
    target = tmp_path / "out" / "bundle"
    target.parent.mkdir()
    options = assemble.Options(without=frozenset(["grammar", "openblas"]), model=broken)
    with pytest.raises(BundleError, match=r"tokenizer\.json"):
        assemble.assemble(target, options)
    assert not list(target.parent.iterdir())


def test_model_comes_along_and_an_old_bundle_is_replaced(copy, model):
    without = ["--without", "grammar", "--without", "openblas"]
    status, out, error = command("bundle", copy, *without, "--with-model", model, "--force")
    assert (status, error) == (0, "")
    assert "model" in out
    assert (copy / "models/calf/config.json").exists()
    assert manifest.verify(copy) == []


def test_full_means_all_that_mlx_lm_asks_for_and_no_tools():
    found = assemble._closure([metadata.distribution("mlx-lm")], set())
    names = {distribution.metadata["Name"].lower() for distribution in found}
    assert {"transformers", "numpy", "sentencepiece"} <= names
    assert not names & {"pytest", "cython", "setuptools", "colorama"}
