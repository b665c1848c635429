"""A whole generation, and hostile images, under memcheck and under AddressSanitizer."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from support import hostile_images, tiny_vision_models
from support.compiler import compile_c, compile_library, require, run
from support.hosts import HOSTS, linked
from support.paths import CSRC, LIBRARY, ROOT

SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
SOURCES = {path.name for path in CSRC.rglob("*.[ch]")}


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory) -> Path:
    """The library compiled with AddressSanitizer and UBSan, beside the package."""
    package = tmp_path_factory.mktemp("sanitized") / "cowmlx"
    library = package / "lib" / LIBRARY.name
    library.parent.mkdir(parents=True)
    for part in (ROOT / "cowmlx").iterdir():
        if part.name != "lib":
            (package / part.name).symlink_to(part)
    (package / "python").symlink_to(sys.prefix)
    compile_library(library, "-g", *SANITIZE)
    return library


@pytest.mark.parametrize("name", ["generate", "lifecycle", "race", "forked", "leave", "programs"])
def test_address_sanitizer(sanitized, model, environment, tmp_path, name):
    program = compile_c([HOSTS / f"{name}.c"], tmp_path / name, *linked(sanitized), "-g", *SANITIZE)
    env = {**environment, "ASAN_OPTIONS": "detect_leaks=0"}
    done = run([program, model], env=env)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("family", ["gemma3", "qwen2_5_vl"])
def test_hostile_images(sanitized, environment, tmp_path, family):
    """Pixels, files and messages that are no images, beside a model with a tower."""
    program = compile_c(
        [HOSTS / "hostile_images.c"], tmp_path / "host", *linked(sanitized), "-g", *SANITIZE
    )
    model = tiny_vision_models.make(tmp_path / "model", family)
    env = {**environment, "ASAN_OPTIONS": "detect_leaks=0"}
    done = run([program, model, *hostile_images.files(tmp_path)], env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > len(hostile_images.KINDS)  # those that are whole, and some others


@pytest.mark.long
@pytest.mark.parametrize("name", ["generate", "programs"])
def test_memcheck(host, model, environment, expected, tmp_path, name):
    """No error whose stack goes through our objects; the dynamic linker has its own."""
    log = tmp_path / "memcheck.log"
    command = [require("valgrind"), f"--log-file={log}", "--num-callers=40", "--error-limit=no"]
    command += ["--leak-check=full", "--show-leak-kinds=definite"]
    done = run([*command, host(f"{name}.c"), model], env=environment)
    assert done.stdout == (expected if name == "generate" else "all went well\n")
    errors = re.split(r"\n==\d+== \n", log.read_text())
    ours = [error for error in errors if is_ours(error)]
    assert ours == []


def is_ours(error: str) -> bool:
    """Whether the innermost frames of an error, before Python's or mlx's, are ours."""
    frames = re.findall(r"(?:at|by) 0x\w+: (.*)", error)
    return any(place in frame for frame in frames[:3] for place in (*SOURCES, "libcowmlx"))
