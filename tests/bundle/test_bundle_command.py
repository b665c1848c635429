"""``bundle`` writes all or nothing; ``verify`` names what is no longer as it was written."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import pytest
from support.compiler import run
from support.paths import CALF, ROOT
from support.terminal import Terminal

from cowmlx.commands.bundle import BundleError, assemble, distributions, manifest, staging
from tools.packaging import npm

pytestmark = pytest.mark.xdist_group("bundle")


def command(*arguments: object) -> tuple[int, str, str]:
    done = run([sys.executable, "-m", "cowmlx", *arguments], cwd=ROOT)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def copy(small, tmp_path) -> Path:
    return Path(shutil.copytree(small, tmp_path / "copy", symlinks=True))


def test_verify_is_content_with_what_was_written(small):
    assert command("verify", small)[0] == 0


def test_verify_is_content_with_the_bundle_of_a_package(small, monkeypatch, tmp_path):
    monkeypatch.setenv("COWMLX_BUNDLE", str(small))
    monkeypatch.setattr(npm, "here", lambda: npm.PLATFORMS[0])
    folder = npm.library(tmp_path / "package")
    assert not (folder / "include").exists()
    assert manifest.verify(folder) == []
    told = manifest.read(folder)
    added = {"package.json", "index.cjs", "README.md", "LICENSE"}
    assert {name for name, file in told["files"].items() if file["part"] == "npm"} == added
    assert sum(part["files"] for part in told["parts"].values()) == len(told["files"])
    assert sum(part["bytes"] for part in told["parts"].values()) == told["bytes"]


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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "No such file"),
        ("", "no JSON"),
        ("[]", "no JSON object"),
        ("{}", "no format"),
        ('{"format": 1}', "no object of files"),
        ('{"format": 1, "files": []}', "no object of files"),
        ('{"format": 1, "files": {"a": 3}}', "of a is no object"),
        ('{"format": 99, "files": {}}', "99, and this version knows 1"),
    ],
)
def test_folder_that_is_no_bundle_is_told_in_words(tmp_path, text, told):
    if text is not None:
        (tmp_path / manifest.NAME).write_text(text)
    with pytest.raises(BundleError, match=f"{manifest.NAME}.*{told}"):
        manifest.verify(tmp_path)


def test_verify_names_the_outermost_of_empty_folders(copy):
    (copy / "lib/cache/deeper").mkdir(parents=True)
    assert manifest.verify(copy) == ["extra: lib/cache/"]


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


def test_a_place_inside_of_the_package_is_refused():
    """The next bundle would hold this one."""
    status, _, error = command("bundle", ROOT / "cowmlx/inner")
    assert (status, "inside of the package" in error) == (1, True)
    assert not (ROOT / "cowmlx/inner").exists()


def test_what_lies_beside_the_modules_stays_out(tmp_path):
    for name in ("__init__.py", "notes.txt", "inner/__init__.py", "inner/a.py", "stray/b.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = assemble._modules(tmp_path, frozenset())
    names = [path.relative_to(tmp_path).as_posix() for path in found]
    assert names == ["__init__.py", "inner/__init__.py", "inner/a.py"]


def begun(folder: Path) -> subprocess.Popen[str]:
    """A bundle that is being written."""
    arguments = [sys.executable, "-m", "cowmlx", "bundle", folder / "bundle"]
    process = subprocess.Popen(arguments, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(folder.glob(".bundle.*/bundle/*")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
    return process


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_it_and_leaves_nothing(tmp_path, name):
    number = signal.Signals[name]
    process = begun(tmp_path)
    process.send_signal(number)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 128 + number
    assert not list(tmp_path.iterdir())


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    process = begun(tmp_path)
    process.kill()
    process.communicate(timeout=60)
    mine = tmp_path / ".bundle.precious"  # not locked by this command
    (mine / "bundle").mkdir(parents=True)
    target = tmp_path / "bundle"
    with staging.beside(target) as first, staging.beside(target) as second:
        assert sorted(tmp_path.iterdir()) == sorted([mine, first, second])
    assert list(tmp_path.iterdir()) == [mine]


def test_the_only_copy_of_a_bundle_is_not_removed(tmp_path):
    """Killed between two renames."""
    with staging.beside(tmp_path / "bundle") as place:
        (place / staging.OLD).mkdir()
        left = tmp_path / ".bundle.abcdefgh"
        shutil.copytree(place, left)
    with staging.beside(tmp_path / "bundle"):
        assert left.exists()
    (tmp_path / "bundle").mkdir()
    with staging.beside(tmp_path / "bundle"):
        assert not left.exists()


@pytest.fixture
def bare_python(tmp_path) -> Path:
    """A Python without mlx."""
    run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"])
    return tmp_path / "bare/bin/python"


@pytest.mark.parametrize(
    "arguments",
    [
        ["bundle", "no/such/folder"],
        ["info"],
        *(["program", action, "p.json"] for action in ("check", "show", "draw", "run")),
        ["program", "convert", "p.onnx", "p.json"],
        *(["wiring", action, "folder"] for action in ("show", "validate", "draw")),
        ["train", "folder", "lines.jsonl", "--out", "out"],
        ["machines", "check", "127.0.0.1:1", "--secret-file", "secret", "--model", "folder"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_python_without_mlx_is_named(bare_python, tmp_path, arguments):
    if "secret" in arguments:
        (tmp_path / "secret").write_text("s" * 40)
        arguments = [str(tmp_path / "secret") if a == "secret" else a for a in arguments]
    done = run([bare_python, "-m", "cowmlx", *arguments], cwd=ROOT)
    assert done.returncode == 1
    assert f"this is {bare_python}, which has no mlx; use " in done.stderr
    assert "bin/python" in done.stderr.partition("use ")[2]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--without", "mlx"], "chat, grammar, openblas"),
        (["--with-model", "/no/model"], "/no/model does not exist"),
        (["--with-model", str(ROOT / "docs")], "config.json"),
    ],
)
def test_bad_option_says_what_would_do(tmp_path, options, named):
    status, _, error = command("bundle", tmp_path / "bundle", *options)
    assert status == 1
    assert all(word in error for word in named.split(", "))
    assert not list(tmp_path.iterdir())


@pytest.mark.long
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


def test_a_model_of_the_cache_keeps_its_name(tmp_path):
    snapshot = tmp_path / "models--farm--calf/snapshots/0123abc"
    shutil.copytree(CALF, snapshot)
    (tmp_path / "link").symlink_to(snapshot)
    for folder in (snapshot, snapshot.parents[1], tmp_path / "link", CALF):
        assert assemble.model_name(folder) == "calf"


def test_full_means_all_that_mlx_lm_asks_for_and_no_tools():
    found = distributions.closure([metadata.distribution("mlx-lm")], set())
    names = {distribution.metadata["Name"].lower() for distribution in found}
    assert {"transformers", "numpy", "sentencepiece"} <= names
    assert not names & {"pytest", "cython", "setuptools", "colorama"}


def test_a_missing_parent_is_told(tmp_path):
    status, _, error = command("bundle", tmp_path / "missing/bundle")
    assert status == 1
    assert error.endswith(f"{tmp_path / 'missing'} does not exist; make it first\n")
    (tmp_path / "file").touch()
    status, _, error = command("bundle", tmp_path / "file/bundle")
    assert (status, error.endswith("file is no folder\n")) == (1, True)


@pytest.mark.long
def test_a_terminal_sees_what_is_done_and_errors_stand_alone(tmp_path):
    """The model in it is broken, which the bundle's own check finds."""
    broken = shutil.copytree(CALF, tmp_path / "broken")
    (broken / "tokenizer.json").write_text("{")
    without = ["--without", "grammar", "--without", "openblas", "--with-model", str(broken)]
    arguments = ["bundle", str(tmp_path / "bundle"), *without]
    terminal = Terminal([sys.executable, "-m", "cowmlx", *arguments], dict(os.environ))
    for step in ("copying library", "copying python", "copying model", "starting the bundle"):
        terminal.wait_for(step)
    terminal.wait_for("cowmlx bundle: ")
    assert terminal.end() == 1
    assert terminal.raw.split("cowmlx bundle: ")[0].endswith("\r\x1b[K")
    assert terminal.raw.split("cowmlx bundle: ")[0].count("\n") == 0
