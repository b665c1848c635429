"""The Rust examples say what the C examples say."""

from __future__ import annotations

import json
import re

import pytest
from support import tiny_encoders, voices
from support.compiler import compile_c, run
from support.hosts import linked
from support.paths import CALF, LIBRARY, ROOT

pytestmark = pytest.mark.xdist_group("cargo")


@pytest.fixture
def in_rust(cargo):
    """Runs an example."""

    def in_rust(name, *arguments, **options):
        words = ["--locked", "--quiet", "--features", "stream", "--example", name, "--", *arguments]
        return cargo("run", *words, **options)

    return in_rust


@pytest.fixture
def in_c(tmp_path):
    """Runs the C example of a name."""

    def in_c(name, *arguments, **options):
        source = ROOT / "examples/c" / f"{name}.c"
        program = compile_c([source], tmp_path / name, *linked(LIBRARY))
        return run([program, *arguments], **options)

    return in_c


def same(rust, c):
    assert rust.returncode == 0, rust.stderr
    assert (rust.stdout, c.returncode) == (c.stdout, 0)


def test_chat(in_rust, in_c):
    lines = 'What colour is a fox?\nSay "\\" and \t\x01 ü 🙂 "\n\nAnd what does it eat?'
    arguments = ["chat", CALF, "You are called Bella."]
    same(in_rust(*arguments, input=lines), in_c(*arguments, input=lines))


def test_chat_goes_on_after_a_line_that_fails(in_rust, in_c):
    lines = f"What colour is a fox?\n{'much ' * 5000}\nAnd what does it eat?\n"
    done = in_rust("chat", CALF, input=lines)
    assert "this context holds" in done.stderr
    same(done, in_c("chat", CALF, input=lines))


def test_two_models(in_rust, in_c):
    same(in_rust("two_models", CALF), in_c("two_models", CALF))


def test_search(in_rust, in_c, tmp_path):
    folder = tiny_encoders.make(tmp_path / "bert", "bert")
    (tmp_path / "lines.txt").write_text("ba be bi\n\nka ke\r\nzu zo za ze\nma mi\n")
    arguments = ["search", folder, tmp_path / "lines.txt", "ba bi", "zu za"]
    done = in_rust(*arguments)
    assert done.stdout.count("\n") == 8
    same(done, in_c(*arguments))


def test_json(in_rust, in_c):
    done = in_rust("json", CALF)
    same(done, in_c("json_output", CALF))
    sounds = [json.loads(line)["sound"] for line in done.stdout.splitlines()]
    assert sounds == ["moo", "hoot"]
    assert "It has 4 legs" in done.stderr


@pytest.mark.parametrize("name", ["regression", "kmeans"])
def test_programs(in_rust, in_c, name):
    same(in_rust(name), in_c(name))


def test_network(in_rust):
    done = in_rust("network")
    assert (done.returncode, done.stderr) == (0, "")
    first, then, right = re.findall(r"[\d.]+", done.stdout)[:3]
    assert (float(first) > 0.6, float(then) < 0.1, int(right) >= 125) == (True, True, True)


@pytest.mark.long
def test_finetune(in_rust, in_c, tmp_path):
    """To the letter: losses, answers, and the bits of the adapter."""
    rust = in_rust("finetune", CALF, tmp_path / "facts")
    trained = (tmp_path / "facts/adapters.safetensors").read_bytes()
    same(rust, in_c("finetune", CALF, tmp_path / "facts"))
    assert "after: 20 of 20 are right" in rust.stdout
    assert (tmp_path / "facts/adapters.safetensors").read_bytes() == trained


@pytest.mark.long  # fetches a network
def test_classify(in_rust, in_c, tmp_path):
    sound = voices.write_sound(tmp_path / "sound.wav", voices.two_voices())
    arguments = ["classify", voices.network(), sound]
    done = in_rust(*arguments)
    assert done.stdout.count("speech from") == 2
    same(done, in_c(*arguments))
    done = in_rust("classify", *[voices.network()] * 2)
    assert (done.returncode, done.stdout) == (1, "")
    assert "must have 16,000 samples a second" in done.stderr
