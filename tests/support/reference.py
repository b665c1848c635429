"""What plain mlx-lm gives, computed in a process that never sees libcowmlx.

As a program: reads tasks, a list of JSON objects, from the file named first and
writes one result per task to the file named second. A task has "folder",
"prompt" (tokens) or "messages" and "tools" (for the chat template), "max_tokens"
and, if wanted, "repetition_penalty" and "repetition_window"; a result has "prompt",
"tokens", "text" and "logprobs" of the first token. Everything is greedy. "kv_bits"
and "kv_group_size" quantize keys and values from the first token on. "adapter" is the
folder of one that goes with the model. A task with "embed", lists of tokens, has the pooled
hidden states of each as its result, "vectors": "mean", "last" and "cls". A task with "logits" has
the logits behind the prompt as its result, one with "score" the log softmax behind each token of
the prompt, "scores". The first two have "errors", too: how much these numbers are more
than those of float64. A task that fails has "error" alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def run(tasks: list[dict[str, Any]], scratch: Path) -> list[dict[str, Any]]:
    """Let mlx-lm carry out tasks in another process."""
    source, result = scratch / "tasks.json", scratch / "results.json"
    source.write_text(json.dumps(tasks))
    # The library does without compiled CPU graphs, which would call a C++ compiler.
    environment = {**os.environ, "MLX_DISABLE_COMPILE": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-P", __file__, str(source), str(result)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=scratch)
    assert done.returncode == 0, done.stderr
    return json.loads(result.read_text())


def load(folder: Path, adapter: str | None = None) -> tuple[Any, Any]:
    """The model and tokenizer of a folder; by hand where AutoTokenizer refuses."""
    import mlx_lm
    from mlx_lm.tokenizer_utils import TokenizerWrapper
    from mlx_lm.utils import load_adapters, load_model

    try:
        return mlx_lm.load(str(folder), adapter_path=adapter)
    except Exception as refused:
        from transformers import PreTrainedTokenizerFast

        model, config = load_model(folder)
        if adapter is not None:
            model = load_adapters(model, adapter)
            model.eval()
        try:
            fast = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        except Exception:
            raise refused from None
        ends = config.get("eos_token_id")
        ends = ends if isinstance(ends, list) else [ends] if ends is not None else []
        return model, TokenizerWrapper(fast, eos_token_ids=ends)


def answer(model: Any, tokenizer: Any, task: dict[str, Any]) -> dict[str, Any]:
    """The result of one task."""
    import mlx.core as mx
    from mlx_lm import stream_generate
    from mlx_lm.sample_utils import make_logits_processors

    if "embed" in task:
        pairs = [rounded(model, lambda each=each: embed(model, each)) for each in task["embed"]]
        return {"vectors": [pair[0] for pair in pairs], "errors": [pair[1] for pair in pairs]}
    if "logits" in task:
        found, errors = rounded(model, lambda: {"logits": logits(model, task["prompt"])})
        return {**found, "errors": errors["logits"]}
    if "score" in task:
        rows = model(mx.array([task["prompt"]]))[0].astype(mx.float32)
        return {"scores": (rows - mx.logsumexp(rows, axis=-1, keepdims=True)).tolist()}
    processors = make_logits_processors(
        repetition_penalty=task.get("repetition_penalty"),
        repetition_context_size=task.get("repetition_window", 20),
    )
    prompt = task.get("prompt")
    if prompt is None:
        prompt = tokenizer.apply_chat_template(
            task["messages"], tools=task.get("tools"), add_generation_prompt=True
        )
        prompt = list(prompt["input_ids"] if hasattr(prompt, "keys") else prompt)
    tokens: list[int] = []
    pieces: list[str] = []
    logprobs: list[float] = []
    for response in stream_generate(
        model,
        tokenizer,
        prompt,
        max_tokens=task["max_tokens"],
        logits_processors=processors,
        prompt_cache=quantized_cache(model, task) if "kv_bits" in task else None,
    ):
        tokens.append(response.token)
        pieces.append(response.text)
        if not logprobs:
            logprobs = response.logprobs.astype(mx.float32).tolist()
    text, decoded = "".join(pieces), tokenizer.decode(tokens)
    return {
        "prompt": prompt,
        "tokens": tokens,
        "text": text,
        "decoded": decoded,
        "logprobs": logprobs,
    }


def quantized_cache(model: Any, task: dict[str, Any]) -> list[Any]:
    """An empty cache whose keys and values are quantized."""
    from mlx_lm.models.cache import make_prompt_cache

    how = {"bits": task["kv_bits"], "group_size": task["kv_group_size"]}
    cache = make_prompt_cache(model)
    return [
        layer.to_quantized(**how) if hasattr(layer, "to_quantized") else layer for layer in cache
    ]


def rounded(model: Any, compute: Callable[[], dict[str, Any]]) -> list[dict[str, list[float]]]:
    """What a model computes, by name, and how much that is more than in float64."""
    import mlx.core as mx

    from support.float64 import in_float64

    found = compute()
    mx.eval(found)
    with in_float64(model):
        exact = compute()
        errors = {name: array.astype(mx.float64) - exact[name] for name, array in found.items()}
        mx.eval(errors)
        lists = [{name: array.tolist() for name, array in each.items()} for each in (found, errors)]
    return lists


def logits(model: Any, tokens: list[int]) -> Any:
    """The logits behind tokens."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    return model(mx.array([tokens]), cache=make_prompt_cache(model))[0, -1]


def embed(model: Any, tokens: list[int]) -> dict[str, Any]:
    """The hidden states of tokens before the head, pooled in each way."""
    import mlx.core as mx
    from mlx_lm.models.cache import make_prompt_cache

    name = next(name for name in ("model", "backbone", "transformer") if hasattr(model, name))
    inner = getattr(model, name)
    if hasattr(inner, "embed_out"):
        inner.embed_out = lambda hidden: hidden  # GPT-NeoX has its head inside
    hidden = inner(mx.array([tokens]), cache=make_prompt_cache(model))[0]
    if hidden.dtype != mx.float64:
        hidden = hidden.astype(mx.float32)
    return {"mean": hidden.mean(axis=0), "last": hidden[-1], "cls": hidden[0]}


def main(source: str, result: str) -> None:
    """Carry out a file of tasks, loading every model once."""
    tasks = json.loads(Path(source).read_text())
    results: dict[int, dict[str, Any]] = {}
    kinds = [(task["folder"], task.get("adapter")) for task in tasks]
    for folder, adapter in dict.fromkeys(kinds):
        mine = [index for index, kind in enumerate(kinds) if kind == (folder, adapter)]
        try:
            model, tokenizer = load(Path(folder), adapter)
            for index in mine:
                results[index] = answer(model, tokenizer, tasks[index])
        except Exception as error:
            for index in mine:
                results[index] = {"error": f"{type(error).__name__}: {error}"}
    Path(result).write_text(json.dumps([results[index] for index in range(len(tasks))]))


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1]))
    main(*sys.argv[1:])
