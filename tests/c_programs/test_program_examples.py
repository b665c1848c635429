"""The examples of programs, in C and in C++, find what their points were made with."""

from __future__ import annotations

import re

import pytest
from support import voices
from support.compiler import compile_c, run
from support.hosts import linked
from support.paths import LIBRARY, ROOT

SAID = {
    "regression": r"y = 3\.000 a -2\.000 b after 500 rounds\n",
    "kmeans": (
        r"100 points around 1\.0, 0\.9\n"
        r"100 points around 2\.0, 4\.0\n"
        r"100 points around 4\.0, 1\.0\n"
        r"after 5 rounds\n"
    ),
    # How far it comes differs a little, with the rounding of a machine.
    "network": r"loss 0\.70, then 0\.0\d: 12[5-8] of 128 points are classified right\n",
}


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize(
    ("suffix", "compiler", "std"), [("c", "cc", "c11"), ("cpp", "c++", "c++17")]
)
def test_an_example(tmp_path, name, suffix, compiler, std):
    source = ROOT / "examples" / suffix / f"{name}.{suffix}"
    options = linked(LIBRARY)
    program = compile_c([source], tmp_path / name, *options, compiler=compiler, std=std)
    done = run([program])
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(SAID[name], done.stdout), done.stdout


@pytest.mark.long  # fetches a network
def test_classify_finds_voices(tmp_path):
    """Two synthetic ones, between silence and a little noise."""
    network = voices.network()
    source = ROOT / "examples/c/classify.c"
    program = compile_c([source], tmp_path / "classify", *linked(LIBRARY))
    sound = voices.write_sound(tmp_path / "sound.wav", voices.two_voices())
    done = run([program, network, sound])
    assert (done.returncode, done.stderr) == (0, "")
    said = r"speech from ([\d.]+) to ([\d.]+) s\nspeech from ([\d.]+) s to the end\n"
    found = re.fullmatch(said, done.stdout)
    assert found, done.stdout
    begin, end, second = (float(time) for time in found.groups())
    assert abs(begin - 1) < 0.2 and 2.8 < end < 3.8 and abs(second - 4.5) < 0.2
    for path, problem in (
        (
            voices.write_sound(tmp_path / "fast.wav", voices.voice(1, 120), 44100),
            "must have 16,000 samples a second",
        ),
        (network, "is no WAV file"),
        (tmp_path / "none.wav", "cannot be opened"),
    ):
        done = run([program, network, path])
        assert (done.returncode, done.stdout) == (1, "")
        assert problem in done.stderr
