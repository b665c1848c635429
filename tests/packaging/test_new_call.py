"""A new call is an entry in the header and a method of the engine; all between is generated."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from support.compiler import require, run
from support.paths import CALF

HEADING = "/* -------------------------------------------------------------- Adapters */"
ENTRY = """
/**
 * How often a context holds some tokens, and what was asked.
 *
 * @param note    may be NULL if length is 0
 * @param found   receives how often
 * @param told    receives what was asked, as a JSON object
 * @param needed  receives its size in bytes
 * @retval COW_MLX_EBUFFER  capacity is too small; *needed is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_context_occurrences(cow_mlx_context context,
                                                       const int32_t* wanted, size_t count,
                                                       const char* note, size_t length,
                                                       size_t* found, char* told,
                                                       size_t capacity, size_t* needed);
"""
METHOD = '''
    def context_occurrences(
        self, handle: int, wanted: list[int], note: str
    ) -> tuple[int, dict[str, Any]]:
        """Return how often a context holds some tokens, and what was asked."""
        held = self.get(handle).tokens()
        return sum(held.count(token) for token in wanted), {"wanted": wanted, "note": note}
'''
HOST = r"""
#include <cow_mlx.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  cow_mlx_model model;
  cow_mlx_context context;
  const int32_t prompt[] = {5, 6, 5, 7}, wanted[] = {5, 7};
  char told[100];
  size_t found = 77, length = 0;
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = 0;
  if (argc != 2 || cow_mlx_runtime_start(NULL) || cow_mlx_model_load(argv[1], NULL, &model) ||
      cow_mlx_context_create(model, NULL, &context) ||
      cow_mlx_context_begin(context, prompt, 4, &params))
    return fprintf(stderr, "%s\n", cow_mlx_error_message()), 1;
  if (cow_mlx_context_occurrences(context, wanted, 2, "h\xc3\xb6", COW_MLX_NUL, &found, told, 3,
                                  &length) != COW_MLX_EBUFFER || found != 77)
    return 2;
  if (cow_mlx_context_occurrences(context, NULL, 2, "x", 1, &found, told, 3, &length) !=
      COW_MLX_EINVAL)
    return 3;
  printf("%s\n", cow_mlx_error_message());
  if (cow_mlx_context_occurrences(context, wanted, 2, "h\xc3\xb6", COW_MLX_NUL, &found, told, 100,
                                  &length))
    return 4;
  printf("%zu %s\n", found, told);
  return cow_mlx_context_occurrences(context + 1, wanted, 2, "x", 1, &found, NULL, 0, &length) ==
                 COW_MLX_EHANDLE ? cow_mlx_runtime_stop() : 5;
}
"""


def edited(path: Path, before: str, text: str) -> None:
    content = path.read_text()
    assert content.count(before) == 1
    path.write_text(content.replace(before, text + "\n" + before))


def test_an_entry_and_a_method_make_a_call(tree, tmp_path):
    require("cc")
    edited(
        next(path for path in (tree / "include").rglob("*.h") if HEADING in path.read_text()),
        HEADING,
        ENTRY,
    )
    edited(tree / "cowmlx/services/contexts.py", "    def context_tokens(", METHOD)
    for command in (
        [sys.executable, "tools/bindings/generate.py"],
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
    ):
        # Kernels take most of a build, and no call goes through them.
        done = run(command, cwd=tree, env={**os.environ, "COWMLX_KERNELS": "off"})
        assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "host.c").write_text(HOST)
    library = next((tree / "cowmlx/lib").glob("libcowmlx.*1*"))
    rpath = f"-Wl,-rpath,{library.parent}"
    done = run(
        [
            "cc",
            "-Wall",
            "-Wextra",
            "-Werror",
            f"-I{tree / 'include'}",
            tmp_path / "host.c",
            library,
            rpath,
            "-o",
            tmp_path / "host",
        ]
    )
    assert done.returncode == 0, done.stderr
    done = run([tmp_path / "host", CALF])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "context_occurrences: wanted is NULL, but count is not 0",
        '3 {"wanted": [5, 7], "note": "hö"}',
    ]
