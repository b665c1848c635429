"""Families of tiny models that see: their configs and the shapes of their weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

DIMS, HEADS, KEYS, HEAD, MLP = 64, 4, 2, 32, 96
"""Of the text's networks."""
SIGLIP_SIZES = ("hidden_size", "intermediate_size", "patch_size")


def llama_config(kind: str, size: int) -> dict[str, Any]:
    """The config of a text network like Llama's."""
    return {
        "model_type": kind,
        "hidden_size": DIMS,
        "num_hidden_layers": 2,
        "intermediate_size": MLP,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEYS,
        "head_dim": HEAD,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "max_position_embeddings": 1024,
        "vocab_size": size,
    }


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

    def bare(self, name: str, *shape: int) -> None:
        """Draw a linear layer without a bias."""
        self.matrix(f"{name}.weight", *shape)

    def linear(self, name: str, *shape: int) -> None:
        """Draw a matrix and its bias."""
        self.matrix(f"{name}.weight", *shape)
        self.vector(f"{name}.bias", shape[0])

    def norm(self, name: str, count: int) -> None:
        """Draw a layer norm."""
        self.vector(f"{name}.weight", count, 1.0)
        self.vector(f"{name}.bias", count)

    def llama(self, prefix: str, size: int, head: str, layers: int = 2) -> None:
        """Draw a Llama, its head apart if it has a name."""
        self.matrix(f"{prefix}embed_tokens.weight", size, DIMS)
        for at in range(layers):
            layer = f"{prefix}layers.{at}."
            shapes = {"q": (HEADS * HEAD, DIMS), "k": (KEYS * HEAD, DIMS), "v": (KEYS * HEAD, DIMS)}
            for name, shape in {**shapes, "o": (DIMS, HEADS * HEAD)}.items():
                self.matrix(f"{layer}self_attn.{name}_proj.weight", *shape)
            for name, shape in (("gate", (MLP, DIMS)), ("up", (MLP, DIMS)), ("down", (DIMS, MLP))):
                self.matrix(f"{layer}mlp.{name}_proj.weight", *shape)
            for name in ("input_layernorm", "post_attention_layernorm"):
                self.vector(f"{layer}{name}.weight", DIMS, 1.0)
        self.vector(f"{prefix}norm.weight", DIMS, 1.0)
        if head:
            self.matrix(head, size, DIMS)

    def siglip(self, tower: str, eyes: dict[str, int]) -> None:
        """Draw a tower of the sizes in a config."""
        dims, hidden, patch = (eyes[name] for name in SIGLIP_SIZES)
        self.linear(f"{tower}embeddings.patch_embedding", dims, 3, patch, patch)
        places = (eyes["image_size"] // patch) ** 2
        self.matrix(f"{tower}embeddings.position_embedding.weight", places, dims)
        for at in range(eyes["num_hidden_layers"]):
            self.siglip_layer(f"{tower}encoder.layers.{at}.", dims, hidden)
        self.norm(f"{tower}post_layernorm", dims)

    def siglip_layer(self, layer: str, dims: int, hidden: int) -> None:
        """Draw a layer of SigLIP."""
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self.linear(f"{layer}self_attn.{name}", dims, dims)
        for name, shape in (("fc1", (hidden, dims)), ("fc2", (dims, hidden))):
            self.linear(f"{layer}mlp.{name}", *shape)
        for name in ("layer_norm1", "layer_norm2"):
            self.norm(f"{layer}{name}", dims)
