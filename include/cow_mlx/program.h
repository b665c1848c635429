/* Programs: computations on arrays, checked once and run many times.
 * Part of cow_mlx.h; include that. */
#ifndef COW_MLX_PROGRAM_H
#define COW_MLX_PROGRAM_H

#include "array.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------- Programs */
/* A program is a graph of operations as JSON. A run of it takes one round trip, however many
 * operations it has. Contexts generate meanwhile, for at least half of the time. Any number of
 * threads may run one program. */

/** An array on the engine, or the host's memory; both empty: nothing yet. */
typedef struct cow_mlx_value {
  cow_mlx_array array;        /**< or 0; as an output 0, which receives a handle if host is NULL */
  const cow_mlx_tensor* host; /**< or NULL; as an output filled, of the result's dtype and shape */
} cow_mlx_value;

typedef struct cow_mlx_program_params {
  size_t struct_size;
  const char* fixed; /**< of ONNX and .mlxfn files: a JSON object with values of inputs and sizes
                          of named dimensions that do not change from run to run, such as
                          {"batch": 1, "shape": [2, 3]}; NULL (default): none */
} cow_mlx_program_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_program_params_init(cow_mlx_program_params* COW_MLX_NULLABLE params,
                                             size_t size);

typedef struct cow_mlx_run_params {
  size_t struct_size;
  bool submit;           /**< return at once; every output is a handle. Default false */
  bool check_finite;     /**< a NaN or infinity made from finite numbers is an error, which names
                              the node; default false */
  const int32_t* donate; /**< indices of inputs to give up: their handles are freed when the run
                              begins, even if it fails later, and it reuses their memory */
  size_t donate_count;
} cow_mlx_run_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_run_params_init(cow_mlx_run_params* COW_MLX_NULLABLE params, size_t size);

/**
 * Create a program from JSON, and report all its faults.
 *
 * @param json  an object with "inputs", "parameters", "constants", "functions", "nodes", "outputs":
 *              at most 16 MiB, 50,000 nodes, 10,000 inputs, parameters and constants, and 1,000
 *              functions; a name has at most 256 characters, a constant 262,144 elements
 * @param out   receives the handle
 * @retval COW_MLX_EINVAL        it is not a valid program; the message has up to 8 problems
 * @retval COW_MLX_EUNSUPPORTED  it needs a dtype that the device lacks: float64 on a GPU
 */
COW_MLX_API cow_mlx_status
cow_mlx_program_create(const char* json, size_t length,
                       const cow_mlx_program_params* COW_MLX_NULLABLE params, cow_mlx_program* out);

/**
 * Load a program from a file.
 *
 * - "name.json" is a program as cow_mlx_program_create() takes it. "name.safetensors" beside it, if
 *   there is one, has values of its parameters.
 * - "name.onnx" is a network. Its initializers become parameters with values. Operators, types and
 *   shapes that no program can have are COW_MLX_EUNSUPPORTED, whose details name the operator and
 *   the node. What shapes depend on must be known: see params.fixed. External data must be in the
 *   folder of the file. Needs the Python packages onnx and numpy.
 * - "name.mlxfn" is a function that mx.export_function() of MLX has written, for the shapes that it
 *   was written with. Its inputs are called "input_0", "input_1", … or by their keywords, its
 *   results "output", or "output_0", "output_1", … Arrays that it captures become parameters with
 *   values. A primitive without an operation is COW_MLX_EUNSUPPORTED, whose details name it. Where
 *   a file has several functions, "function" in params.fixed is the number of one, from 0. Needs
 *   the Python package numpy.
 *
 * A run may leave out all parameters that have values. A training begins with them. A derived
 * program keeps them, except those that it binds or vectorizes.
 *
 * @param path  UTF-8; its ending decides
 * @param out   receives the handle
 * @retval COW_MLX_EINVAL        also: params.fixed does not fit the file
 * @retval COW_MLX_ENOENT        there is no such file, or Python lacks a package (reason
 *                               package_not_found)
 * @retval COW_MLX_EFORMAT       the file is damaged, or external data is not in its folder
 * @retval COW_MLX_EUNSUPPORTED  it needs what programs do not have
 * @since 1.0
 */
COW_MLX_API cow_mlx_status cow_mlx_program_load(
    const char* path, const cow_mlx_program_params* COW_MLX_NULLABLE params, cow_mlx_program* out);

/**
 * Derive a program from another one: its gradient, a version for many rows at a time, or one with
 * bound inputs. A derived program can be derived again, and does not depend on the original.
 *
 * The JSON object is one of {"gradient": {"of": output, "with_respect_to": [inputs], "value":
 * true}}, whose outputs are the value, if requested, and a gradient for each input; {"vectorize":
 * {input: axis}, "dimension": name or number}, whose outputs have an additional first axis (with 0
 * rows they are empty, whatever the program does for a row); {"bind": {input: array}}, with handles
 * of arrays, which may be freed afterwards.
 *
 * The output of a gradient is a float of shape (). With "along": name it may have any shape: the
 * program has a new input of that name and shape, before its parameters, and the gradients are
 * those of the sum of output times input (a vector-Jacobian product). The gradient of a gradient
 * along an input is a Hessian-vector product.
 *
 * @param spec_json  the object
 * @param out        receives the handle
 * @retval COW_MLX_EINVAL        also: an input that is not a float, or that the output does not
 *                               depend on
 * @retval COW_MLX_EHANDLE       also: "bind" names an array that is not open
 * @retval COW_MLX_ESTATE        also: "bind" names an array that a submitted run has not computed
 *                               yet
 * @retval COW_MLX_EUNSUPPORTED  an operation that cannot be differentiated or vectorized, by name
 */
COW_MLX_API cow_mlx_status cow_mlx_program_derive(cow_mlx_program program, const char* spec_json,
                                                  size_t length, cow_mlx_program* out);

/**
 * Run a program: upload, compute, and read back.
 *
 * Numbers, dtypes, shapes and handles are checked before anything is computed. Inputs may be arrays
 * that submitted runs have not computed yet: this run waits for them, and fails if they fail.
 *
 * With params.submit the call returns once the run is accepted. Its outputs can be inputs of other
 * runs at once. cow_mlx_array_wait() returns its status.
 *
 * @param inputs   count values: the program's inputs, then its parameters, in their order;
 *                 parameters with values of a file may all be left out
 * @param outputs  output_count values, as many as the program has; changed only on COW_MLX_OK
 * @retval COW_MLX_EINVAL     also: other dtypes, shapes that do not fit each other, an index out of
 *                            range, a number that is not finite where that is checked, an endless
 *                            loop
 * @retval COW_MLX_ENOMEM     it needs more memory than runtime_params.memory_limit leaves: for a
 *                            gradient, all its intermediate results; for a loop, one round
 * @retval COW_MLX_ECANCELED  cow_mlx_program_cancel(), or the runtime was stopped meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_program_run(cow_mlx_program program, const cow_mlx_value* inputs,
                                               size_t count, cow_mlx_value* outputs,
                                               size_t output_count,
                                               const cow_mlx_run_params* COW_MLX_NULLABLE params);

/**
 * Cancel the running and waiting runs of a program, submitted ones too, at the next round of a loop
 * or part of a graph. They fail with COW_MLX_ECANCELED. Never blocks.
 *
 * Async-signal-safe, as cow_mlx_context_cancel().
 */
COW_MLX_API cow_mlx_status cow_mlx_program_cancel(cow_mlx_program program);

/**
 * Describe a program as a JSON object: "inputs", "parameters", "outputs", "nodes", "functions" with
 * dtypes and shapes, "dimensions", "bound_dimensions" (the values of those that bound arrays have),
 * "derived", "traces" (for how many tuples of dimensions runs are prepared), "longest_turn" (the
 * longest time in seconds that others waited for a run) and, for given dimensions, "run" with bytes
 * and multiplications.
 * A parameter also has its "init", and "has_value": whether its values came with a file.
 *
 * @param dimensions  a JSON object with the value of each dimension; may be NULL
 * @retval COW_MLX_EBUFFER  capacity is too small; *length is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_program_info(cow_mlx_program program,
                                                const char* COW_MLX_NULLABLE dimensions,
                                                char* buffer, size_t capacity, size_t* length);

/** Free a program. Its runs continue. */
COW_MLX_API cow_mlx_status cow_mlx_program_free(cow_mlx_program program);

/**
 * Describe all operations as a JSON array of objects: "name", "aliases", "family", "summary",
 * "formula", "inputs" (each with "differentiable"), "attributes", "outputs", "outputs_vary"
 * (whether their number depends on attributes and shapes), "vectorisable", "cpu_only",
 * "float64_error" (the bound of errors with float64, relative to the result's largest absolute
 * value; null without float64), "source" and examples. "call", "cond", "while" and "scan" have a
 * whole "program", whose functions the node's attributes name.
 *
 * @retval COW_MLX_EBUFFER  capacity is too small; *length is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_operations_info(char* buffer, size_t capacity, size_t* length);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_PROGRAM_H */
