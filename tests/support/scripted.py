"""Tiny models that generate given tokens, regardless of the prompt.

Their layers do nothing. Each position's embedding is that of the token which the model shall say
there, and the logits are the products with the token embeddings.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any

from . import tiny_models, tokenizers

POSITIONS = 1024
_LOUD = 20.0  # how much stronger a position is than the token before it

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# The generation prompt starts thinking, or says that there is none.
THINKING = CHATML.replace(
    "assistant\n{% endif %}",
    "assistant\n{{ '<think>\n' if enable_thinking else '<think>\n\n</think>\n\n' }}{% endif %}",
)


def make(
    folder: pathlib.Path,
    template: str,
    markers: Sequence[str] = (),
    *,
    kind: str = "bpe",
    settings: dict[str, Any] | None = None,
    positions: int = POSITIONS,
) -> pathlib.Path:
    """Write a model that has still to be told what to say.

    Args:
        folder: where to; it is made.
        template: the chat template.
        markers: texts that are single tokens.
        kind: of the tokenizer, one of ``tokenizers.KINDS``.
        settings: more keys of ``tokenizer_config.json``.
        positions: of its window.
    """
    from tokenizers import AddedToken, Tokenizer

    folder.mkdir(parents=True)
    text, config = tokenizers.build(kind)
    tokenizer = Tokenizer.from_str(text)
    tokenizer.add_tokens([AddedToken(marker, normalized=False) for marker in markers])
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    written = {**json.loads(config), "chat_template": template, **(settings or {})}
    (folder / "tokenizer_config.json").write_text(json.dumps(written), encoding="utf-8")
    changes = {
        "vocab_size": tokenizer.get_vocab_size(),
        "eos_token_id": tokenizer.token_to_id(written["eos_token"]),
        "n_layer": 1,
        "n_positions": positions,
        "n_ctx": positions,
    }
    (folder / "config.json").write_text(json.dumps({**tiny_models.FAMILIES["gpt2"], **changes}))
    tell(folder, 0, [])
    return folder


def tell(folder: pathlib.Path, at: int, tokens: Sequence[int]) -> None:
    """Let the model say tokens behind a prompt of ``at`` tokens, and the last one for ever."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    from cowmlx.networks import light_route

    config = json.loads((folder / "config.json").read_text())
    module = light_route.import_module("models.gpt2")
    network = module.Model(module.ModelArgs.from_dict(config))
    weights = {name: mx.zeros_like(array) for name, array in tree_flatten(network.parameters())}
    names = mx.random.normal((config["vocab_size"], config["n_embd"]), key=mx.random.key(1))
    names -= names.mean(axis=1, keepdims=True)
    names /= mx.linalg.norm(names, axis=1, keepdims=True)
    count = config["n_positions"]
    said = [*tokens, *[tokens[-1] if tokens else 0] * count]
    positions = ([0] * max(at - 1, 0) + said)[:count]
    weights["model.wte.weight"] = names
    weights["model.wpe.weight"] = _LOUD * names[mx.array(positions)]
    weights["model.ln_f.weight"] = mx.ones_like(weights["model.ln_f.weight"])
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
