"""The examples of programs, in C and in C++, find what their points were made with."""

from __future__ import annotations

import re
import wave
from pathlib import Path

import numpy as np
import pytest
from support import registries
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


RATE = 16000


def resonance(signal: np.ndarray, frequency: float, width: float) -> np.ndarray:
    """A signal through a resonator of two poles."""
    radius = np.exp(-np.pi * width / RATE)
    first, second = 2 * radius * np.cos(2 * np.pi * frequency / RATE), -radius * radius
    found = [0.0, 0.0]
    for value in signal.tolist():
        found.append(value + first * found[-1] + second * found[-2])
    return np.array(found[2:])


def voice(seconds: float, pitch: float) -> np.ndarray:
    """Pulses through the formants of three vowels, in syllables."""
    time = np.arange(int(seconds * RATE)) / RATE
    phase = np.cumsum(pitch * (1 + 0.05 * np.sin(6 * np.pi * time))) / RATE
    parts = np.array_split(np.diff(np.floor(phase), prepend=0), 3)
    vowels = [(700, 1200, 2600), (300, 2300, 3000), (500, 900, 2400)]
    for at, formants in enumerate(vowels):
        for formant, width in zip(formants, (80, 100, 120), strict=True):
            parts[at] = resonance(parts[at], formant, width)
    said = np.concatenate(parts) * np.clip(np.sin(5 * np.pi * time) ** 2 + 0.1, 0, 1)
    return said / np.abs(said).max() / 2


def write_sound(path: Path, samples: np.ndarray, rate: int = RATE) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32767).astype("<i2").tobytes())
    return path


@pytest.mark.long  # fetches a network
def test_classify_finds_voices(tmp_path):
    """Two synthetic ones, between silence and a little noise."""
    files = registries.wheel("silero-vad", "6.2.3", "silero_vad/data/*.onnx")
    (network,) = (path for path in files if path.name == "silero_vad_op18_ifless.onnx")
    source = ROOT / "examples/c/classify.c"
    program = compile_c([source], tmp_path / "classify", *linked(LIBRARY))
    noise = np.random.default_rng(1).standard_normal(RATE * 3 // 2) / 1000
    parts = [np.zeros(RATE), voice(2, 120), noise, voice(1.5, 200)]
    done = run([program, network, write_sound(tmp_path / "sound.wav", np.concatenate(parts))])
    assert (done.returncode, done.stderr) == (0, "")
    said = r"speech from ([\d.]+) to ([\d.]+) s\nspeech from ([\d.]+) s to the end\n"
    found = re.fullmatch(said, done.stdout)
    assert found, done.stdout
    begin, end, second = (float(time) for time in found.groups())
    assert abs(begin - 1) < 0.2 and 2.8 < end < 3.8 and abs(second - 4.5) < 0.2
    for path, problem in (
        (write_sound(tmp_path / "fast.wav", noise, 44100), "must have 16,000 samples a second"),
        (network, "is no WAV file"),
        (tmp_path / "none.wav", "cannot be opened"),
    ):
        done = run([program, network, path])
        assert (done.returncode, done.stdout) == (1, "")
        assert problem in done.stderr
