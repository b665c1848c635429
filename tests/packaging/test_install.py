"""make install: what it leaves works by itself, can be moved, and goes again."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from prefixes import Prefix, make
from support.compiler import run
from support.paths import LIBRARY, ROOT

from cowmlx.commands import installed_files
from tools.packaging.headers import headers

pytestmark = pytest.mark.xdist_group("packaging")
HOST = ROOT / "tests/packaging/projects/c/host.c"
MANIFEST = "installed-files.txt"
LINK = "libcowmlx.dylib" if sys.platform == "darwin" else "libcowmlx.so"


def files(folder: Path) -> list[Path]:
    """All files below a folder."""
    return [path for path in folder.rglob("*") if path.is_file()]


def test_headers_library_and_build_files_are_there(installed):
    folder = installed.path / "include"
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files(folder)}
    assert found == {name: path.read_bytes() for name, path in headers().items()}
    assert {"cow_mlx.h", "cow_mlx.hpp", "cow_mlx_compat.h", "cow_mlx/base.h"} <= set(found)
    assert (installed.lib / LIBRARY.name).is_file()
    assert (installed.lib / LINK).is_file()
    assert (installed.lib / "pkgconfig/cowmlx.pc").is_file()
    assert (installed.lib / "cmake/cowmlx/cowmlx-config.cmake").is_file()


def test_a_library_that_was_moved_runs_its_own_engine(installed, model, tmp_path):
    host = installed.compiled(HOST, tmp_path / "host")
    info, _, mapped = installed.run([host, model]).stdout.partition("\n")
    assert json.loads(info)["python_home"] == str(installed.lib / "cowmlx")
    assert str(ROOT / "cowmlx") not in mapped
    assert str(ROOT / ".venv") not in mapped


def test_the_engines_python_has_the_commands(installed, tmp_path):
    python = installed.lib / "cowmlx/bin/python"
    done = installed.run([python, "-m", "cowmlx", "info"], cwd=tmp_path)
    assert json.loads(done.stdout)["interpreter"] == "joined"
    paths = (installed.lib / "cowmlx").rglob("*.pth")  # the tree's environment has one to the tree
    assert list(paths) == []


def test_the_doctor_knows_the_packages_and_names_a_missing_one(installed, tmp_path):
    command = [installed.lib / "cowmlx/bin/python", "-m", "cowmlx", "doctor", "--json"]
    report = json.loads(installed.run(command, cwd=tmp_path).stdout)
    packages = [found for found in report["findings"] if found["check"] == "packages"]
    assert [found["state"] for found in packages] == ["ok"]

    record = next((installed.lib / "cowmlx").rglob("llguidance-*.dist-info"))
    hidden = record.rename(tmp_path / record.name)
    try:
        done = run(command, cwd=tmp_path, env=installed.environment)
    finally:
        shutil.move(hidden, record)
    packages = [f for f in json.loads(done.stdout)["findings"] if f["check"] == "packages"]
    assert done.returncode == 1
    assert [found["state"] for found in packages] == ["problem"]
    assert "llguidance==" in packages[0]["text"]
    assert "make install" in packages[0]["advice"]


def test_everyone_can_read_an_installation(installed):
    for path in installed.path.rglob("*"):
        wanted = 0o555 if path.is_dir() else 0o444
        assert path.is_symlink() or path.stat().st_mode & wanted == wanted, path


def test_nothing_installed_names_the_build_tree_or_the_prefix_but_the_library(installed):
    """So that the prefix can be moved; the library names a last resort."""
    files = [installed.lib / "pkgconfig/cowmlx.pc", installed.lib / "cowmlx/pyvenv.cfg"]
    files += (installed.lib / "cmake/cowmlx").iterdir()
    for file in files:
        text = file.read_text()
        assert str(installed.path) not in text
        assert str(ROOT) not in text


def test_an_installation_replaces_an_earlier_one_and_goes(tree, model, tmp_path, environment):
    prefix = Prefix(tmp_path / "prefix", environment, "lib/local")
    dropped = prefix.path / "include/dropped.h"
    dropped.parent.mkdir(parents=True)
    dropped.touch()
    manifest = prefix.lib / "cowmlx" / MANIFEST
    manifest.parent.mkdir(parents=True)
    manifest.write_text("../../../include/dropped.h\n")
    places = [f"PREFIX={prefix.path}", f"LIBDIR={prefix.lib}"]

    done = make(tree, "install", *places)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not dropped.exists()
    line = prefix.run([prefix.compiled(HOST, tmp_path / "host"), model]).stdout.split("\n")[0]
    assert json.loads(line)["python_home"] == str(prefix.lib / "cowmlx")

    done = make(tree, "uninstall", *places)
    assert done.returncode == 0, done.stdout + done.stderr
    left = sorted(path.relative_to(prefix.path).as_posix() for path in prefix.path.rglob("*"))
    assert left == ["include", "lib", "lib/local"]  # include was there before


def test_installing_over_another_engine_is_refused(tree, tmp_path):
    foreign = tmp_path / "prefix/lib/cowmlx/theirs"
    foreign.parent.mkdir(parents=True)
    foreign.write_text("precious")
    done = make(tree, "install", f"PREFIX={tmp_path / 'prefix'}")
    assert done.returncode != 0
    assert "not an installation of libcowmlx" in done.stderr
    assert [path for path in tmp_path.joinpath("prefix").rglob("*") if path.is_file()] == [foreign]


def linked_copy(source: Path, target: Path) -> Path:
    """A copy whose large files take no space: to be removed, not to be written to."""
    return shutil.copytree(source, target, symlinks=True, copy_function=os.link)


def test_an_installation_uninstalls_itself_without_its_tree(installed, tmp_path):
    """Where it was staged and moved to, and nothing that others have put there."""
    copy = linked_copy(installed.path, tmp_path / "moved")
    kept = [copy / "lib/theirs", copy / "lib/pkgconfig/theirs.pc", copy / "include/theirs.h"]
    for path in kept:
        path.touch()
    python = copy / "lib/cowmlx/bin/python"
    done = installed.run([python, "-m", "cowmlx", "uninstall"], cwd=tmp_path)
    assert (done.stdout, done.stderr) == (f"uninstalled {copy / 'lib' / LIBRARY.name}\n", "")
    assert sorted(path for path in copy.rglob("*") if not path.is_dir()) == sorted(kept)
    assert installed.lib.joinpath("cowmlx").is_dir()


def test_a_tree_where_nothing_is_built_uninstalls(tmp_path):
    tree, prefix = tmp_path / "tree", tmp_path / "prefix"
    unbuilt = shutil.ignore_patterns("generated", "__pycache__", "*.so*", "lib")
    for name in ("cowmlx", "tools/packaging", "include", "bindings/cpp"):
        shutil.copytree(ROOT / name, tree / name, ignore=unbuilt)
    shutil.copy(ROOT / "Makefile", tree)
    (prefix / "lib/cowmlx").mkdir(parents=True)
    (prefix / "lib/cowmlx" / MANIFEST).write_text("../libcow.so\n")
    (prefix / "lib/libcow.so").touch()
    done = make(tree, "uninstall", f"PREFIX={prefix}")
    assert done.returncode == 0, done.stderr
    assert list((prefix / "lib").iterdir()) == []


def test_an_installation_that_cannot_be_removed_stays_whole(installed, tmp_path):
    """A folder stands where the environment has to go first."""
    copy = linked_copy(installed.path, tmp_path / "moved")
    before = sorted(copy.rglob("*"))
    host = tmp_path / "host.py"
    host.write_text(
        "import os, runpy, sys\n"
        f"os.makedirs(f'{copy}/lib/.cowmlx.{{os.getpid()}}/full')\n"
        "sys.argv = ['cowmlx', 'uninstall']\n"
        "runpy.run_module('cowmlx', run_name='__main__')\n"
    )
    done = run([copy / "lib/cowmlx/bin/python", host], env=installed.environment)
    assert done.returncode == 1
    assert "nothing was removed" in done.stderr
    for path in copy.glob("lib/.cowmlx.*"):
        shutil.rmtree(path)
    assert sorted(copy.rglob("*")) == before


def test_what_cannot_be_removed_is_named(installed, tmp_path):
    """A folder of files has become a file; the rest goes."""
    copy = linked_copy(installed.path, tmp_path / "moved")
    python = copy / "lib/cowmlx/bin/python"
    config = copy / "lib/cmake/cowmlx"
    shutil.rmtree(config)
    config.touch()
    done = run([python, "-m", "cowmlx", "uninstall"], env=installed.environment)
    assert done.returncode == 1
    assert f"{config / 'cowmlx-config.cmake'}" in done.stderr
    assert [path for path in copy.rglob("*") if not path.is_dir()] == [config]


def test_an_environment_that_cannot_be_removed_is_named(tmp_path, monkeypatch):
    (tmp_path / "cowmlx").mkdir()

    def fail(path):
        raise PermissionError(errno.EACCES, "Permission denied", f"{path}/bin")

    monkeypatch.setattr(installed_files.shutil, "rmtree", fail)
    with pytest.raises(SystemExit, match=r"all but these was removed: .*Permission denied.*bin"):
        installed_files.uninstall(tmp_path / "cowmlx")


def test_a_source_tree_and_pip_s_package_are_not_uninstalled(installed, tmp_path, environment):
    done = run([sys.executable, "-m", "cowmlx", "uninstall"], cwd=ROOT, env=environment)
    assert done.returncode == 1
    assert f"{ROOT} is a source tree: make clean" in done.stderr

    copy = linked_copy(installed.lib / "cowmlx", tmp_path / "venv")
    (copy / MANIFEST).unlink()
    installer = next(copy.rglob("cowmlx-*.dist-info")) / "INSTALLER"
    installer.unlink()
    installer.write_text("pip\n")
    done = run([copy / "bin/python", "-m", "cowmlx", "uninstall"], cwd=tmp_path, env=environment)
    assert done.returncode == 1
    assert f"run {copy / 'bin/python'} -m pip uninstall cowmlx" in done.stderr


def test_uninstalling_nothing_says_so(tree, tmp_path):
    done = make(tree, "uninstall", f"PREFIX={tmp_path}")
    assert done.returncode != 0
    assert "nothing is installed" in done.stderr


def test_empty_places_are_the_usual_ones(tmp_path):
    """None of them is the working folder."""
    command = [sys.executable, ROOT / "tools/packaging/install.py", "uninstall", "--prefix="]
    done = run([*command, "--libdir=", "--includedir=", f"--destdir={tmp_path}"], cwd=tmp_path)
    assert done.returncode != 0
    assert f"nothing is installed in {tmp_path / 'lib'}:" in done.stderr
