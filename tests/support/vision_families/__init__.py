"""Families of tiny models that see: their configs and the shapes of their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

DIMS, HEADS, KEYS, HEAD, MLP = 64, 4, 2, 16, 96
"""Of the text's networks."""


class Family(NamedTuple):
    """One family.

    Attributes:
        name: of the files with what was recorded.
        marks: special tokens of images, at the end of the vocabulary.
        marker: what the chat template writes for an image.
        soft: the mark in whose places an image's features are.
        config: makes ``config.json``, from the id of each mark and the size of the vocabulary.
        weights: draws them.
        preprocessing: ``preprocessor_config.json``.
        odd: a key of the config, within another, and a value that no tower has.
        damaged: the name of a vector of the tower.
        processing: ``processor_config.json``; None: there is none.
    """

    name: str
    marks: tuple[str, ...]
    marker: str
    soft: str
    config: Callable[[dict[str, int], int], dict[str, Any]]
    weights: Callable[[Random, int], None]
    preprocessing: dict[str, Any]
    odd: tuple[str, str, Any]
    damaged: str
    processing: dict[str, Any] | None = None


class Random:
    """Random weights under the names that files have."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.made: dict[str, np.ndarray] = {}

    def matrix(self, name: str, *shape: int) -> None:
        """Draw one; its results are about as large as what it is applied to."""
        spread = 1 / np.sqrt(np.prod(shape[1:]))
        self.made[name] = self._rng.normal(0, spread, shape).astype(np.float32)

    def vector(self, name: str, count: int, mean: float = 0.0) -> None:
        """Draw one."""
        self.made[name] = self._rng.normal(mean, 0.1, count).astype(np.float32)

    def linear(self, name: str, *shape: int) -> None:
        """Draw a matrix and its bias."""
        self.matrix(f"{name}.weight", *shape)
        self.vector(f"{name}.bias", shape[0])

    def norm(self, name: str, count: int) -> None:
        """Draw a layer norm."""
        self.vector(f"{name}.weight", count, 1.0)
        self.vector(f"{name}.bias", count)

    def siglip_layer(self, layer: str, dims: int, hidden: int) -> None:
        """Draw a layer of SigLIP."""
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self.linear(f"{layer}self_attn.{name}", dims, dims)
        for name, shape in (("fc1", (hidden, dims)), ("fc2", (dims, hidden))):
            self.linear(f"{layer}mlp.{name}", *shape)
        for name in ("layer_norm1", "layer_norm2"):
            self.norm(f"{layer}{name}", dims)
