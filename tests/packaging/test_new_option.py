"""A new option takes three edits: its member in the header, its range and its effect.

Every binding has it by generation, with its default and its comment.
"""

from __future__ import annotations

import os
import sys

import pytest
from additions import built, compiled
from support.compiler import require, run
from support.paths import CALF

EDITS = [
    (
        "include/cow_mlx/generation.h",
        "} cow_mlx_generation_params;",
        """
  /** factor of the temperature, above 0 */
  double temperature_scale COW_MLX_DEFAULT(1);""",
    ),
    (
        "cowmlx/generation/params.py",
        '    "logprobs": (lambda',
        '    "temperature_scale": (lambda own: own > 0, "above 0"),\n',
    ),
    (
        "cowmlx/generation/params.py",
        "        self._check_breakers()\n",
        "        self.temperature *= self.temperature_scale",
    ),
]
IN_C = r"""
#include <cow_mlx.h>
#include <stdio.h>

int main(int argc, char** argv) {
  cow_mlx_model model;
  cow_mlx_context context;
  const int32_t prompt[] = {5, 6, 5, 7};
  cow_mlx_piece cold = {.struct_size = sizeof cold}, hot = cold;
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  if (argc != 2 || params.temperature_scale != 1) return 2;
  if (cow_mlx_runtime_start(NULL) || cow_mlx_model_load(argv[1], NULL, &model) ||
      cow_mlx_context_create(model, NULL, &context))
    return fprintf(stderr, "%s\n", cow_mlx_error_message()), 1;
  params.temperature_scale = -1;
  if (cow_mlx_context_begin(context, prompt, 4, &params) != COW_MLX_EINVAL) return 3;
  printf("%s\n", cow_mlx_error_message());
  for (int different = 0, seed = 0; !different; seed++) {
    char text[64];
    size_t length;
    if (seed == 64) return 4; /* it has no effect */
    params.seed = seed;
    params.temperature = 1;
    params.temperature_scale = 1e-6;
    if (cow_mlx_context_begin(context, prompt, 4, &params)) return 5;
    cow_mlx_context_next(context, text, sizeof text, &length, &cold);
    params.temperature_scale = 50;
    if (cow_mlx_context_begin(context, prompt, 4, &params)) return 6;
    cow_mlx_context_next(context, text, sizeof text, &length, &hot);
    different = cold.token != hot.token;
  }
  return cow_mlx_runtime_stop();
}
"""
IN_CPP = r"""
#include <cow_mlx.hpp>
#include <iostream>

int main(int, char** argv) {
  cowmlx::Runtime runtime;
  cowmlx::Model model(argv[1]);
  cowmlx::Context context(model);
  cowmlx::GenerationParams params;
  if (params.temperature_scale != 1) return 2;
  params.temperature_scale = 0;
  try {
    context.begin({5, 6}, params);
  } catch (const cowmlx::Error& error) {
    std::cout << error.what() << "\n";
  }
}
"""
IN_PYTHON = r"""
import ctypes, sys
from cowmlx.generated.defaults import GENERATION
from cowmlx.host.library import HostError, Library

print(GENERATION["temperature_scale"])
with Library(sys.argv[1]) as library:
    model = library.opened("model_load", sys.argv[2].encode(), None)
    context = library.opened("context_create", model, None)
    params = library.params("generation", temperature_scale=-2.0)
    try:
        library.call("context_begin", context, (ctypes.c_int32 * 1)(5), 1, params)
    except HostError as error:
        print(error.message)
"""
# What generated sources of the other bindings have.
GENERATED = {
    "go/params.go": "TemperatureScale float64",
    "java/src/generated/java/cowmlx/GenerationParams.java": "temperatureScale(double ",
    "node/lib/generated/types.js": "temperatureScale",
    "rust/cowmlx/src/params/generated.rs": "pub fn temperature_scale(mut self, ",
    "swift/Sources/CowMLX/Generated/Params.swift": "public var temperatureScale: Double",
}
REFUSED = "temperature_scale is {}, must be above 0"


@pytest.mark.long
def test_three_edits_make_an_option_of_every_binding(tree, tmp_path):
    require("cc")
    library = built(tree, EDITS)
    assert len(EDITS) <= 3
    for name, text in GENERATED.items():
        assert text in (tree / "bindings" / name).read_text(), name

    (tmp_path / "in_c.c").write_text(IN_C)
    done = run([compiled(tree, library, tmp_path / "in_c.c", "cc", "-std=c11"), CALF])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"context_begin: {REFUSED.format(-1)}\n"

    (tmp_path / "in_cpp.cpp").write_text(IN_CPP)
    done = run([compiled(tree, library, tmp_path / "in_cpp.cpp", "c++", "-std=c++17"), CALF])
    assert done.stdout == f"Context::begin: {REFUSED.format(0)}\n"

    (tmp_path / "host.py").write_text(IN_PYTHON)
    alone = {**os.environ, "PYTHONPATH": str(tree)}
    done = run([sys.executable, tmp_path / "host.py", library, CALF], env=alone)
    assert done.stderr == ""
    assert done.stdout == f"1.0\ncontext_begin: {REFUSED.format(-2)}\n"
