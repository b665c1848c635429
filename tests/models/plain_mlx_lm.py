"""A program: what plain mlx-lm generates for models, as JSON. Knows nothing of cowmlx."""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_VERBOSITY"] = "error"
sys.path.append(str(pathlib.Path(__file__).parents[1]))

import mlx.core as mx
from mlx_lm import load, stream_generate
from mlx_lm.generate import generate_step
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import get_total_parameters, load_adapters, load_model
from support.float64 import in_float64


def answer(request: dict[str, Any], place: pathlib.Path) -> dict[str, Any]:
    path, prompt, count = request["path"], request["prompt"], request["count"]
    adapter = request.get("adapter")
    refusal = None
    tokenizer = None
    try:
        model, tokenizer = load(path, adapter_path=adapter)
    except Exception as exc:
        # AutoTokenizer refuses some configs that mlx-lm itself can run.
        refusal = f"{type(exc).__name__}: {exc}"
        model, _ = load_model(pathlib.Path(path))
        if adapter is not None:
            model = load_adapters(model, adapter)
            model.eval()
    if tokenizer is not None:
        steps = stream_generate(model, tokenizer, prompt, max_tokens=count)
        tokens = [response.token for response in steps]
    else:
        steps = generate_step(mx.array(prompt), model, max_tokens=count)
        tokens = [int(token) for token, _ in steps]
    parameters = get_total_parameters(model)
    plain = logits(model, prompt, tokens)
    with in_float64(model):
        exact = logits(model, prompt, tokens)
        error = (plain.astype(mx.float64) - exact).astype(mx.float32)
    mx.save_safetensors(str(place), {"logits": plain, "error": error})
    return {
        "tokens": tokens,
        "end_tokens": sorted(tokenizer.eos_token_ids) if tokenizer is not None else None,
        "parameters": parameters,
        "refusal": refusal,
        "logits": str(place),
    }


def logits(model: Any, prompt: list[int], tokens: list[int]) -> mx.array:
    """The logits that each token was chosen from."""
    cache = make_prompt_cache(model)
    if len(prompt) > 1:
        model(mx.array([prompt[:-1]]), cache=cache)
        mx.eval([layer.state for layer in cache])
    rows = []
    for token in [prompt[-1], *tokens[:-1]]:
        rows.append(model(mx.array([[token]]), cache=cache)[0, -1])
        mx.eval(rows[-1])
    return mx.stack(rows)


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    requests = json.load(sys.stdin)
    number = len(list(folder.glob("logits-*")))
    print(
        json.dumps(
            [
                answer(request, folder / f"logits-{number + index}.safetensors")
                for index, request in enumerate(requests)
            ]
        )
    )


main()
