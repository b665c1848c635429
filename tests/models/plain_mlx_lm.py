"""A program: what plain mlx-lm computes for models. Knows nothing of cowmlx.

Each line of its input is a list of requests as JSON, and is answered by a line.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
from functools import partial
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
    if "sequences" in request:
        return follow(request, place)
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


def widened(operation: Any) -> Any:
    """Products with chosen experts in 16 bits, as a GPU has them; mlx's CPU knows only float32."""

    def multiply(x: mx.array, *arrays: Any, **named: Any) -> mx.array:
        if x.dtype not in (mx.float16, mx.bfloat16):
            return operation(x, *arrays, **named)
        wide = [array.astype(mx.float32) if is_half(array) else array for array in arrays]
        wide_named = {
            name: each.astype(mx.float32) if is_half(each) else each for name, each in named.items()
        }
        return operation(x.astype(mx.float32), *wide, **wide_named).astype(x.dtype)

    return multiply


def is_half(value: Any) -> bool:
    return isinstance(value, mx.array) and value.dtype in (mx.float16, mx.bfloat16)


dequantize = mx.dequantize
mx.gather_mm, mx.gather_qmm = widened(mx.gather_mm), widened(mx.gather_qmm)


def follow(request: dict[str, Any], place: pathlib.Path) -> dict[str, Any]:
    """Write the logits that tokens behind prompts are chosen from, and how far they are from exact.

    Args:
        request: path; sequences, a prompt and tokens each; wide: whether to compute in float32;
            exact: False where float64 would take too long.
        place: where to write.
    """
    try:
        model, _ = load_model(pathlib.Path(request["path"]))
        if request["wide"]:
            model.set_dtype(mx.float32)
            mx.dequantize = partial(dequantize, dtype=mx.float32)
        mx.disable_compile()  # a C++ compiler takes seconds for each graph

        def rows() -> list[mx.array]:
            made = [logits(model, prompt, tokens) for prompt, tokens in request["sequences"]]
            mx.eval(made)
            return made

        plain = [row.astype(mx.float32) for row in rows()]
        errors = []
        if not request.get("exact", True):
            return saved(plain, errors, place)
        with in_float64(model):
            errors = [
                # Both are -infinity where a network forbids a token.
                mx.where(one == exact, 0.0, one.astype(mx.float64) - exact).astype(mx.float32)
                for one, exact in zip(plain, rows(), strict=True)
            ]
    except Exception as exc:
        return {"refusal": f"{type(exc).__name__}: {exc}"}
    finally:
        mx.dequantize = dequantize
    return saved(plain, errors, place)


def saved(plain: list[mx.array], errors: list[mx.array], place: pathlib.Path) -> dict[str, Any]:
    arrays = {f"plain-{index}": array for index, array in enumerate(plain)}
    arrays |= {f"error-{index}": array for index, array in enumerate(errors)}
    mx.save_safetensors(str(place), arrays)
    return {"logits": str(place)}


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    number = len(list(folder.glob("logits-*")))
    for line in sys.stdin:
        answers = []
        for request in json.loads(line):
            answers.append(answer(request, folder / f"logits-{number}.safetensors"))
            number += 1
        print(json.dumps(answers), flush=True)


main()
