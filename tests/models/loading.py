"""Loading models, running them greedily, and asking plain mlx-lm about them."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

HERE = pathlib.Path(__file__).parent
PROMPT = "The quick brown fox"


def reference(requests: list[dict[str, Any]], folder: pathlib.Path) -> list[dict[str, Any]]:
    """Ask plain mlx-lm, in a separate process, about several models.

    Args:
        requests: path, prompt (tokens), count and optionally adapter of each.
        folder: where the logits are written.

    Returns:
        For each: tokens, end_tokens (None where AutoTokenizer refuses the config), parameters,
        and logits, the path of a safetensors file: "logits", and "error", how much these are more
        than those of float64.
    """
    done = subprocess.run(
        [sys.executable, str(HERE / "plain_mlx_lm.py"), str(folder)],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


class Plain:
    """A program that knows nothing of cowmlx, in a process that stays for further requests.

    Args:
        name: of the program, beside this file.
        arguments: of the program.
    """

    def __init__(self, name: str, *arguments: object):
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / name), *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MLX_DISABLE_COMPILE": "1"},
        )

    def ask(self, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return an answer for each request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(requests) + "\n")
        self._process.stdin.flush()
        while not (line := self._process.stdout.readline()).startswith("[{"):  # said by a library
            assert line, f"the program ended with {self._process.wait()}"
        answers: list[dict[str, Any]] = json.loads(line)
        return answers

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def greedy(model: Any, prompt: list[int], count: int) -> tuple[list[int], Any]:
    """Generate greedily as mlx-lm does: all but the last prompt token first.

    Returns:
        The tokens, and the logits (count, vocabulary) that each was chosen from.
    """
    import mlx.core as mx

    cache = model.make_cache()
    if len(prompt) > 1:
        model.network(mx.array([prompt[:-1]]), cache=cache)
        mx.eval([layer.state for layer in cache])
    tokens, rows, last = [], [], prompt[-1]
    for _ in range(count):
        row = model.network(mx.array([[last]]), cache=cache)[0, -1]
        last = int(mx.argmax(row).item())
        tokens.append(last)
        rows.append(row)
    return tokens, mx.stack(rows)


def auto_tokenizers(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ask AutoTokenizer and mlx-lm's wrapper about folders, in a separate process."""
    done = subprocess.run(
        [sys.executable, str(HERE / "auto_tokenizers.py")],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return answers


def load_tokenizer(path: pathlib.Path | str) -> tuple[Any, Any]:
    """Load only a folder's tokenizer and chat template, on the light route."""
    from cowmlx.folders import config as config_files
    from cowmlx.models import chat_format
    from cowmlx.text import chat_template, tokenizer_files

    settings = tokenizer_files.read_config(str(path))
    tokenizer = tokenizer_files.load(str(path), settings, config_files.read_config(str(path)))
    sources = chat_template.read_sources(str(path), settings)
    thinking = chat_format.thinking(tokenizer) is not None
    template = chat_template.ChatTemplate(sources, tokenizer.special_tokens, thinking=thinking)
    return tokenizer, template
