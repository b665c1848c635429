"""Wirings of tiny models, for a vocabulary of a given size."""

from __future__ import annotations

from typing import Any

DIMS, HEADS = 64, 4


def llama(size: int) -> dict[str, Any]:
    """What a llama is: attention and SwiGLU behind norms, with residual connections."""
    return _model(size, "attention", "attention", "attention")


def xlstm(size: int) -> dict[str, Any]:
    """The shape of an xLSTM with a matrix memory."""
    return _model(size, "mlstm", "mlstm", "mlstm")


def hybrid(size: int) -> dict[str, Any]:
    """A layer of every kind that has a state."""
    return _model(size, "mlstm", "attention", "slstm")


def slstm(size: int) -> dict[str, Any]:
    """Scalar memories, one of them without a convolution."""
    return _model(size, "slstm", "plain slstm")


def parallel(size: int) -> dict[str, Any]:
    """Two branches side by side, one subtracted; a window of tokens, and a tied head."""
    from cowmlx.networks.wiring import Wiring

    wiring = Wiring().add_block("tokens", "embedding", num_embeddings=size, dims=DIMS)
    wiring.add_block("norm", "rms_norm", dims=DIMS)
    _layer(wiring, "left", "window")
    _layer(wiring, "right", "mlstm")
    wiring.add_block("sum", "layer_norm", dims=DIMS)
    wiring.add_block("head", "lm_head", dims=DIMS, num_embeddings=size, embedding="tokens")
    wiring.chain("tokens", "norm", "left", "sum", "head").chain("norm", "right")
    return wiring.connect("right", "sum", -1).to_json()


def _model(size: int, *layers: str) -> dict[str, Any]:
    from cowmlx.networks.wiring import Wiring

    wiring = Wiring().add_block("tokens", "embedding", num_embeddings=size, dims=DIMS)
    stream = "tokens"
    for index, kind in enumerate(layers):
        if kind == "attention":
            stream = _attention_layer(wiring, stream, index)
        else:
            _layer(wiring, f"{kind.split()[-1]}_{index}", kind)
            wiring.connect(stream, f"{kind.split()[-1]}_{index}")
            stream = f"{kind.split()[-1]}_{index}"
    wiring.add_block("norm", "rms_norm", dims=DIMS)
    wiring.add_block("head", "lm_head", dims=DIMS, num_embeddings=size)
    return wiring.chain(stream, "norm", "head").to_json()


def _attention_layer(wiring: Any, stream: str, index: int) -> str:
    """Add attention, then a SwiGLU, each behind a norm and with a residual; the last sum's name."""
    for part in ("attention", "mlp"):
        norm, layer, total = (f"{name}_{index}" for name in (f"{part}_norm", part, f"{part}_sum"))
        wiring.add_block(norm, "rms_norm", dims=DIMS)
        if part == "attention":
            _layer(wiring, layer, "attention")
        else:
            wiring.add_block(layer, "swiglu", dims=DIMS, hidden_dims=96)
        wiring.add_block(total, "identity", dims=DIMS)
        wiring.chain(stream, norm, layer, total).connect(stream, total)
        stream = total
    return stream


def _layer(wiring: Any, name: str, kind: str) -> None:
    if kind == "mlstm":
        wiring.add_block(
            name,
            "mlstm",
            dims=DIMS,
            num_heads=HEADS,
            qk_dims=32,
            v_dims=DIMS,
            hidden_dims=96,
            chunk_size=16,
        )
    elif kind.endswith("slstm"):
        plain = {"conv_kernel": None} if kind.startswith("plain") else {}
        wiring.add_block(name, "slstm", dims=DIMS, num_heads=HEADS, hidden_dims=96, **plain)
    else:
        window = {"window": 8} if kind == "window" else {}
        wiring.add_block(name, "attention", dims=DIMS, num_heads=HEADS, num_kv_heads=2, **window)
