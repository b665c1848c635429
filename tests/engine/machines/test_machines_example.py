"""The example in C: a model on several machines answers, also after one of them was lost."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from support.compiler import compile_c
from support.hosts import linked
from support.paths import CALF, LIBRARY, ROOT

SOURCE = ROOT / "examples/c/machines.c"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The example, compiled."""
    return compile_c([SOURCE], tmp_path_factory.mktemp("example") / "machines", *linked(LIBRARY))


@pytest.fixture(scope="module")
def calf_worker(start_worker):
    """A worker that has calf."""
    return start_worker(models=CALF.parent)


def test_it_answers(program, calf_worker, secret):
    done = subprocess.run(
        [program, secret, CALF, calf_worker.address], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "3 + 4 = 7.\n"
    assert "shard 100 %" in done.stderr


def test_it_loads_again_where_a_machine_was_lost(program, calf_worker, secret):
    host = subprocess.Popen(
        [program, secret, CALF, calf_worker.address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert host.stderr is not None
    for line in host.stderr:
        if line.startswith("done"):
            for rank in calf_worker.ranks():
                os.kill(rank, signal.SIGKILL)
            break
    said, _ = host.communicate(timeout=120)
    assert host.returncode == 0
    assert said == "3 + 4 = 7.\n"


# The library as the example sees it where each answer loses a machine behind its first token.
LOSES = """
#include <cow_mlx.h>
#include <string.h>
static const char* message = ""; /* of the last call */
cow_mlx_status cow_mlx_runtime_start(const cow_mlx_runtime_params* params) {
  return params ? COW_MLX_EINVAL : COW_MLX_OK;
}
cow_mlx_status cow_mlx_runtime_stop(void) { return COW_MLX_OK; }
void cow_mlx_model_params_init(cow_mlx_model_params* params, size_t size) {
  memset(params, 0, size);
}
cow_mlx_status cow_mlx_model_load(const char* path, const cow_mlx_model_params* params,
                                  cow_mlx_model* out) {
  *out = path && params->worker_count == 1;
  return COW_MLX_OK;
}
cow_mlx_status cow_mlx_model_free(cow_mlx_model model) {
  message = "";
  return model ? COW_MLX_OK : COW_MLX_EHANDLE;
}
cow_mlx_status cow_mlx_model_chat_prompt(cow_mlx_model model, const char* messages, size_t size,
                                         const char* options, int32_t* tokens, size_t capacity,
                                         size_t* count) {
  tokens[0] = model && messages && size && !options && capacity ? 1 : 0;
  *count = 1;
  return COW_MLX_OK;
}
cow_mlx_status cow_mlx_context_create(cow_mlx_model model, const cow_mlx_context_params* params,
                                      cow_mlx_context* out) {
  *out = model && !params;
  return COW_MLX_OK;
}
cow_mlx_status cow_mlx_context_free(cow_mlx_context context) {
  message = "";
  return context ? COW_MLX_OK : COW_MLX_EHANDLE;
}
static int said;
cow_mlx_status cow_mlx_context_begin(cow_mlx_context context, const int32_t* tokens, size_t count,
                                     const cow_mlx_generation_params* params) {
  said = 0;
  return context && tokens && count && !params ? COW_MLX_OK : COW_MLX_EINVAL;
}
cow_mlx_status cow_mlx_context_next(cow_mlx_context context, char* text, size_t capacity,
                                    size_t* length, cow_mlx_piece* piece) {
  message = said ? "a machine is gone" : "";
  if (said++) return COW_MLX_ELOST;
  text[0] = context && capacity ? 'a' : 'b';
  *length = 1;
  piece->token = 2;
  return COW_MLX_OK;
}
const char* cow_mlx_status_name(cow_mlx_status status) {
  return status == COW_MLX_ELOST ? "ELOST" : "another";
}
const char* cow_mlx_error_message(void) { return message; }
"""


def test_it_fails_where_the_second_try_is_lost_too(tmp_path):
    (tmp_path / "loses.c").write_text(LOSES)
    program = compile_c([SOURCE, tmp_path / "loses.c"], tmp_path / "machines")
    done = subprocess.run(
        [program, "secret", "model", "127.0.0.1:1"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "aa")
    assert done.stderr.endswith("ELOST: a machine is gone\n")
