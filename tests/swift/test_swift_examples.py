"""The Swift examples run, and so does an application with a bundle that is a Swift package."""

from __future__ import annotations

import re
import shutil

import pytest
from support.paths import CALF, ROOT
from support.streamed import TEXT
from support.swift import SCRATCH

from cowmlx.commands.bundle.assemble import Options, assemble

# A build takes a minute of two processors.
pytestmark = [pytest.mark.xdist_group("swift"), pytest.mark.long]
EXAMPLES = ROOT / "examples/swift/programs"
NEW = "examples"  # of a scratch folder


@pytest.fixture(scope="module")
def built(swift):
    """The folder of the programs."""
    places = ["--package-path", EXAMPLES, "--scratch-path", SCRATCH / NEW]
    done = swift.run("swift", "build", *places)
    output = done.stdout + done.stderr
    assert done.returncode == 0 and "warning:" not in output, output[-4000:]
    return SCRATCH / NEW / "debug"


def said(swift, *command, **options) -> str:
    """What a program prints."""
    done = swift.run(*command, **options)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_hello_answers(swift, built):
    assert said(swift, built / "hello") == "3 + 4 = 7."


def test_stream_ends_and_is_canceled(swift, built):
    whole, start = re.fullmatch(
        r"(.*)\n\[ended\]\n(.*)\n\[canceled\]\n", said(swift, built / "stream", CALF, TEXT), re.S
    ).groups()
    assert whole.startswith(start)
    assert 20 <= len(start.encode()) < len(whole.encode())


def test_chat_answers_each_line(swift, built):
    questions = "What is 3 + 4?\nWhat is 2 + 2?\n"
    output = said(swift, built / "chat", CALF, input=questions)
    assert output.splitlines()[0] == "3 + 4 = 7."
    assert len(output.splitlines()) >= 2


def test_recipe_is_a_value_or_says_why_not(swift, built):
    done = swift.run(built / "recipe", CALF, "soup")
    assert done.returncode == 0 or "cut short" in done.stderr, done.stderr


def test_search_finds_the_line_itself(swift, built):
    lines = "The fox eats berries.\nThe owl sleeps.\n3 + 4 = 7.\n"
    first, *_ = said(swift, built / "search", CALF, "The owl sleeps.", input=lines).splitlines()
    assert first == "1.000 The owl sleeps."


def test_train_learns_the_answer(swift, built, tmp_path):
    output = said(swift, built / "train", CALF, tmp_path / "adapter")
    assert output.splitlines()[-1] == "My name is Berta."
    assert (tmp_path / "adapter/adapters.safetensors").is_file()


def test_programs_say_what_they_lack(swift, built):
    done = swift.run(built / "hello", env={"COWMLX_LIB_DIR": "/nowhere"})
    assert done.returncode != 0
    assert "there is no file /nowhere/libcowmlx" in done.stderr
    done = swift.run(built / "hello", env={"COWMLX_LIBRARY": "libm.so.6"})
    assert done.returncode != 0
    assert "libm.so.6 is not libcowmlx" in done.stderr


def test_state_of_the_chat_window(swift, built):
    places = ["--package-path", EXAMPLES, "--scratch-path", SCRATCH / NEW]
    done = swift.run("swift", "test", "--disable-xctest", *places)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def test_a_bundle_is_a_package_that_brings_the_library(swift, tmp_path):
    without = frozenset(["grammar"])
    assemble(tmp_path / "CowMLX", Options(swift=True, without=without))
    host = tmp_path / "host"
    shutil.copytree(EXAMPLES / "Sources/hello", host / "Sources/hello")
    (host / "Package.swift").write_text("""// swift-tools-version:6.0
import PackageDescription

let library = Target.Dependency.product(name: "CowMLX", package: "CowMLX")
let package = Package(
  name: "host", platforms: [.macOS(.v14)], dependencies: [.package(path: "../CowMLX")],
  targets: [.executableTarget(name: "hello", dependencies: [library])])
""")
    done = swift.run("swift", "build", "--package-path", host)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    shutil.rmtree(tmp_path / "CowMLX")  # the program has a copy
    output = said(swift, host / ".build/debug/hello", env={"COWMLX_LIB_DIR": ""})
    assert output == "3 + 4 = 7."
