"""The doctor names what is wrong with an installation, and survives it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from support.compiler import compile_c, compile_library, run
from support.paths import CALF, CSRC, LIBRARY, ROOT

from cowmlx.commands.doctor import advice, checks
from tools.packaging.headers import copy_headers, headers

BRIDGE = f"_bridge{sysconfig.get_config_var('EXT_SUFFIX')}"


class Installation:
    """A copy of the package as pip installs it, to be broken."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "cowmlx"
        ignored = shutil.ignore_patterns("__pycache__", "*.pyx", "*.pxi", "*.pxd", "include")
        shutil.copytree(ROOT / "cowmlx", self.package, symlinks=True, ignore=ignored)
        copy_headers(self.package / "include")
        self.library = self.package / "lib" / LIBRARY.name
        (self.package / "python").symlink_to(sys.prefix)

    def requires(self, *lines: str) -> None:
        """Let the installed package ask for distributions."""
        record = self.folder / "cowmlx-1.0.0.dist-info" / "METADATA"
        record.parent.mkdir()
        asked = "".join(f"Requires-Dist: {line}\n" for line in lines)
        record.write_text(f"Metadata-Version: 2.1\nName: cowmlx\nVersion: 1.0.0\n{asked}")

    def examine(self, *arguments: object, **env: str) -> tuple[int, dict[str, Any]]:
        """Status and report of the doctor."""
        command = [sys.executable, "-m", "cowmlx", "doctor", "--json", *arguments]
        plain = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        done = run(command, cwd=self.folder, env={**plain, **env})
        assert done.stderr == ""
        return done.returncode, json.loads(done.stdout)

    def problem(self, check: str, *arguments: object, **env: str) -> dict[str, str]:
        """The first problem, which must be of that check and come with advice."""
        status, report = self.examine(*arguments, **env)
        assert (status, report["ok"]) == (1, False)
        first = next(found for found in report["findings"] if found["state"] == "problem")
        assert first["check"] == check
        assert first["advice"]
        return first


@pytest.fixture
def installation(tmp_path) -> Installation:
    return Installation(tmp_path)


def test_nothing_is_wrong_with_what_works(installation):
    status, report = installation.examine(CALF)
    assert not [found for found in report["findings"] if found["state"] == "problem"]
    assert status == 0
    checks = {found["check"] for found in report["findings"]}
    assert {"library", "header", "bridge", "start", "mlx", "device", "load", "generate"} <= checks
    assert Path(report["runtime_info"]["libpython"]).is_file()
    assert Path(report["runtime_info"]["mlx_path"]).is_file()


def test_report_for_people_ends_with_a_sentence():
    done = run([sys.executable, "-m", "cowmlx", "doctor"], cwd=ROOT)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-1] in (
        "nothing is wrong",
        "it works; the notes say what could be better",
    )


def test_missing_library(installation):
    installation.library.unlink()
    found = installation.problem("library")
    assert str(installation.library) in found["text"]


def test_library_that_was_cut_short(installation):
    data = installation.library.read_bytes()
    installation.library.write_bytes(data[:100])
    assert "again" in installation.problem("library")["advice"]


def test_missing_bridge(installation):
    (installation.package / BRIDGE).unlink()
    assert BRIDGE in installation.problem("bridge")["text"]


@pytest.mark.skipif(sys.platform == "darwin", reason="the name is that of Linux")
def test_bridge_for_another_python(installation):
    other = "_bridge.cpython-35m-x86_64-linux-gnu.so"
    (installation.package / BRIDGE).rename(installation.package / other)
    found = installation.problem("bridge")
    assert other in found["text"]
    assert BRIDGE in found["text"]


def test_bridge_of_another_build(installation, tmp_path):
    """The library asks for another ABI of the bridge than this one has."""
    sources = Path(shutil.copytree(CSRC, tmp_path / "csrc"))
    header = sources / "generated/call_arguments.h"
    text, count = re.subn(r"(COW_BRIDGE_ABI\s*=?\s*)\d+", r"\g<1>999", header.read_text())
    assert count
    header.write_text(text)
    compile_library(installation.library, sources=sources)
    found = installation.problem("start")
    assert "999" in found["text"]
    assert "two builds" in found["advice"]


@pytest.mark.parametrize("name", ["csrc/queue.c", "include/cow_mlx.h", "cowmlx/bridge/x.pyx"])
def test_a_library_that_is_older_than_a_source_of_its_tree(installation, name):
    (installation.folder / "csrc").mkdir()
    source = installation.folder / name
    source.parent.mkdir(exist_ok=True)
    source.touch()
    built = source.stat().st_mtime - 1
    os.utime(installation.library, (built, built))
    status, report = installation.examine()
    told = [found for found in report["findings"] if found["check"] == "build"]
    assert (status, [found["state"] for found in told]) == (0, ["note"])
    assert told[0]["text"] == f"{LIBRARY.name} is older than {source.name}"


def test_python_home_that_is_none(installation):
    found = installation.problem("start", COWMLX_PYTHON_HOME="/no/python")
    assert "/no/python" in found["text"]
    assert "COWMLX_PYTHON_HOME" in found["advice"]


def test_python_home_without_mlx(installation, tmp_path):
    bare = tmp_path / "bare"
    run([sys.executable, "-m", "venv", "--without-pip", bare])
    found = installation.problem("start", COWMLX_PYTHON_HOME=str(bare))
    assert "mlx" in found["text"]
    assert "COWMLX_PYTHON_HOME" in found["advice"]


def test_no_advice_sends_anyone_to_a_registry_for_the_package():
    """None has it, so that anybody could take its name there; the install page warns of that."""
    install = ROOT / "docs/getting-started/install.md"
    assert "anybody could take them" in install.read_text()
    sources = [*(ROOT / "cowmlx").rglob("*.py"), *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    sources += [*(ROOT / "cowmlx").rglob("*.px*"), *CSRC.rglob("*.[ch]"), *headers().values()]
    for folder in (ROOT / "bindings", ROOT / "examples"):
        sources += [path for path in folder.rglob("*.md") if "target" not in path.parts]
    named = re.compile(r"\b(pip3?|pipx|uv|conda)\b[\w .=-]* (install|add)\b[^`).;,]*\bcowmlx\b")
    sources.remove(install)
    found = [path.name for path in sources if named.search(" ".join(path.read_text().split()))]
    assert found == []


@pytest.fixture
def tree(tmp_path) -> Path:
    """A source tree whose environment has lost mlx."""
    home, tree = Path(sys.prefix), tmp_path / "tree"
    shutil.copytree(ROOT / "cowmlx", tree / "cowmlx", symlinks=True)
    for name in ("csrc", "include", "pyproject.toml"):
        (tree / name).symlink_to(ROOT / name)
    packages = tree / ".venv" / Path(sysconfig.get_path("purelib")).relative_to(home)
    packages.mkdir(parents=True)
    (tree / ".venv/bin").symlink_to(home / "bin")
    (tree / ".venv/pyvenv.cfg").symlink_to(home / "pyvenv.cfg")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name != "mlx" and not path.name.startswith("mlx-0"):
            (packages / path.name).symlink_to(path)
    return tree


def test_the_best_advice_comes_first(tree):
    """What is missing is named with its version and the Python that it is for."""
    python = tree / ".venv/bin/python"
    done = run([python, "-I", "-m", "cowmlx", "doctor", "--json"], cwd="/")
    advised = [found for found in json.loads(done.stdout)["findings"] if found["advice"]]
    assert done.returncode == 1
    assert (advised[0]["check"], advised[0]["state"]) == ("packages", "problem")
    version = metadata.version("mlx")
    assert advised[0]["advice"] == f"run {python} -m pip install mlx=={version}"
    assert "cowmlx doctor" not in done.stdout


def test_header_of_another_version(installation):
    header = installation.package / "include/cow_mlx.h"
    text = header.read_text()
    header.write_text(re.sub(r'(COW_MLX_VERSION )"[^"]*"', r'\1"0.9.9"', text))
    assert "0.9.9" in installation.problem("header")["text"]


def test_missing_package_is_named_with_its_version(installation):
    installation.requires("no-such-package==1.2.3", "jinja2==0.0.1", 'other==1; extra == "x"')
    found = installation.problem("packages")
    assert "no-such-package==1.2.3" in found["advice"]
    assert "other" not in found["text"]
    _, report = installation.examine()
    notes = [found["text"] for found in report["findings"] if found["state"] == "note"]
    assert any("instead of 0.0.1" in note for note in notes)


def copied(name: str, folder: Path) -> Path:
    """An installed package, with pip's metadata, in a separate folder."""
    found = metadata.distribution(name)
    for file in found.files or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(str(found.locate_file(file)), folder / file)
    return folder


@pytest.fixture
def packages(tmp_path) -> Path:
    """mlx-lm that can be damaged; a doctor that runs there takes it for the installed one."""
    return copied("mlx-lm", tmp_path / "packages")


def test_modules_that_a_package_lost_are_told(packages):
    lost = "mlx_lm/models/llama.py"
    assert checks._lost(metadata.Distribution.at(record(packages)), sizes=True) == []
    (packages / lost).unlink()
    found = checks._lost(metadata.Distribution.at(record(packages)), sizes=False)
    assert found == [f"{lost} is missing"]


def test_modules_that_were_cut_short_are_told(packages):
    cut = packages / "mlx_lm/utils.py"
    cut.write_bytes(cut.read_bytes()[:7])
    found = checks._lost(metadata.Distribution.at(record(packages)), sizes=True)
    assert len(found) == 1
    assert found[0].startswith("mlx_lm/utils.py has 7 bytes")


def test_mlx_for_nvidia_gpus_takes_the_place_of_mlx_cpu():
    pins = {"mlx": "1.0", "mlx-cpu": "1.0"}
    assert checks._with_cuda(pins, {"mlx"}) == pins
    assert checks._with_cuda(pins, {"mlx", "mlx-cpu", "mlx-cuda-13"}) == pins
    assert checks._with_cuda(pins, {"mlx", "mlx-cuda-13"}) == {"mlx": "1.0", "mlx-cuda-13": "1.0"}


def record(packages: Path) -> Path:
    return next(packages.glob("*.dist-info"))


@pytest.mark.parametrize(
    "message",
    [
        "the process was ended by SIGBUS",
        "EIO: runtime_info: cannot read /v/site-packages/mlx_lm/models: No such file or directory",
        "ModuleNotFoundError: No module named 'mlx.core'",
    ],
)
def test_damaged_packages_are_to_be_installed_again(message):
    told = advice.for_message(message, bundled=False)
    assert sys.executable in told
    assert "--force-reinstall mlx==" in told
    assert "bundle again" in advice.for_message(message, bundled=True)


def test_missing_package_of_a_model_is_no_fault_of_its_folder(installation, tmp_path):
    home = tmp_path / "home"
    run([sys.executable, "-m", "venv", "--without-pip", home])
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(home)}))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    (packages / "tokenizers.py").write_text("raise ImportError('broken off')")
    found = installation.problem("load", CALF, COWMLX_PYTHON_HOME=str(home))
    assert found["text"].startswith("EUNSUPPORTED")
    assert "the package tokenizers" in found["text"]
    assert "packages" in found["advice"]


def test_library_that_hangs_is_told_with_the_limit(installation, tmp_path):
    source = tmp_path / "hang.c"
    source.write_text(
        "#include <unistd.h>\n"
        "__attribute__((constructor)) static void hang(void) { for (;;) pause(); }\n"
    )
    compile_c([source], installation.library, "-shared", "-fPIC")
    found = installation.problem("library", "--timeout", "0.5")
    assert "0.5 s" in found["text"]
    assert "--timeout" in found["advice"]


@pytest.mark.parametrize("seconds", ["soon", "0", "-1", "nan", "inf"])
def test_limit_that_is_none_is_refused(seconds):
    done = run([sys.executable, "-m", "cowmlx", "doctor", f"--timeout={seconds}"], cwd=ROOT)
    assert done.returncode == 2
    assert f"--timeout: {seconds} is no number" in done.stderr


def test_a_terminal_is_told_what_takes_a_while(installation):
    installation.library.write_bytes(b"")
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "cowmlx", "doctor", "--timeout", "77"]
    done = subprocess.run(command, cwd=installation.folder, stderr=theirs, stdout=subprocess.PIPE)
    os.close(theirs)
    told = os.read(ours, 4096).decode()
    os.close(ours)
    assert done.returncode == 1
    assert "starting the engine" in told
    assert "77 s" in told


def test_a_python_without_mlx_is_a_note(tmp_path):
    """It examines what a host boots, which is well."""
    run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"])
    python = tmp_path / "bare/bin/python"
    done = run([python, "-m", "cowmlx", "doctor", "--json"], cwd=ROOT)
    first = json.loads(done.stdout)["findings"][0]
    assert (done.returncode, first["check"], first["state"]) == (0, "python", "note")
    assert str(python) in first["text"]
    assert "bin/python" in first["advice"]


def test_missing_probe_is_told(installation):
    (installation.package / "lib/cowmlx-probe").unlink()
    assert "cowmlx-probe" in installation.problem("library")["text"]


def test_model_that_does_not_load(installation, tmp_path):
    (tmp_path / "model").mkdir()
    found = installation.problem("load", tmp_path / "model")
    assert "config.json" in found["text"]


def test_library_that_others_may_change(installation):
    installation.library.parent.chmod(0o777)
    assert "chmod" in installation.problem("permissions")["advice"]


def test_reference_blas_is_a_note(installation):
    if not sys.platform.startswith("linux"):
        pytest.skip("macOS has Accelerate")
    status, report = installation.examine(COWMLX_BLAS="reference")
    assert status == 0
    blas = next(found for found in report["findings"] if found["check"] == "BLAS")
    assert (blas["state"], "COWMLX_BLAS" in blas["advice"]) == ("note", True)


def test_bundle_that_was_changed(installation, tmp_path):
    """A folder that lost files on its way is not what its manifest says."""
    bundle = tmp_path / "bundle"
    (bundle / "lib").mkdir(parents=True)
    shutil.copy(LIBRARY, bundle / "lib")
    files = {f"lib/{LIBRARY.name}": {"sha256": "0", "bytes": 0}, "lib/gone": {"bytes": 1}}
    (bundle / "MANIFEST.json").write_text(json.dumps({"format": 1, "files": files}))
    found = installation.problem("bundle", "--library", bundle)
    assert "missing: lib/gone" in found["text"]
    assert f"changed: lib/{LIBRARY.name}" in found["text"]


def kernels_of(installation, **environment):
    status, report = installation.examine(**environment)
    assert status == 0
    return next(found for found in report["findings"] if found["check"] == "kernels")


def test_kernels_are_told(installation):
    found = kernels_of(installation)
    assert found["state"] == "ok"
    assert "threads" in found["text"]


def test_kernels_that_are_off_are_a_note(installation):
    found = kernels_of(installation, COWMLX_KERNELS="off")
    assert (found["state"], found["advice"]) == ("note", "unset COWMLX_KERNELS")
    assert "COWMLX_KERNELS is off" in found["text"]


def test_a_model_that_is_not_there_gets_advice(installation, tmp_path):
    """Not that of a folder that lacks something."""
    found = installation.problem("load", tmp_path / "none")
    assert "no such directory" in found["text"]
    assert "python -m cowmlx models" in found["advice"]
    assert "lacks" not in found["advice"]
