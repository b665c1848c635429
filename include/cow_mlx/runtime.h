/* Starting and stopping the runtime.
 * Part of cow_mlx.h; include that. */
#ifndef COW_MLX_RUNTIME_H
#define COW_MLX_RUNTIME_H

#include "base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------- Runtime */

/** Levels of log messages, from the rarest to the most frequent. */
enum {
  COW_MLX_LOG_OFF = 0,
  COW_MLX_LOG_WARNING = 1, /**< works, but not as expected */
  COW_MLX_LOG_INFO = 2     /**< starts, loads and choices */
};

/** Receives one message, on the thread of the call that caused it, as that call ends; of a call
 *  that returns at once, on the thread that polls or takes. It may call the library. user_data must
 *  live until every call made before the last stop has returned. */
typedef void (*cow_mlx_log_fn)(int32_t level, const char* message, void* user_data);

typedef struct cow_mlx_runtime_params {
  size_t struct_size;
  const char* python_home; /**< Python installation or virtual environment to boot, never "";
                                NULL: the library searches (docs/guides/python.md) */
  const char* device;      /**< "gpu" or "cpu"; NULL: the best available */
  uint64_t memory_limit;   /**< bytes for arrays, runs of programs and weights of models together.
                                A call that needs more is COW_MLX_ENOMEM; above it mlx waits and
                                frees its cache. 16777216 or more, or 0: mlx's default, which does
                                not bound weights (docs/guides/memory.md) */
  uint64_t cache_limit; /**< bytes of freed buffers that mlx may keep. 0: on a CPU what mlx keeps by
                             itself, or from the first program or training on a 16th of the free
                             memory, 256 MiB at most; on a GPU, or any device of a Mac, a 16th of
                             the GPU's recommended working set, between 256 MiB and 2 GiB, freed
                             after 2 s without work */
  cow_mlx_log_fn log;   /**< NULL: no log */
  void* log_user_data;
  /** messages up to this level are delivered */
  int32_t log_level COW_MLX_DEFAULT(COW_MLX_LOG_INFO);
  int64_t threads; /**< threads that kernels use on a CPU, the calling one included;
                        0: as many as processors that the process may use */
  /** bytes of arrays that Apple's GPU may keep wired (never paged out) while there is work;
   *  2 s later none are. -1: the device's recommended working set, which is also the most;
   *  0: none. Other devices wire nothing */
  int64_t wired_limit COW_MLX_DEFAULT(-1);
  /** quality-of-service class of the dispatch thread and of threads that it starts, on macOS:
   *  "user-interactive", "user-initiated", "utility" or "background"; NULL: "user-initiated".
   *  Other systems have none */
  const char* quality_of_service;
  /** folder where processed prompts are kept for later processes, or NULL. It is made if it does
   *  not exist, for its user alone; several processes may share it. Prompts of 256 tokens or more
   *  of contexts with share_prefix are written in the background, the last ones by
   *  cow_mlx_runtime_stop(). The files contain the prompts (docs/guides/cache.md). Links and files
   *  that others may write are not read. Models on several machines do not use it */
  const char* prompt_cache_dir;
  /** bytes that the files in prompt_cache_dir may take, at least 1; the least recently used ones
   *  are removed. Default: 4 GiB */
  uint64_t prompt_cache_bytes COW_MLX_DEFAULT(4294967296);
  /** bytes that the weights of all models may take together; 0: no bound. Before weights are read
   *  that would pass it, the least recently used models are put to sleep, as by
   *  cow_mlx_model_sleep(). Those in use stay awake, so the bound may be passed */
  uint64_t model_memory;
  /** folder where the library may keep what it parsed of large tokenizers, at most 16 of some MB,
   *  so that models load faster next time; made if it is not there. Entries are bound to the
   *  contents of their files and checked; links and files that others may write are not read. NULL:
   *  nothing is kept; never "" */
  const char* cache_dir;
} cow_mlx_runtime_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_runtime_params_init(cow_mlx_runtime_params* COW_MLX_NULLABLE params,
                                             size_t size);

/**
 * Start the runtime: boot the interpreter, or join the one that the process
 * already runs, and start the dispatch thread.
 *
 * Starts are counted: a second start returns at once and needs a second stop.
 *
 * @param params  NULL for the defaults, which also means "as it runs" when the
 *                runtime is running already
 * @retval COW_MLX_EINVAL        also: memory_limit is above 0 and below 16777216; wired_limit is
 *                               above the device's recommended working set
 * @retval COW_MLX_ESTATE        the runtime runs with other parameters
 * @retval COW_MLX_ENOENT        no usable Python was found (the message names the library's folder
 *                               and what to set), or the Python lacks mlx
 * @retval COW_MLX_EUNSUPPORTED  this machine has no such device, the process runs a Python of
 *                               another version, its Python has ended since an earlier start, the
 *                               caller is a sub-interpreter, or mlx cannot be loaded
 * @retval COW_MLX_EIO           the process, or the system, has too many open files;
 *                               prompt_cache_dir cannot be made or written to
 */
COW_MLX_API cow_mlx_status
cow_mlx_runtime_start(const cow_mlx_runtime_params* COW_MLX_NULLABLE params);

/**
 * Undo one start. The last stop cancels running calls (blocked calls return COW_MLX_ECANCELED),
 * frees every handle and parks the interpreter; a later start resumes it.
 *
 * A process may end without a stop.
 *
 * @retval COW_MLX_ESTATE  the runtime is not running
 */
COW_MLX_API cow_mlx_status cow_mlx_runtime_stop(void);

/**
 * Describe the runtime as a JSON object:
 *
 * - versions: "library", "abi", "python", "mlx", "mlx_lm".
 * - "interpreter": "booted" or "joined".
 * - paths: "python_home" (null if joined), "libpython", "mlx_path", "mlx_lm_path".
 * - "device".
 * - "blas": the library for matrix products on a CPU, "openblas", "reference" or "accelerate";
 *   "blas_problem": why it is not the best one, or null.
 * - "kernels": the library's kernels for CPUs. "instruction_set" and "threads" are null without
 *   kernels; "problem" says why there are none, or is null.
 * - "cache_dir": null, or an object: "path", and "problem", "" or why an entry was not written.
 * - "architectures": list of model_type.
 * - "memory": bytes "active", "cache", "peak", "limit", "cache_limit" (null if mlx's default) and
 *   "wired_limit", 0 while nothing is wired.
 * - "prompt_cache": null without prompt_cache_dir; else its "folder", "limit", "files" and "bytes";
 *   how many prompts this runtime has "written" and "found"; "problem": why the last one was not
 *   written, or null.
 * - "handles": open handles by kind, "model", "context", "adapter", "checkpoint", "media", "array",
 *   "program", "training".
 *
 * If the runtime does not start, `python -m cowmlx doctor` reports the reason.
 */
COW_MLX_API cow_mlx_status cow_mlx_runtime_info(char* buffer, size_t capacity, size_t* length);

/** Return memory to the system: buffers that mlx and arrays keep for reuse, on all machines of a
 *  model, and prompts that models keep for new contexts. */
COW_MLX_API cow_mlx_status cow_mlx_memory_trim(void);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_RUNTIME_H */
