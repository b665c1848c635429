/*
 * All that the C side and the Cython bridge share: a request, the list of
 * operations, and the two tables of functions through which they call each
 * other. Neither side links the other.
 */
#ifndef COW_BRIDGE_H
#define COW_BRIDGE_H

#include "generated/call_arguments.h"

#define COW_BRIDGE_CAPSULE "cowmlx._bridge.table"

/* Bytes of an error message, its terminator included. */
#define COW_MESSAGE_SIZE 2048

/* Bytes of a failure as a JSON object, its terminator included. */
#define COW_DETAILS_SIZE 4096

/* Handles: kind (3 bits), generation (12), slot (16). Kind 0 does not exist. */
#define COW_HANDLE_SLOTS 65536
#define COW_HANDLE_GENERATIONS 4096
typedef enum cow_kind {
  COW_KIND_MODEL = 1,
  COW_KIND_CONTEXT = 2,
  COW_KIND_ADAPTER = 3,
  COW_KIND_CHECKPOINT = 4,
  COW_KIND_ARRAY = 5, /* in 64 bits, and in a table of its own: arrays.h */
  COW_KIND_PROGRAM = 6,
  COW_KIND_TRAINING = 7
} cow_kind;

/* What a call tells its host before it ends. */
typedef enum cow_event_kind {
  COW_EVENT_NONE = 0,
  COW_EVENT_PROGRESS,
  COW_EVENT_PROMPT,
  COW_EVENT_TEXT,
  COW_EVENT_CHAT,
  COW_EVENT_TRAINING,
  COW_EVENT_BATCH
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
  cow_mlx_training_event training;
} cow_event;

/* A batch that the host is asked for: it fills the handles, which are its no more then. */
typedef struct cow_batch {
  size_t step;
  size_t count;
  bool given; /* the handles are filled; false: there are no more batches */
  cow_mlx_array* arrays;
} cow_batch;

/* What a host can take without waiting: a piece, an event of a chat, or an end. */
typedef struct cow_offer {
  cow_mlx_status status; /* of the call that takes it: below 0 a failure */
  bool is_end;           /* nothing comes behind it, and it stays */
  bool counts;           /* a piece, of which the dispatch thread hears once it is taken */
  int32_t event_kind;    /* one of COW_MLX_EVENT_, or 0 */
  int32_t token;
  float logprob;
  int32_t finish;
  const char* text; /* of a failure its message; NUL-terminated */
  size_t length;
  const char* name; /* of a tool; of a failure its details */
} cow_offer;

/* What the host wants to be told, and with which user_data; NULL: not that. */
typedef struct cow_callbacks {
  cow_mlx_progress_fn progress;
  void* progress_data;
  cow_mlx_prompt_fn prompt;
  void* prompt_data;
  cow_mlx_text_fn text;
  void* text_data;
  cow_mlx_event_fn event;
  void* event_data;
  cow_mlx_training_fn training;
  void* training_data;
  cow_mlx_batch_fn batch;
  void* batch_data;
} cow_callbacks;

/* The arguments of the one operation that is made by hand. */
typedef struct cow_runtime_start_args {
  const cow_mlx_runtime_params* params;
  const char* python_home; /* that was booted; "" if Python was joined */
} cow_runtime_start_args;

typedef struct cow_request cow_request;

/* Takes the results of a request whose call has returned at once. */
typedef struct cow_sink {
  void (*post)(const cow_request*, const cow_event*);
  bool (*can_post)(const cow_request*);
  bool (*refused)(const cow_request*);
  void (*end)(cow_request*, cow_mlx_status); /* frees the request */
} cow_sink;

/* One call in flight. It lives on its caller's stack, or, if that has returned at once, in memory
 * of its own: the dispatch thread must not touch it after host->finish(). */
struct cow_request {
  cow_op op;
  const char* operation;        /* its name in messages */
  const void* args;             /* of its operation's type; the caller's, too */
  const cow_floats_out* floats; /* of args, where there are any */
  cow_mlx_context context;      /* that the call is made on, or 0 */
  cow_mlx_program program;      /* that it runs, or 0 */
  cow_mlx_training training;    /* that it works on, or 0 */
  cow_mlx_model model;          /* that a load fills, which returned at once, or 0 */
  uint32_t cancel_epoch;        /* of one of them, when the call was made */
  uint32_t round;               /* of the outlet of context or model, if nobody waits; or 0 */
  const cow_sink* sink;         /* NULL: the caller waits */
  cow_callbacks callbacks;

  cow_mlx_status status;
  char* message;     /* COW_MESSAGE_SIZE bytes of the call's own */
  char* details;     /* COW_DETAILS_SIZE bytes likewise */
  char* log_message; /* malloc'ed, or NULL; freed by the caller's thread */
  int32_t log_level;
  cow_batch* batch; /* malloc'ed with its handles, or NULL; freed by the caller's thread */

  /* The rest belongs to queue.c. */
  cow_request* next;
  cow_event event;
  bool refused; /* the host's callback returned false */
  bool done;
  void* waiter;
};

/* What the bridge is told of an array. */
typedef struct cow_array_parts {
  int32_t dtype;
  int32_t rank;
  const int64_t* shape;
  size_t bytes;
  const void* data; /* its elements, row-major; NULL if they are not computed */
  void* object;     /* the engine's, or NULL: it has none yet */
} cow_array_parts;

/* What C does for the bridge. */
typedef struct cow_host {
  void (*finish)(cow_request*, cow_mlx_status);
  void (*post)(cow_request*, const cow_event*);
  bool (*can_post)(cow_request*); /* the last event has been taken, and not been refused */
  bool (*refused)(cow_request*);
  uint32_t (*cancel_epoch)(int32_t handle); /* of a context, a program or a training */
  int32_t (*open_handle)(cow_kind);         /* 0 if there is none */
  bool (*close_handle)(int32_t);            /* false if it is not open */
  bool (*can_start_threads)(int count);
  bool (*can_map)(size_t size);
  void (*give_back)(void);
  /* cow_outlets_begin() and so on, of outlets.h */
  uint32_t (*outlets_begin)(int32_t handle, uint32_t round, uint32_t epoch);
  void (*outlets_clear)(int32_t handle);
  int (*outlets_watch)(int32_t handle);
  bool (*outlets_offer)(int32_t handle, uint32_t round, const cow_offer* offer);
  size_t (*outlets_taken)(int32_t handle, bool back);
  /* cow_arrays_start() and so on, of arrays.h */
  void (*arrays_start)(bool has_float64);
  void (*arrays_stop)(void);
  size_t (*arrays_count)(void);
  int64_t (*arrays_add_object)(void* object, int32_t dtype, int32_t rank, const int64_t* shape);
  bool (*arrays_close)(int64_t handle);
  void* (*memory_new)(size_t bytes);
  void (*memory_let_go)(void* data);
  void (*memory_trim)(void);
  size_t (*memory_capacity)(const void* data);
  void (*memory_bound)(size_t limit, size_t others);
  size_t (*memory_in_use)(void);
  int64_t (*arrays_add_host)(void* data, int32_t dtype, int32_t rank, const int64_t* shape);
  cow_array* (*arrays_take)(int64_t handle, cow_array_parts* out);
  cow_array* (*arrays_hold_object)(void* object, int32_t dtype, int32_t rank, const int64_t* shape,
                                   cow_array_parts* out);
  void (*arrays_tell)(cow_array*, cow_array_parts* out);
  void (*arrays_let_go)(cow_array*);
  void* (*arrays_set_object)(cow_array*, void* object, const void* data);
  void* (*arrays_take_memory)(cow_array*);
  void (*arrays_return_memory)(cow_array*, void* memory);
  void* (*arrays_next_dropped)(void);
} cow_host;

/* What the bridge does for C. Every function catches every Python exception. */
typedef struct cow_bridge {
  uint32_t abi;
  bool (*attach)(const cow_host*); /* false if another library is attached */
  bool (*run)(cow_request*);       /* ends the request, or keeps it (true) and ends it later */
  int64_t (*step)(void);           /* one unit of work; how long until the next, in microseconds;
                                      -1: until something happens */
  void (*rest)(void);              /* wait for what mlx computes: the process may end now */
  void (*keep_objects)(void);      /* free none of mlx's objects any more; needs no Python */
} cow_bridge;

#endif
