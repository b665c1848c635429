"""A new sampler: its option, its filter for mlx and for the kernel, and the rows that name them."""

from __future__ import annotations

import math
import os
import shutil
import sys
from pathlib import Path

import pytest
from support.compiler import require, run
from support.paths import CALF, ROOT

FILTERS = "cowmlx/generation/sampling/filters.py"
KERNEL = "csrc/kernels/primitives/sample_row.cpp"
# Top-a (KoboldAI): drops tokens less probable than top_a times the square of the best one's
# probability. Each edit is a file, the text in front of which it goes, and what it adds.
EDITS = [
    (
        "include/cow_mlx/generation.h",
        "} cow_mlx_generation_params;",
        "  float top_a; /**< drops tokens less probable than this times the square of the best\n"
        "                    one's probability, 0 to 1; 0 (default): off */\n",
    ),
    (
        "cowmlx/generation/params.py",
        '    "logprobs": (lambda',
        '    "top_a": (lambda own: 0 <= own <= 1, "0 to 1"),\n',
    ),
    (
        FILTERS,
        "def keep_typical(",
        '''def keep_top_a(logits: mx.array, top_a: mx.array) -> mx.array:
    """Drop tokens less probable than ``top_a`` times the square of the best one's probability."""
    logprobs = normalized(logits)
    threshold = mx.log(top_a) + 2 * mx.max(logprobs, axis=-1, keepdims=True)
    return mx.where(logprobs < threshold, -math.inf, logits)


''',
    ),
    (
        FILTERS,
        '    SamplerKind("typical_p"',
        '    SamplerKind("top_a", "top_a", 0, _filter(keep_top_a)),\n',
    ),
    (
        KERNEL,
        "  void keep_typical(",
        """  void keep_top_a(double top_a) {
    const double total = table_.exponentials(values_, best(), size_, memory_.weights);
    const float* weights = memory_.weights;
    keep([=](int i) { return weights[i] >= top_a / total; });
  }

""",
    ),
    (
        KERNEL,
        '    {"typical_p", 1,',
        '    {"top_a", 1, [](Sampling& on, const Numbers& own) { on.left.keep_top_a(own[0]); }},\n',
    ),
]
TOP_A = [0.0, 1.0, 0.5, 0.0, 0.9]  # of the rows
LEAST, TOKENS = 0.5, 24
HOST = r"""
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 5, TOKENS = 24, END = 2 };

static int check(cow_mlx_status status) {
  if (status != COW_MLX_OK) fprintf(stderr, "%s\n", cow_mlx_error_message());
  return status != COW_MLX_OK;
}

/* Print a token, its log probability and that of the best one that may come. */
static int step(cow_mlx_context context) {
  char text[256];
  size_t length;
  int32_t best[2];
  float logprobs[2];
  cow_mlx_piece piece = {.struct_size = sizeof piece};
  if (check(cow_mlx_context_next(context, text, sizeof text, &length, &piece)) ||
      check(cow_mlx_context_logprobs(context, best, logprobs, 2, &length)))
    return 1;
  return printf("%d %.9g %.9g\n", piece.token, piece.logprob, logprobs[best[0] == END]) < 0;
}

static long batched(cow_mlx_context context) {
  static char info[8192];
  size_t length;
  if (check(cow_mlx_context_info(context, info, sizeof info, &length))) return -1;
  const char* at = strstr(info, "\"batched\":");
  return at == NULL ? -1 : strtol(at + strlen("\"batched\":"), NULL, 10);
}

int main(int argc, char** argv) {
  const int32_t prompt[] = {5, 6, 7, 8}, end = END;
  const float never = -1.0f / 0.0f;
  const int together = argc == 3 + ROWS && strcmp(argv[2], "together") == 0;
  cow_mlx_model model;
  cow_mlx_context contexts[ROWS];
  cow_mlx_generation_params params;
  if (check(cow_mlx_runtime_start(NULL)) || check(cow_mlx_model_load(argv[1], NULL, &model)))
    return 1;
  for (int row = 0; row < ROWS; row++) {
    cow_mlx_generation_params_init(&params, sizeof params);
    params.max_tokens = TOKENS + 8;
    params.temperature = 4;
    params.seed = (uint64_t)row;
    params.logprobs = 2;
    params.bias_tokens = &end;
    params.bias_values = &never;
    params.bias_count = 1;
    params.top_a = strtof(argv[3 + row], NULL);
    if (check(cow_mlx_context_create(model, NULL, &contexts[row])) ||
        check(cow_mlx_context_begin(contexts[row], prompt, 4, &params)))
      return 2;
    for (int count = 0; !together && count < TOKENS; count++)
      if (step(contexts[row])) return 3;
    if (!together && check(cow_mlx_context_free(contexts[row]))) return 4;
  }
  for (int row = 0; together && row < ROWS; row++)
    for (int count = 0; count < TOKENS; count++)
      if (step(contexts[(row * TOKENS + count) % ROWS])) return 5;
  if (together && batched(contexts[0]) <= 0) return 6;
  params.top_a = 1.5f;
  if (check(cow_mlx_context_create(model, NULL, &contexts[0])) ||
      cow_mlx_context_begin(contexts[0], prompt, 4, &params) != COW_MLX_EINVAL)
    return 7;
  printf("%s\n", cow_mlx_error_message());
  return check(cow_mlx_runtime_stop());
}
"""


# A line of the host: a token, its log probability under the model, and that of the best one.
Line = tuple[int, float, float]


@pytest.mark.parametrize("kernels", ["on", "off"])
@pytest.mark.long
def test_a_sampler_is_added_in_six_places(tree, tmp_path, kernels):
    assert len(EDITS) <= 6
    for name, before, text in EDITS:
        content = (tree / name).read_text()
        assert content.count(before) == 1, before
        (tree / name).write_text(content.replace(before, text + before))
    build(tree, kernels)
    host = compiled(tree, tmp_path / "host")
    alone, refused = outputs(host, "alone")
    together, _ = outputs(host, "together")
    assert refused == "context_begin: top_a is 1.5, must be 0 to 1"
    rows = [alone[row * TOKENS :][:TOKENS] for row in range(len(TOP_A))]
    held = [keeps_to(row, top_a or LEAST) for row, top_a in zip(rows, TOP_A, strict=True)]
    assert held == [top_a > 0 for top_a in TOP_A]  # without it other tokens come, too
    turns = [together[row :: len(TOP_A)] for row in range(len(TOP_A))]
    assert [[token for token, *_ in row] for row in turns] == [
        [token for token, *_ in row] for row in rows
    ]


def build(tree: Path, kernels: str) -> None:
    """Generate and compile what has changed; the other kernels were compiled before."""
    for objects in (ROOT / "build").glob("temp*"):
        shutil.copytree(objects, tree / "build" / objects.name)
    for command in (["tools/bindings/generate.py"], ["setup.py", "-q", "build_ext", "--inplace"]):
        environment = {**os.environ, "COWMLX_KERNELS": kernels}
        done = run([sys.executable, *command], cwd=tree, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr


def compiled(tree: Path, program: Path) -> Path:
    library = next((tree / "cowmlx/lib").glob("libcowmlx.*1*"))
    source = program.with_suffix(".c")
    source.write_text(HOST)
    flags = ["-Wall", "-Wextra", "-Werror", f"-I{tree / 'include'}", f"-Wl,-rpath,{library.parent}"]
    done = run([require("cc"), *flags, source, library, "-o", program])
    assert done.returncode == 0, done.stderr
    return program


def outputs(host: Path, way: str) -> tuple[list[Line], str]:
    """The tokens of all rows, and the message about an option out of range."""
    done = run([host, CALF, way, *map(str, TOP_A)])
    assert (done.returncode, done.stderr) == (0, "")
    *lines, refused = done.stdout.splitlines()
    return [
        (int(token), float(own), float(best)) for token, own, best in map(str.split, lines)
    ], refused


def keeps_to(row: list[Line], top_a: float) -> bool:
    """Whether no token is less probable than top_a allows."""
    return all(own >= math.log(top_a) + 2 * best - 1e-4 for _, own, best in row)
