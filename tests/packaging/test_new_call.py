"""A new call takes at most four edits: header, engine, and the binding for Node.js.

All between is generated, as are the methods of C++, Rust, Go and Java.
"""

from __future__ import annotations

import os
import sys

import pytest
from additions import built, compiled
from support.compiler import require, run
from support.paths import CALF

SECTION = "/* -------------------------------------------------------------- Adapters */"
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


# Where each text goes: before a line of a file.
EDITS = [
    ("include/cow_mlx/adapter.h", SECTION, ENTRY),
    ("cowmlx/services/contexts.py", "    def context_tokens(", METHOD),
    (
        "bindings/node/lib/context.js",
        "  #piece({ status",
        """
  /** How often the context holds some tokens, and what was asked. */
  occurrences(wanted, note) {
    const { found, told } = call("context_occurrences", { context: this, wanted, note });
    return { found, ...JSON.parse(told) };
  }
""",
    ),
    ("bindings/node/lib/context.js", '  setAdapter: "adapter",', '  occurrences: "wanted, note",'),
]
IN_CPP = r"""
#include <cow_mlx.hpp>
#include <iostream>

int main(int, char** argv) {
  cowmlx::Runtime runtime;
  cowmlx::Model model(argv[1]);
  cowmlx::Context context(model);
  cowmlx::GenerationParams params;
  params.max_tokens = 0;
  context.begin({5, 6, 5, 7}, params);
  auto [found, told] = context.occurrences({5, 7}, "x");
  std::cout << found << " " << told << "\n";
}
"""
IN_PYTHON = r"""
import ctypes, json, sys
from cowmlx.host.library import Library

with Library(sys.argv[1]) as library:
    model = library.opened("model_load", sys.argv[2].encode(), None)
    context = library.opened("context_create", model, None)
    tokens, found = (ctypes.c_int32 * 4)(5, 6, 5, 7), ctypes.c_size_t()
    library.call("context_begin", context, tokens, 4, library.params("generation", max_tokens=0))
    told = library.described("context_occurrences", context, tokens, 1, b"x", 1, found)
    print(found.value, json.dumps(told))
"""
TOLD = '{"wanted": [5, 7], "note": "%s"}'


@pytest.mark.long
def test_four_edits_make_a_call_of_every_binding(tree, tmp_path):
    require("cc")
    library = built(tree, EDITS)
    assert len(EDITS) <= 4
    (tmp_path / "host.c").write_text(HOST)
    host = compiled(tree, library, tmp_path / "host.c", "cc", "-std=c11")
    done = run([host, CALF])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "context_occurrences: wanted is NULL, but count is not 0",
        f"3 {TOLD % 'hö'}",
    ]

    (tmp_path / "in_cpp.cpp").write_text(IN_CPP)
    host = compiled(tree, library, tmp_path / "in_cpp.cpp", "c++", "-std=c++17")
    assert run([host, CALF]).stdout == f"3 {TOLD % 'x'}\n"

    (tmp_path / "host.py").write_text(IN_PYTHON)
    alone = {**os.environ, "PYTHONPATH": str(tree)}
    done = run([sys.executable, tmp_path / "host.py", library, CALF], env=alone)
    assert (done.stderr, done.stdout) == ("", '2 {"wanted": [5], "note": "x"}\n')

    # What tests demand of every call. Other tests compile methods of these languages.
    methods = {
        "rust/cowmlx/src/methods.rs": "pub fn occurrences(&self",
        "go/methods.go": "Occurrences(wanted []int32, note string) (uint64, string, error)",
        "java/src/generated/java/cowmlx/ContextMethods.java": (
            "public Occurrences occurrences(int[] wanted, String note)"
        ),
        "swift/Sources/CowMLX/Generated/Methods.swift": (
            "public func occurrences(wanted: [Token], note: String)"
        ),
        "elixir/lib/cow_mlx/tables/declarations.ex": (
            "{:context_occurrences, [context: :context, wanted: :tokens, note: :text]"
        ),
    }
    for file, method in methods.items():
        assert method in (tree / "bindings" / file).read_text()
    demands = ["tests/bindings/test_every_call_is_bound.py", "tests/abi/test_null.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *demands]
    done = run([*command, "-k", "bound or occurrences"], cwd=tree, env=alone)
    assert done.returncode == 0, done.stdout + done.stderr
