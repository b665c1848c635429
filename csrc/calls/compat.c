/* The names of CowMLX: each a line or two on cow_mlx.h. */
#include "cow_mlx_compat.h"
#include "base/error.h"

enum { FAILED = -1, DEFAULT_WINDOW = 20 };

/* A count as that API gives it: negative if the buffer was too small. */
static int32_t count_in(const char* operation, cow_mlx_status status, size_t count) {
  if (count > INT32_MAX) {
    cow_error(COW_MLX_EINVAL, operation, COW_REASON_out_of_range,
              DETAILS(TEXT_DETAIL("argument", "count"), SIZE_DETAIL("value", count)),
              "the result has %zu elements, more than an int32 can count", count);
    return FAILED;
  }
  if (status == COW_MLX_OK) return (int32_t)count;
  return status == COW_MLX_EBUFFER ? -(int32_t)count : FAILED;
}

#define count_of(status, count) count_in(__func__, status, count)

/* A size that must not be negative. */
#define REQUIRE_COUNT(count, failure)                       \
  if ((count) < 0) {                                        \
    cow_error_range(__func__, #count, count, "at least 0"); \
    return failure;                                         \
  }

const char* cow_mlx_get_error(void) {
  const char* message = cow_mlx_error_message();
  return message[0] ? message : NULL;
}

bool cow_mlx_init(void) { return cow_mlx_runtime_start(NULL) == COW_MLX_OK; }

void cow_mlx_shutdown(void) { cow_mlx_runtime_stop(); }

typedef struct load_progress {
  bool (*function)(float fraction, void* user_data);
  void* user_data;
} load_progress;

static bool forward_progress(float fraction, const char* stage, void* user_data) {
  (void)stage;
  load_progress* progress = user_data;
  return progress->function(fraction, progress->user_data);
}

int32_t cow_mlx_load_model(const char* path, bool (*progress)(float, void*), void* user_data) {
  load_progress forwarded = {progress, user_data};
  cow_mlx_model_params params;
  cow_mlx_model_params_init(&params, sizeof params);
  if (progress) params.progress = forward_progress;
  params.user_data = &forwarded;
  cow_mlx_model model = FAILED;
  cow_mlx_model_load(path, &params, &model);
  return model;
}

void cow_mlx_free_model(int32_t model) { cow_mlx_model_free(model); }

int64_t cow_mlx_model_get_id(int32_t model) { return cow_mlx_model_from_id(model); }

int32_t cow_mlx_model_from_id(int64_t id) {
  bool is_end;
  int32_t model = id >= 0 && id <= INT32_MAX ? (int32_t)id : FAILED;
  return cow_mlx_model_is_end(model, 0, &is_end) == COW_MLX_OK ? model : FAILED;
}

int32_t cow_mlx_create_context(int32_t model, int32_t max_tokens) {
  cow_mlx_context_params params;
  cow_mlx_context_params_init(&params, sizeof params);
  if (max_tokens > 0) params.max_tokens = (size_t)max_tokens;
  cow_mlx_context context = FAILED;
  cow_mlx_context_create(model, &params, &context);
  return context;
}

void cow_mlx_free_context(int32_t context) { cow_mlx_context_free(context); }

bool cow_mlx_reset_context(int32_t context) { return cow_mlx_context_reset(context) == COW_MLX_OK; }

int32_t cow_mlx_tokenize(int32_t model, const char* text, int32_t length, int32_t* tokens,
                         int32_t capacity, bool add_special) {
  REQUIRE_COUNT(capacity, FAILED);
  size_t count = 0;
  cow_mlx_status status = cow_mlx_model_tokenize(
      model, text, length < 0 ? COW_MLX_NUL : (size_t)length, add_special ? COW_MLX_ADD_SPECIAL : 0,
      tokens, (size_t)capacity, &count);
  /* With no buffer at all, our call answers the size; here that is a shortage. */
  if (status == COW_MLX_OK && count > (size_t)capacity) {
    status = cow_error(COW_MLX_EBUFFER, "tokenize", COW_REASON_buffer_too_small,
                       DETAILS(SIZE_DETAIL("needed", count), SIZE_DETAIL("capacity", capacity)),
                       "capacity is %d, but there are %zu tokens", (int)capacity, count);
  }
  return count_of(status, count);
}

bool cow_mlx_is_eog(int32_t model, int32_t token) {
  bool is_end = false;
  return cow_mlx_model_is_end(model, token, &is_end) == COW_MLX_OK && is_end;
}

bool cow_mlx_generate_begin(int32_t context, const int32_t* tokens, int32_t count,
                            float temperature, float top_p, int32_t top_k, float min_p,
                            float repeat_penalty, int32_t repeat_window, int32_t seed) {
  REQUIRE_COUNT(count, false);
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = SIZE_MAX;
  params.temperature = temperature;
  params.top_p = top_p == 0 ? 1 : top_p;
  params.top_k = top_k;
  params.min_p = min_p;
  params.repetition_penalty = repeat_penalty == 0 ? 1 : repeat_penalty;
  params.repetition_window = repeat_window > 0 ? (size_t)repeat_window : DEFAULT_WINDOW;
  params.seed = (uint32_t)seed;
  return cow_mlx_context_begin(context, tokens, (size_t)count, &params) == COW_MLX_OK;
}

int32_t cow_mlx_generate_next(int32_t context, char* text, int32_t capacity) {
  REQUIRE_COUNT(capacity, FAILED);
  size_t length = 0;
  cow_mlx_status status = cow_mlx_context_next(context, text, (size_t)capacity, &length, NULL);
  return count_of(status, length); /* DONE is FAILED without a message */
}

int32_t cow_mlx_cache_token_count(int32_t context) {
  size_t count = 0;
  cow_mlx_status status = cow_mlx_context_tokens(context, NULL, 0, &count);
  return count_of(status, count);
}

int32_t cow_mlx_cache_trim_end(int32_t context, int32_t count) {
  REQUIRE_COUNT(count, FAILED);
  size_t trimmed = 0;
  cow_mlx_status status = cow_mlx_context_trim_end(context, (size_t)count, &trimmed);
  return count_of(status, trimmed);
}

int32_t cow_mlx_cache_trim_front(int32_t context, int32_t count) {
  REQUIRE_COUNT(count, FAILED);
  size_t trimmed = 0;
  cow_mlx_status status = cow_mlx_context_trim_front(context, (size_t)count, &trimmed);
  return count_of(status, trimmed);
}
