/* Training: minimizing the loss of a program or of a language model, step by step.
 * Part of cow_mlx.h; include that. */
#ifndef COW_MLX_TRAINING_H
#define COW_MLX_TRAINING_H

#include "model.h"
#include "program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------- Training */
/* Contexts generate meanwhile, and micro-batches are computed beside them. Training gets the
 * remaining time, at least a tenth. One call at a time runs on a training; others are refused with
 * COW_MLX_ESTATE. */

/** Kinds of events. */
enum {
  COW_MLX_TRAINING_STEP = 1,       /**< steps were made */
  COW_MLX_TRAINING_EVALUATION = 2, /**< the validation data were evaluated */
  COW_MLX_TRAINING_CHECKPOINT = 3, /**< the training was saved */
  COW_MLX_TRAINING_END = 4         /**< the fit has ended; finish says why */
};

/** The reason why a fit has ended. */
enum {
  COW_MLX_FIT_NONE = 0,   /**< it has not */
  COW_MLX_FIT_STEPS = 1,  /**< fit_params.steps are done */
  COW_MLX_FIT_EPOCHS = 2, /**< fit_params.epochs are over */
  COW_MLX_FIT_DATA = 3,   /**< next_batch has no more data */
  COW_MLX_FIT_EARLY = 4   /**< patience evaluations without improvement */
};

/** An event of a training. Numbers that an event does not have are 0, or NaN if they are not whole
 *  numbers. The host sets struct_size if it passes the struct. */
typedef struct cow_mlx_training_event {
  size_t struct_size;
  int32_t kind COW_MLX_ONE_OF(TRAINING); /**< one of COW_MLX_TRAINING_ */
  int32_t finish COW_MLX_ONE_OF(FIT);    /**< one of COW_MLX_FIT_ */
  size_t step;                           /**< steps that the training has done */
  size_t steps;                          /**< step at which the fit will end, if known */
  size_t epoch;                          /**< of the data, from 0 */
  size_t targets;                        /**< predicted since the last event of the same kind */
  size_t skipped;                        /**< steps skipped so far, see skip_non_finite */
  double loss;              /**< mean over these targets, of each batch before its step */
  double validation_loss;   /**< mean over the targets of the validation data */
  double accuracy;          /**< share of correct predictions, if the program reports them */
  double perplexity;        /**< the exponential of the validation loss; for a step, of its loss */
  double learning_rate;     /**< of the last step */
  double gradient_norm;     /**< of the last step, before clipping */
  double tokens_per_second; /**< targets per second, since the last event of the same kind */
  double elapsed;           /**< seconds since the call began */
  double remaining;         /**< estimated seconds until all steps are done */
  uint64_t peak_memory;     /**< bytes, of the process's mlx arrays since its start */
} cow_mlx_training_event;

/** Progress of a training. @return false to cancel the call */
typedef bool (*cow_mlx_training_fn)(const cow_mlx_training_event* event, void* user_data);

/** Supplies the batch of a step, from 0, while the one before is computed. The host fills count
 *  handles of arrays, one for each input of the program, whose first axis is the rows; for a
 *  language model two, see fit_params. Ownership passes to the training, which frees them. The last
 *  batch may be freed unused, if the fit ends before its step: the next fit asks for it again.
 *  @return false if there are no more; then no handle is read */
typedef bool (*cow_mlx_batch_fn)(size_t step, cow_mlx_array* inputs, size_t count, void* user_data);

/**
 * optimizer is a JSON object, {"name": "adam", "learning_rate": 0.001} by default, with a "name" of
 * sgd, rmsprop, adagrad, adadelta, adam, adamw, adamax, lion, adafactor and muon, and mlx's
 * arguments under mlx's names and with its defaults: so Adam's "bias_correction" is off. Or it is a
 * list of such objects. Each has "parameters", a list of patterns of names ("*" is any characters,
 * "?" is one); the first object with a matching pattern gets the parameter.
 *
 * "learning_rate" is a number, or an object with a "name" of mlx's schedules and their arguments:
 * linear_schedule ("init", "end", "steps"), cosine_decay ("init", "decay_steps", "end"), step_decay
 * ("init", "decay_rate", "step_size"), exponential_decay ("init", "decay_rate"), join_schedules
 * ("schedules", "boundaries"); or "constant" ("value"), or "warmup" ("steps", "init", "then"),
 * which grows linearly to the start of the schedule "then".
 *
 * fine_tune is only for cow_mlx_training_create_for_model(): a JSON object with "type" ("lora",
 * "dora" or "full"; default "lora"), "rank" (default 8), "scale" (20), "dropout" (0), "num_layers"
 * (counted from the last; default -1: all), "keys" (names of the layers that get an adapter;
 * default null: all that can) and "grad_checkpoint" (default false; true computes activations
 * again, which takes less memory and more time).
 */
typedef struct cow_mlx_training_params {
  size_t struct_size;
  const char* optimizer;    /**< JSON; NULL (default): Adam */
  const char* const* train; /**< patterns of names of parameters to train; the others stay */
  size_t train_count;       /**< 0 (default): all float parameters */
  const char* const* initial_names;    /**< parameters that begin as arrays, not by their "init" */
  const cow_mlx_array* initial_arrays; /**< one per name; may be freed afterwards */
  size_t initial_count;                /**< 0 (default): none */
  uint64_t seed;         /**< of "init", of the order of data and of an input "key"; default 0 */
  float clip_value;      /**< limit for the gradients' elements, ±; 0 (default): off */
  float clip_norm;       /**< limit for their norm, over all, applied afterwards as in mlx's
                              clip_grad_norm; 0 (default): off */
  size_t micro_batch;    /**< rows computed at once; their gradients are summed up, and divided by
                              all targets of the batch. 0 (default): all rows */
  bool skip_non_finite;  /**< skip a step whose loss or gradient is not finite; the means of an
                              event leave such steps out. Default false: it is an error, and
                              nothing is changed */
  const char* fine_tune; /**< JSON: the weights of a model to train; NULL (default): LoRA */
} cow_mlx_training_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_training_params_init(cow_mlx_training_params* COW_MLX_NULLABLE params,
                                              size_t size);

/**
 * A language model is trained on lines of JSON objects: with "messages", and "tools" if any, which
 * the model's chat template renders; with "prompt" and "completion"; or with "text". Malformed
 * lines are refused, with the numbers of the first five. batch_size 0 is 4 rows; shuffle keeps rows
 * of similar length together.
 *
 * Or it is trained on two arrays, as a program is, given whole or by next_batch: tokens, int32
 * (rows, columns), with any token after the end of a row; and targets, bool of the same shape, true
 * where the token is a training target.
 *
 * lines_options is a JSON object with "max_seq_length" (the most tokens of a row; default 2048, or
 * the model's context length if that is less), "long_rows" ("cut" or "refuse"; default "cut"),
 * "mask_prompt" (default false; true learns the completion, or a chat's last message, alone) and
 * "packing" (default false; true puts short rows behind each other).
 */
typedef struct cow_mlx_fit_params {
  size_t struct_size;
  size_t steps;      /**< of the training, where the fit ends, those of earlier fits included;
                          0 (default): no limit */
  size_t epochs;     /**< of the data; 0 (default): no limit */
  size_t batch_size; /**< rows; 0 (default): all, or 4 of lines. The last batch of an epoch may be
                        smaller */
  bool shuffle COW_MLX_DEFAULT(true); /**< the rows have another order in each epoch, of the seed */
  size_t event_every COW_MLX_DEFAULT(1); /**< steps between two events of steps, at least 1 */
  const cow_mlx_array* inputs;     /**< the data: one for each input of the program, in their order,
                                        whose first axis is that of the rows */
  size_t inputs_count;             /**< 0 (default): next_batch brings them */
  cow_mlx_batch_fn next_batch;     /**< or NULL (default): inputs are given */
  void* user_data;                 /**< of next_batch */
  const cow_mlx_array* validation; /**< data like inputs, to evaluate on */
  size_t validation_count;         /**< 0 (default): none */
  size_t evaluate_every;  /**< steps between two evaluations; 0 (default): after each epoch */
  size_t patience;        /**< evaluations in a row without a better one after which the fit ends,
                               with the parameters of the best one in fits with patience on these
                               validation data. A fit that ends otherwise has the parameters of
                               its last step. 0 (default): none */
  double min_delta;       /**< how much lower a loss has to be to be better; default 0 */
  const char* folder;     /**< where save_every saves; or NULL (default) */
  size_t save_every;      /**< steps after which the training is saved; 0 (default): never */
  const char* lines;      /**< of a language model: examples, a JSON object in each line; or
                               NULL (default) */
  const char* lines_file; /**< or a file of them; or NULL (default) */
  const char* validation_lines; /**< likewise to evaluate on; or NULL (default) */
  const char* validation_file;  /**< or a file of them; or NULL (default) */
  const char* lines_options;    /**< JSON: how lines become rows; or NULL (default) */
} cow_mlx_fit_params;

/** Fill *params, which is sizeof *params large, with the defaults. NULL is ignored. */
COW_MLX_API void cow_mlx_fit_params_init(cow_mlx_fit_params* COW_MLX_NULLABLE params, size_t size);

/**
 * Create a training of a program. Its parameters begin by their "init" or as arrays.
 *
 * It minimizes the output "loss", a float of shape (): the mean over the targets of a batch. The
 * targets are the batch's rows, or the number in an output "targets". An output "correct" is the
 * number of correct predictions. An input "key", uint32 (2,), is not data: it gets random numbers
 * that depend on the seed, the step and the micro-batch.
 *
 * @param program  may be freed then
 * @param out      receives the handle
 * @retval COW_MLX_EINVAL        also: an unusable output "loss", a parameter that it does not
 *                               depend on, or that has neither "init" nor array
 * @retval COW_MLX_EHANDLE       also: of an array
 * @retval COW_MLX_EUNSUPPORTED  an operation that cannot be differentiated, by name
 */
COW_MLX_API cow_mlx_status cow_mlx_training_create(
    cow_mlx_program program, const cow_mlx_training_params* COW_MLX_NULLABLE params,
    cow_mlx_training* out);

/**
 * Create a training of a loaded language model: LoRA, DoRA or all weights, see params.fine_tune.
 *
 * It trains a copy that shares all other weights with the model; contexts continue with the
 * unchanged model. Quantized weights can have LoRA.
 *
 * @param model  may be freed then
 * @param out    receives the handle
 * @retval COW_MLX_EINVAL        also: an option of programs, such as train and initial_names
 * @retval COW_MLX_EUNSUPPORTED  this model, or some of its layers, cannot be trained this way
 * @retval COW_MLX_ECANCELED     the model was freed meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_training_create_for_model(
    cow_mlx_model model, const cow_mlx_training_params* COW_MLX_NULLABLE params,
    cow_mlx_training* out);

/**
 * Make a step on a batch.
 *
 * @param inputs  count values: the program's inputs without its parameters, in their order, with
 *                rows as the first axis; for a language model its tokens and targets
 * @param event   receives the event of the step; may be NULL
 * @retval COW_MLX_EINVAL     also: other dtypes or shapes, no target, an index out of range, a loss
 *                            that is not finite: nothing is changed
 * @retval COW_MLX_ESTATE     another call is running on the training
 * @retval COW_MLX_ECANCELED  cow_mlx_training_cancel(): nothing is changed
 */
COW_MLX_API cow_mlx_status cow_mlx_training_step(cow_mlx_training training,
                                                 const cow_mlx_value* inputs, size_t count,
                                                 cow_mlx_training_event* COW_MLX_NULLABLE event);

/**
 * Train until an end that params set: by steps, epochs or next_batch.
 *
 * It continues at the training's place in the data. A loaded training with the same data and params
 * ends with the same bits as an uninterrupted one with as many threads. Other data, and those of
 * next_batch, start from the beginning.
 *
 * @param params     the data and the end; the library copies it
 * @param on_event   receives steps, evaluations and checkpoints, and last the end; may be NULL
 * @param user_data  of on_event
 * @retval COW_MLX_EINVAL     also: no data, or none with a target; a loss that is not finite
 * @retval COW_MLX_ESTATE     another call is running on the training
 * @retval COW_MLX_ECANCELED  on_event returned false, or cow_mlx_training_cancel(): the training
 *                            keeps the state after its last step
 * @retval COW_MLX_EIO        a checkpoint cannot be written; likewise
 */
COW_MLX_API cow_mlx_status cow_mlx_training_fit(cow_mlx_training training,
                                                const cow_mlx_fit_params* params,
                                                cow_mlx_training_fn COW_MLX_NULLABLE on_event,
                                                void* user_data);

/**
 * Measure loss, accuracy and perplexity on data; nothing is changed.
 *
 * @param params  inputs, next_batch or lines, and batch_size; no other may be set
 * @param event   receives the results
 * @retval COW_MLX_EINVAL     also: no data, or none with a target
 * @retval COW_MLX_ESTATE     another call is running on the training
 * @retval COW_MLX_ECANCELED  cow_mlx_training_cancel()
 */
COW_MLX_API cow_mlx_status cow_mlx_training_evaluate(cow_mlx_training training,
                                                     const cow_mlx_fit_params* params,
                                                     cow_mlx_training_event* event);

/**
 * Get the current value of a parameter, also while a fit runs.
 *
 * @param name  the parameter's
 * @param out   receives the handle of an array that no later step changes
 */
COW_MLX_API cow_mlx_status cow_mlx_training_parameter(cow_mlx_training training, const char* name,
                                                      cow_mlx_array* out);

/**
 * Describe a training as a JSON object: "step", "skipped", "epoch", "learning_rate", "optimizer"
 * (all its options), "parameters" (names, dtypes, shapes and whether each is trained), "inputs",
 * "best" ("step" and "loss"), "seed", "running", "data" (what the last fit made of lines).
 *
 * @retval COW_MLX_EBUFFER  capacity is too small; *length is the size needed
 */
COW_MLX_API cow_mlx_status cow_mlx_training_info(cow_mlx_training training, char* buffer,
                                                 size_t capacity, size_t* length);

/**
 * Save the state after the last step, completely or not at all, also while a fit runs: parameters,
 * the optimizer's state, the step, the place in the data and, of fits with patience, the best
 * parameters so far.
 *
 * @param folder  receives the file training.safetensors; created if it does not exist, in an
 *                existing folder
 * @retval COW_MLX_ENOENT  its parent folder is missing
 * @retval COW_MLX_EIO     it cannot be written; old files stay
 */
COW_MLX_API cow_mlx_status cow_mlx_training_save(cow_mlx_training training, const char* folder);

/**
 * Load a saved training into one with the same program and params.
 *
 * @param folder  that was saved to
 * @retval COW_MLX_ENOENT   there is nothing saved
 * @retval COW_MLX_EFORMAT  it is damaged, or of another program, parameters or options; nothing is
 *                          changed
 * @retval COW_MLX_ESTATE   another call is running on the training
 */
COW_MLX_API cow_mlx_status cow_mlx_training_load(cow_mlx_training training, const char* folder);

/**
 * Get the current weights of a language model's training as an adapter, also while a fit runs.
 * Later steps do not change it: give contexts a new one with cow_mlx_context_set_adapter().
 *
 * @param out  receives the handle
 * @retval COW_MLX_EUNSUPPORTED  the training is of a program
 * @retval COW_MLX_ECANCELED     the training was freed meanwhile
 */
COW_MLX_API cow_mlx_status cow_mlx_training_adapter(cow_mlx_training training,
                                                    cow_mlx_adapter* out);

/**
 * Write the trained weights of a language model in mlx-lm's format, completely or not at all: an
 * adapter, or a model if all weights were trained.
 *
 * @param folder        created; an earlier export there is replaced, if it has no other files
 * @param options_json  an object with "fuse" (true: a model that has the adapter in its weights)
 *                      and "dequantize" (true: weights of 16 or 32 bits in place of quantized ones
 *                      that had an adapter); may be NULL
 * @retval COW_MLX_EUNSUPPORTED  the training is of a program, or fuse is true and a layer has
 *                               weights of nvfp4 with a global scale
 * @retval COW_MLX_ENOENT        the folder that it is in is missing
 * @retval COW_MLX_EIO           it cannot be written, it is the folder of the model, or something
 *                               else is there, which stays
 */
COW_MLX_API cow_mlx_status cow_mlx_training_export(cow_mlx_training training, const char* folder,
                                                   const char* COW_MLX_NULLABLE options_json);

/**
 * Cancel the running call of a training, within one micro-batch. It fails with COW_MLX_ECANCELED,
 * and the training keeps the state after its last step. Never blocks.
 *
 * Async-signal-safe, as cow_mlx_context_cancel().
 */
COW_MLX_API cow_mlx_status cow_mlx_training_cancel(cow_mlx_training training);

/** Free a training. A call that runs on it ends with COW_MLX_ECANCELED. */
COW_MLX_API cow_mlx_status cow_mlx_training_free(cow_mlx_training training);

#ifdef __cplusplus
}
#endif

#endif /* COW_MLX_TRAINING_H */
