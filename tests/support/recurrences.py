"""The recurrences of xLSTM (arXiv 2405.04517) in float64, one position after the other."""

from __future__ import annotations

from typing import Any

import numpy as np


def sigmoid(x: Any) -> Any:
    return 0.5 * (1 + np.tanh(0.5 * x))


def log_sigmoid(x: Any) -> Any:
    return np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))


def mlstm(q: Any, k: Any, v: Any, i: Any, f: Any, state: Any, eps: float) -> tuple[Any, Any]:
    """The matrix memory: q, k (B, NH, S, DHQK), v (B, NH, S, DHV), i, f (B, NH, S)."""
    q, k, v, i, f, c, n, m = (np.asarray(x, np.float64) for x in (q, k, v, i, f, *state))
    m = m[..., 0]
    hidden = np.zeros(v.shape)
    for s in range(q.shape[2]):
        kept = log_sigmoid(f[:, :, s]) + m
        m = np.maximum(kept, i[:, :, s])
        forget, take = np.exp(kept - m), np.exp(i[:, :, s] - m)
        c = np.einsum("bh,bhij->bhij", forget, c) + np.einsum(
            "bh,bhi,bhj->bhij", take, k[:, :, s], v[:, :, s]
        )
        n = forget[..., None] * n + take[..., None] * k[:, :, s]
        query = q[:, :, s] / np.sqrt(q.shape[-1])
        weight = np.abs(np.einsum("bhi,bhi->bh", query, n))
        found = np.einsum("bhi,bhij->bhj", query, c)
        hidden[:, :, s] = found / (np.maximum(weight, np.exp(-m)) + eps)[..., None]
    return hidden, (c, n, m[..., None])


def slstm_directly(x: dict[str, Any], recurrent: dict[str, Any], steps: int) -> Any:
    """The scalar memory as eq. 8 to 14 define it, without a stabiliser: gates of small size only.

    Args:
        x: what the input adds to i, f, z and o, each (B, S, NH, DH), by name.
        recurrent: matrices (NH, DH, DH) of what is fed back to each, by name.
        steps: S.

    Returns:
        The hidden states (B, S, NH, DH).
    """
    c = n = h = np.zeros_like(np.asarray(x["i"], np.float64)[:, 0])
    hidden = []
    for s in range(steps):
        i, f, z, o = (
            x[gate][:, s] + np.einsum("hij,bhj->bhi", recurrent[gate], h) for gate in "ifzo"
        )
        c = sigmoid(f) * c + np.exp(i) * np.tanh(z)
        n = sigmoid(f) * n + np.exp(i)
        h = sigmoid(o) * c / n
        hidden.append(h)
    return np.stack(hidden, axis=1)


def slstm(x: dict[str, Any], recurrent: dict[str, Any], steps: int) -> Any:
    """The same with the stabiliser of eq. 15 to 17, for gates of any size."""
    zeros = np.zeros_like(np.asarray(x["i"], np.float64)[:, 0])
    c, n, h, m = zeros, zeros, zeros, np.full_like(zeros, -np.inf)
    hidden = []
    for s in range(steps):
        i, f, z, o = (
            x[gate][:, s] + np.einsum("hij,bhj->bhi", recurrent[gate], h) for gate in "ifzo"
        )
        scale = np.maximum(log_sigmoid(f) + m, i)
        forget, take = np.exp(log_sigmoid(f) + m - scale), np.exp(i - scale)
        c, n, m = forget * c + take * np.tanh(z), forget * n + take, scale
        h = sigmoid(o) * c / n
        hidden.append(h)
    return np.stack(hidden, axis=1)
