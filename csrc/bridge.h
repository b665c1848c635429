/*
 * All that the C side and the Cython bridge share: a request, the list of
 * operations, and the two tables of functions through which they call each
 * other. Neither side links the other.
 */
#ifndef COW_BRIDGE_H
#define COW_BRIDGE_H

#include "cow_mlx.h"

/* Changes whenever anything in this file does; checked at start. */
#define COW_BRIDGE_ABI 5

#define COW_BRIDGE_CAPSULE "cowmlx._bridge.table"

/* Bytes of an error message, its terminator included. */
#define COW_MESSAGE_SIZE 2048

/* Handles: kind (3 bits), generation (12), slot (16). Kind 0 does not exist. */
#define COW_HANDLE_SLOTS 65536
#define COW_HANDLE_GENERATIONS 4096
typedef enum cow_kind {
  COW_KIND_MODEL = 1,
  COW_KIND_CONTEXT = 2,
  COW_KIND_ADAPTER = 3,
  COW_KIND_CHECKPOINT = 4
} cow_kind;

/* One operation per call that reaches the dispatch thread. */
typedef enum cow_op {
  COW_OP_RUNTIME_START,
  COW_OP_RUNTIME_STOP,
  COW_OP_RUNTIME_INFO,
  COW_OP_MEMORY_TRIM,
  COW_OP_MODEL_LOAD,
  COW_OP_MODEL_FREE,
  COW_OP_MODEL_INFO,
  COW_OP_MODEL_TOKENIZE,
  COW_OP_MODEL_DETOKENIZE,
  COW_OP_MODEL_IS_END,
  COW_OP_MODEL_CHAT_PROMPT,
  COW_OP_MODEL_EMBED,
  COW_OP_ADAPTER_LOAD,
  COW_OP_ADAPTER_FREE,
  COW_OP_CONTEXT_CREATE,
  COW_OP_CONTEXT_FREE,
  COW_OP_CONTEXT_FORK,
  COW_OP_CONTEXT_RESET,
  COW_OP_CONTEXT_TOKENS,
  COW_OP_CONTEXT_TRIM_END,
  COW_OP_CONTEXT_TRIM_FRONT,
  COW_OP_CONTEXT_CHECKPOINT,
  COW_OP_CONTEXT_REWIND,
  COW_OP_CHECKPOINT_FREE,
  COW_OP_CONTEXT_SAVE,
  COW_OP_CONTEXT_LOAD,
  COW_OP_CONTEXT_SET_ADAPTER,
  COW_OP_CONTEXT_INFO,
  COW_OP_CONTEXT_BEGIN,
  COW_OP_CONTEXT_NEXT,
  COW_OP_CONTEXT_POLL,
  COW_OP_CONTEXT_WAKE_FD,
  COW_OP_CONTEXT_GENERATE,
  COW_OP_CONTEXT_CHAT,
  COW_OP_CONTEXT_LOGPROBS,
  COW_OP_CONTEXT_LOGITS,
  COW_OP_CONTEXT_STATS,
  COW_OP_COUNT
} cow_op;

/* Text or bytes that the caller owns. */
typedef struct cow_text {
  const char* data;
  size_t length;
} cow_text;

/* Tokens that the caller owns. */
typedef struct cow_tokens {
  const int32_t* data;
  size_t count;
} cow_tokens;

/* Where a result of variable size goes; conventions 6 of cow_mlx.h. */
typedef struct cow_text_out {
  char* buffer;
  size_t capacity;
  size_t* length;
} cow_text_out;

typedef struct cow_tokens_out {
  int32_t* buffer;
  size_t capacity;
  size_t* count;
} cow_tokens_out;

typedef struct cow_floats_out {
  float* buffer;
  size_t capacity;
  size_t* count;
} cow_floats_out;

/* The arguments of an operation. Which members are used, api.c shows. */
typedef struct cow_args {
  int32_t handle;
  int32_t other; /* a second handle */
  const char* path;
  cow_text text;
  cow_text options;
  cow_tokens tokens;
  uint32_t flags;
  int32_t token;
  float scale;
  uint32_t timeout_ms;
  size_t count;
  const cow_mlx_text* texts; /* count of them */
  const cow_mlx_runtime_params* runtime_params;
  const cow_mlx_model_params* model_params;
  const cow_mlx_context_params* context_params;
  const cow_mlx_generation_params* generation_params;
  const cow_mlx_embed_params* embed_params;
  cow_text_out text_out;
  cow_tokens_out tokens_out;
  cow_floats_out floats_out;
  int32_t* handle_out;
  bool* bool_out;
  int32_t* fd_out;
  size_t* count_out;
  cow_mlx_piece* piece_out;
  cow_mlx_stats* stats_out;
} cow_args;

/* What a call tells its host before it ends. */
typedef enum cow_event_kind {
  COW_EVENT_NONE = 0,
  COW_EVENT_PROGRESS,
  COW_EVENT_PROMPT,
  COW_EVENT_TEXT,
  COW_EVENT_CHAT
} cow_event_kind;

typedef struct cow_event {
  cow_event_kind kind;
  float fraction;
  char* text; /* stage of progress, or generated text: malloc'ed, freed once it is taken */
  size_t length;
  char* name;        /* of a tool, or NULL: malloc'ed likewise */
  int32_t chat_kind; /* one of COW_MLX_EVENT_ */
  int32_t finish;    /* of a chat's end */
  size_t processed;
  size_t total;
} cow_event;

typedef struct cow_request cow_request;

/* Deliver the event of a request to the host's callback, on the caller's thread. */
typedef bool (*cow_deliver_fn)(const cow_request*);

/* One call in flight. It lives on its caller's stack: the dispatch thread must
 * not touch it after host->finish(). */
struct cow_request {
  cow_op op;
  const char* operation; /* its name in messages */
  cow_args args;
  uint32_t cancel_epoch; /* of the context, when the call was made */
  cow_deliver_fn deliver;
  cow_mlx_text_fn on_text;
  cow_mlx_event_fn on_event;
  void* user_data;

  cow_mlx_status status;
  char* message;     /* COW_MESSAGE_SIZE bytes of the call's own */
  char* log_message; /* malloc'ed, or NULL; freed by the caller's thread */
  int32_t log_level;

  /* The rest belongs to queue.c. */
  cow_request* next;
  cow_event event;
  bool refused; /* the host's callback returned false */
  bool done;
  void* waiter;
};

/* What C does for the bridge. */
typedef struct cow_host {
  void (*finish)(cow_request*, cow_mlx_status);
  void (*post)(cow_request*, const cow_event*);
  bool (*can_post)(cow_request*); /* the last event has been taken, and not been refused */
  bool (*refused)(cow_request*);
  uint32_t (*cancel_epoch)(cow_mlx_context);
  void (*context_opened)(cow_mlx_context);
  void (*context_closed)(cow_mlx_context);
  bool (*can_start_threads)(int count);
  bool (*can_map)(size_t size);
} cow_host;

/* What the bridge does for C. Every function catches every Python exception. */
typedef struct cow_bridge {
  uint32_t abi;
  bool (*attach)(const cow_host*); /* false if another library is attached */
  bool (*run)(cow_request*);       /* ends the request, or keeps it (true) and ends it later */
  bool (*step)(void);              /* one unit of work; false when there is none */
  void (*rest)(void);              /* wait for what mlx computes: the process may end now */
} cow_bridge;

#endif
