/*
 * A host that decodes behind long sequences when asked: long_context MODEL VOCABULARY PERIOD
 *
 * Its tokens are the same again after every PERIOD. Prints "ready", then answers each line with
 * one: "save FILE" processes one period and writes the context; "load LENGTH FILE" reads a
 * context that holds so many tokens, and answers its bytes; "decode LENGTH COUNT" generates on
 * a copy of that, and answers the seconds from the first token to the last.
 */
#include "host.h"

enum { LONGEST = 1 << 16, MAX_LENGTHS = 8, NEW = 8 };

typedef struct held {
  size_t length;
  cow_mlx_context context;
} held;

static int32_t tokens[LONGEST + NEW];
static held all[MAX_LENGTHS];
static size_t count;
static size_t period;

/* The first few of a vocabulary are left to special ones. */
static void make_tokens(int32_t vocabulary) {
  uint32_t state = 1;
  for (size_t i = 0; i < LONGEST + NEW; i++) {
    state = state * 1664525 + 1013904223;
    tokens[i] = i < period ? 16 + (int32_t)((state >> 8) % (uint32_t)(vocabulary - 16))
                           : tokens[i - period];
  }
}

static unsigned long long bytes_of(cow_mlx_context context) {
  static char info[1 << 14];
  size_t length;
  check(cow_mlx_context_info(context, info, sizeof info, &length));
  const char* found = strstr(info, "\"bytes\":");
  return found ? strtoull(found + strlen("\"bytes\":"), NULL, 10) : 0;
}

static void process(cow_mlx_context context, size_t length, size_t max_tokens) {
  cow_mlx_generation_params params = greedy(max_tokens);
  check(cow_mlx_context_begin(context, tokens, length, &params));
}

static bool save(cow_mlx_model model, const char* path) {
  cow_mlx_context context = open_context(model, false);
  process(context, period, 0);
  check(cow_mlx_context_save(context, path));
  check(cow_mlx_context_free(context));
  printf("saved\n");
  return true;
}

static bool load(cow_mlx_model model, size_t length, const char* path) {
  if (count == MAX_LENGTHS || length > LONGEST) return false;
  held* next = &all[count++];
  next->length = length;
  next->context = open_context(model, false);
  check(cow_mlx_context_load(next->context, path));
  printf("%llu\n", bytes_of(next->context));
  return true;
}

static bool generate(size_t length, size_t wanted) {
  for (size_t i = 0; i < count; i++) {
    if (all[i].length != length) continue;
    char text[256];
    size_t written;
    cow_mlx_context copy;
    cow_mlx_piece piece = {.struct_size = sizeof piece};
    check(cow_mlx_context_fork(all[i].context, &copy));
    process(copy, length + NEW, wanted);
    check(cow_mlx_context_next(copy, text, sizeof text, &written, &piece));
    double first = now();
    for (size_t taken = 1; taken < wanted; taken++) {
      cow_mlx_status status = cow_mlx_context_next(copy, text, sizeof text, &written, &piece);
      check(status);
      if (status == COW_MLX_DONE) return false;
    }
    printf("%.9f\n", now() - first);
    check(cow_mlx_context_free(copy));
    return true;
  }
  return false;
}

int main(int argc, char** argv) {
  char line[1024];
  char path[sizeof line];
  if (argc != 4) return 2;
  period = strtoul(argv[3], NULL, 10);
  make_tokens((int32_t)strtol(argv[2], NULL, 10));
  cow_mlx_model model = start(argv[1]);
  ready();
  while (fgets(line, sizeof line, stdin)) {
    size_t length = 0;
    size_t wanted = 0;
    bool done = false;
    if (sscanf(line, "save %1023[^\n]", path) == 1) {
      done = save(model, path);
    } else if (sscanf(line, "load %zu %1023[^\n]", &length, path) == 2) {
      done = load(model, length, path);
    } else if (sscanf(line, "decode %zu %zu", &length, &wanted) == 2) {
      done = generate(length, wanted);
    }
    if (!done) return 2;
    fflush(stdout);
  }
  return 0;
}
