/* One call is made while something is short, and again once there is plenty. argv: the model's
 * folder, a phase, what is short (threads, memory, data, files), how much of it is left, a folder
 * to write to. Prints the first status of the phase. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "host.h"

/* Threads that may still start: this function takes the place of the system's for libraries too. */
static atomic_long threads_left = 1L << 30;

typedef struct counted {
  void* (*run)(void*);
  void* data;
} counted;

static void* run_counted(void* data) {
  counted own = *(counted*)data;
  free(data);
  void* result = own.run(own.data);
  atomic_fetch_add(&threads_left, 1);
  return result;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* data) {
  static int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "pthread_create");
  if (atomic_fetch_sub(&threads_left, 1) <= 0) {
    atomic_fetch_add(&threads_left, 1);
    return EAGAIN;
  }
  counted* own = malloc(sizeof *own);
  *own = (counted){run, data};
  return real(thread, attributes, run_counted, own);
}

static const char* short_of;
static long left;
static struct rlimit plenty;
static int kind;

/* Bytes of /proc/self/statm's column: 0 for all of the address space, 5 for data. */
static unsigned long long pages(int column) {
  unsigned long long found[7] = {0};
  FILE* file = fopen("/proc/self/statm", "r");
  EXPECT(file);
  for (int i = 0; i < 7; i++) EXPECT(fscanf(file, "%llu", &found[i]) == 1);
  fclose(file);
  return found[column] * (unsigned long long)sysconf(_SC_PAGESIZE);
}

static rlim_t lowest_free_descriptor(void) {
  int descriptor = open("/dev/null", O_RDONLY);
  EXPECT(descriptor >= 0);
  close(descriptor);
  return (rlim_t)descriptor;
}

static void begin_shortage(void) {
  if (strcmp(short_of, "threads") == 0) {
    atomic_store(&threads_left, left);
    return;
  }
  struct rlimit limit;
  kind = RLIMIT_NOFILE;
  if (strcmp(short_of, "files") == 0) {
    limit.rlim_cur = lowest_free_descriptor() + (rlim_t)left;
  } else if (strcmp(short_of, "memory") == 0) {
    kind = RLIMIT_AS;
    limit.rlim_cur = pages(0) + (rlim_t)left;
  } else {
    kind = RLIMIT_DATA;
    limit.rlim_cur = pages(5) + (rlim_t)left;
  }
  getrlimit(kind, &plenty);
  limit.rlim_max = plenty.rlim_max;
  EXPECT(setrlimit(kind, &limit) == 0);
}

static void end_shortage(void) {
  if (strcmp(short_of, "threads") == 0) {
    atomic_store(&threads_left, 1L << 30);
  } else {
    EXPECT(setrlimit(kind, &plenty) == 0);
  }
}

static const char* path;
static char file[1024];
static session s;
static int32_t other;

static cow_mlx_status start(void) { return cow_mlx_runtime_start(NULL); }
static cow_mlx_status load(void) { return cow_mlx_model_load(path, NULL, &s.model); }
static cow_mlx_status lazy(void) {
  cow_mlx_model_params params;
  cow_mlx_model_params_init(&params, sizeof params);
  params.lazy = true;
  return cow_mlx_model_load(path, &params, &s.model);
}
static cow_mlx_status context(void) { return cow_mlx_context_create(s.model, NULL, &s.context); }
static cow_mlx_status tokenize(void) {
  return cow_mlx_model_tokenize(s.model, PROMPT, COW_MLX_NUL, COW_MLX_ADD_SPECIAL, s.tokens,
                                PROMPT_CAPACITY, &s.count);
}
static cow_mlx_status generation(void) { return generate(&s, LENGTH, NULL, NULL); }
static cow_mlx_status grammar(void) {
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = 4;
  params.grammar = "[a-z ]+";
  params.grammar_kind = COW_MLX_GRAMMAR_REGEX;
  return cow_mlx_context_generate(s.context, s.tokens, s.count, &params, NULL, NULL, NULL);
}
static cow_mlx_status chat(void) {
  cow_mlx_generation_params params;
  cow_mlx_generation_params_init(&params, sizeof params);
  params.max_tokens = 4;
  return cow_mlx_context_chat(s.context, "[{\"role\": \"user\", \"content\": \"Hello\"}]",
                              COW_MLX_NUL, &params, NULL, NULL, NULL, NULL);
}
static cow_mlx_status embed(void) {
  static float out[4096];
  size_t dims;
  cow_mlx_text text = {PROMPT, COW_MLX_NUL};
  return cow_mlx_model_embed(s.model, &text, 1, NULL, out, 4096, &dims);
}
static cow_mlx_status save(void) { return cow_mlx_context_save(s.context, file); }
static cow_mlx_status restore(void) { return cow_mlx_context_load(s.context, file); }
static cow_mlx_status fork_it(void) { return cow_mlx_context_fork(s.context, &other); }
static cow_mlx_status info(void) {
  static char text[1 << 20];
  size_t length;
  return cow_mlx_runtime_info(text, sizeof text, &length);
}
static cow_mlx_status wake(void) { return cow_mlx_context_wake_fd(s.context, &other); }

static const struct {
  const char* name;
  cow_mlx_status (*call)(void);
} phases[] = {
    {"start", start},     {"info", info},         {"load", load},           {"lazy", lazy},
    {"context", context}, {"tokenize", tokenize}, {"generate", generation}, {"grammar", grammar},
    {"chat", chat},       {"embed", embed},       {"save", save},           {"restore", restore},
    {"fork", fork_it},    {"wake", wake},
};

int main(int argc, char** argv) {
  EXPECT(argc == 6);
  path = argv[1];
  short_of = argv[3];
  left = atol(argv[4]);
  snprintf(file, sizeof file, "%s/saved", argv[5]);
  bool found = false;
  for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
    if (strcmp(phases[i].name, argv[2]) == 0) {
      found = true;
      begin_shortage();
      cow_mlx_status status = phases[i].call();
      end_shortage();
      printf("%s %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
      if (status == COW_MLX_OK) continue;
    }
    EXPECT_OK(phases[i].call());
  }
  EXPECT(found);
  return 0;
}
