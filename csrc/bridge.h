/* Shared by the C side and the Cython bridge: a request, and the two tables of functions through
 * which they call each other. Neither side links the other. */
#ifndef COW_BRIDGE_H
#define COW_BRIDGE_H

#include "helper.h"
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
  COW_KIND_MEDIA = 5,
  COW_KIND_PROGRAM = 6,
  COW_KIND_TRAINING = 7,
  COW_KIND_ARRAY = 8 /* in 64 bits, in a separate table: arrays.h */
} cow_kind;

/* The events of a call before it ends. */
typedef enum cow_event_kind {
  COW_EVENT_NONE = 0,
  COW_EVENT_PROGRESS,
  COW_EVENT_PROMPT,
  COW_EVENT_TEXT,
  COW_EVENT_CHAT,
  COW_EVENT_TRAINING,
  COW_EVENT_BATCH,
  COW_EVENT_LOGITS
} cow_event_kind;

/* Logits that the host's function changes, behind tokens; see queue/logits.h. */
typedef struct cow_logits {
  cow_mlx_logits_fn function;
  void* data;
  size_t count;
  size_t vocabulary;
  float* values;   /* of the vocabulary */
  int32_t* tokens; /* count */
} cow_logits;

typedef struct cow_event {
  cow_event_kind kind;
  float fraction;
  char* text; /* stage of progress, or generated text: malloc'ed, freed once taken */
  size_t length;
  char* name;        /* of a tool, or NULL: malloc'ed likewise */
  int32_t chat_kind; /* one of COW_MLX_EVENT_ */
  int32_t finish;    /* of a chat's end */
  size_t processed;
  size_t total;
  cow_mlx_training_event training;
  cow_logits* logits; /* left once they are taken */
} cow_event;

/* A batch that the host is asked for: it fills in handles, which the engine takes over. */
typedef struct cow_batch {
  size_t step;
  size_t count;
  bool given; /* the handles are filled; false: there are no more batches */
  cow_mlx_array* arrays;
} cow_batch;

/* A result that a host can take without waiting: a piece, an event of a chat, or an end. */
typedef struct cow_offer {
  cow_mlx_status status; /* of the call that takes it: below 0 a failure */
  bool is_end;           /* nothing comes after it, and it stays */
  bool counts;           /* a piece that the dispatch thread counts once it is taken */
  int32_t event_kind;    /* one of COW_MLX_EVENT_, or 0 */
  int32_t token;
  float logprob;
  int32_t finish;
  const char* text; /* or the message of a failure; NUL-terminated */
  size_t length;
  const char* name; /* of a tool, or the details of a failure */
} cow_offer;

/* The host's callbacks with their user_data; NULL: none. */
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
  cow_mlx_logits_fn logits; /* belongs to the generation, which outlives the call */
  void* logits_data;
} cow_callbacks;

/* The arguments of the operations that are not generated. */
typedef struct cow_runtime_start_args {
  const cow_mlx_runtime_params* params;
  const char* python_home; /* of the booted Python; "" if Python was joined */
} cow_runtime_start_args;

/* Those of the calls that make an image, whose pixels or file are an array of bytes. */
typedef struct cow_media_args {
  cow_mlx_array bytes;
  int32_t channels; /* 0: a file */
  cow_mlx_media* out;
} cow_media_args;

typedef struct cow_request cow_request;

/* Takes the results of a request whose call has returned at once. */
typedef struct cow_sink {
  void (*post)(const cow_request*, const cow_event*);
  bool (*can_post)(const cow_request*);
  bool (*refused)(const cow_request*);
  void (*end)(cow_request*, cow_mlx_status); /* frees the request */
} cow_sink;

/* A call that runs. It lives on its caller's stack or, if the call has returned at once, on the
 * heap: the dispatch thread must not touch it after host->finish(). */
struct cow_request {
  cow_op op;
  const char* operation;        /* its name in messages */
  const void* args;             /* of the operation's type; the caller owns them */
  const cow_floats_out* floats; /* of args, where there are any */
  cow_mlx_context context;      /* of the call, or 0 */
  cow_mlx_program program;      /* likewise */
  cow_mlx_training training;    /* likewise */
  cow_mlx_model model;          /* of a load that returned at once, or 0 */
  uint32_t cancel_epoch;        /* of one of these handles, when the call was made */
  uint32_t round;               /* of the outlet, if the call has returned at once; or 0 */
  const cow_sink* sink;         /* NULL: the caller waits */
  cow_callbacks callbacks;

  cow_mlx_status status;
  char* message;     /* COW_MESSAGE_SIZE bytes */
  char* details;     /* COW_DETAILS_SIZE bytes */
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

/* An array, as the bridge sees it. */
typedef struct cow_array_parts {
  int32_t dtype;
  int32_t rank;
  const int64_t* shape;
  size_t bytes;
  const void* data; /* its elements, row-major; NULL if they are not computed */
  void* object;     /* the engine's, or NULL */
} cow_array_parts;

/* The functions of C that the bridge calls: type, member, name, parameters. Their headers describe
 * them. */
#define COW_HOST_FUNCTIONS(X)                                                                      \
  X(void, finish, cow_queue_finish, (cow_request*, cow_mlx_status))                                \
  X(void, post, cow_queue_post, (cow_request*, const cow_event*))                                  \
  X(bool, can_post, cow_queue_can_post, (cow_request*))                                            \
  X(bool, refused, cow_queue_refused, (cow_request*))                                              \
  X(void, linger, cow_queue_linger, (cow_request*))                                                \
  X(cow_logits*, logits_new, cow_logits_new,                                                       \
    (cow_mlx_logits_fn function, void* data, size_t count, size_t vocabulary))                     \
  X(void, logits_share, cow_logits_share, (cow_logits*))                                           \
  X(void, logits_let_go, cow_logits_let_go, (cow_logits*))                                         \
  X(int, logits_answer, cow_logits_answer, (const cow_logits*))                                    \
  X(uint32_t, cancel_epoch, cow_handle_cancels, (int32_t handle))                                  \
  X(int32_t, open_handle, cow_handle_open, (cow_kind))                                             \
  X(bool, close_handle, cow_outlets_close, (int32_t))                                              \
  X(bool, can_start_threads, cow_resources_threads, (int count))                                   \
  X(bool, can_map, cow_resources_memory, (size_t size))                                            \
  X(void, give_back, cow_resources_give_back, (void))                                              \
  X(void, sleepers_help, cow_sleepers_help, (const cow_helper*))                                   \
  X(bool, system_memory, cow_resources_system_memory, (uint64_t* most, uint64_t* easy))            \
  X(uint32_t, outlets_begin, cow_outlets_begin, (int32_t handle, uint32_t round, uint32_t epoch))  \
  X(void, outlets_clear, cow_outlets_clear, (int32_t handle))                                      \
  X(int, outlets_watch, cow_outlets_watch, (int32_t handle))                                       \
  X(bool, outlets_offer, cow_outlets_offer,                                                        \
    (int32_t handle, uint32_t round, const cow_offer* offer))                                      \
  X(void, outlets_ask, cow_outlets_ask, (int32_t handle, uint32_t round, cow_logits*))             \
  X(size_t, outlets_taken, cow_outlets_taken, (int32_t handle, bool back))                         \
  X(void, arrays_start, cow_arrays_start, (bool has_float64))                                      \
  X(void, arrays_stop, cow_arrays_stop, (void))                                                    \
  X(size_t, arrays_count, cow_arrays_count, (void))                                                \
  X(int64_t, arrays_add_object, cow_arrays_add_object,                                             \
    (void* object, const void* data, int32_t dtype, int32_t rank, const int64_t* shape))           \
  X(bool, arrays_close, cow_arrays_close, (int64_t handle))                                        \
  X(void*, memory_new, cow_memory_new, (size_t bytes))                                             \
  X(void, memory_let_go, cow_memory_let_go, (void* data))                                          \
  X(void, memory_trim, cow_memory_trim, (void))                                                    \
  X(size_t, memory_capacity, cow_memory_capacity, (const void* data))                              \
  X(void, memory_bound, cow_memory_bound, (size_t limit, size_t others))                           \
  X(void, memory_count_with_engine, cow_memory_count_with_engine, (void* data))                    \
  X(size_t, memory_in_use, cow_memory_in_use, (void))                                              \
  X(int64_t, arrays_add_host, cow_arrays_add_host,                                                 \
    (void* data, int32_t dtype, int32_t rank, const int64_t* shape))                               \
  X(cow_array*, arrays_take, cow_arrays_take, (int64_t handle, cow_array_parts* out))              \
  X(cow_array*, arrays_hold_object, cow_arrays_hold_object,                                        \
    (void* object, const void* data, int32_t dtype, int32_t rank, const int64_t* shape,            \
     cow_array_parts* out))                                                                        \
  X(void, arrays_tell, cow_arrays_tell, (cow_array*, cow_array_parts * out))                       \
  X(void, arrays_let_go, cow_arrays_let_go, (cow_array*))                                          \
  X(void*, arrays_set_object, cow_arrays_set_object, (cow_array*, void* object, const void* data)) \
  X(void*, arrays_take_memory, cow_arrays_take_memory, (cow_array*))                               \
  X(void, arrays_return_memory, cow_arrays_return_memory, (cow_array*, void* memory))              \
  X(void*, arrays_next_dropped, cow_arrays_next_dropped, (void))

typedef struct cow_host {
#define COW_HOST_MEMBER(type, member, name, parameters) type(*member) parameters;
  COW_HOST_FUNCTIONS(COW_HOST_MEMBER)
#undef COW_HOST_MEMBER
} cow_host;

/* The functions of the bridge that C calls. Each catches every Python exception. */
typedef struct cow_bridge {
  uint32_t abi;
  bool (*attach)(const cow_host*); /* false if another library is attached */
  bool (*run)(cow_request*);       /* ends the request, or keeps it (true) and ends it later */
  int64_t (*step)(void);           /* one unit of work; how long until the next, in microseconds;
                                      -1: until something happens */
  void (*rest)(void);              /* wait until mlx is idle: the process may end now */
  void (*keep_objects)(void);      /* from now on, free no object of mlx; needs no Python */
} cow_bridge;

#endif
