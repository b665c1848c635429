"""Recordings of synthetic voices, for a network that finds speech."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from support import registries

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


def two_voices() -> np.ndarray:
    """A second of silence, a voice of two, a little noise, and another voice from 4.5 s on."""
    noise = np.random.default_rng(1).standard_normal(RATE * 3 // 2) / 1000
    return np.concatenate([np.zeros(RATE), voice(2, 120), noise, voice(1.5, 200)])


def network() -> Path:
    """The file of Silero VAD that examples take, or skip the test and say what is missing."""
    files = registries.wheel("silero-vad", "6.2.3", "silero_vad/data/*.onnx")
    (found,) = (path for path in files if path.name == "silero_vad_op18_ifless.onnx")
    return found
