/*
 * Talk with a model in the terminal: chat MODEL [SYSTEM PROMPT]
 * One line is one message; end with ^D.
 */
#include <cow_mlx.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text that grows. */
typedef struct text {
  char* data;
  size_t length, capacity;
} text;

static void append(text* to, const char* data, size_t length) {
  if (to->length + length >= to->capacity) {
    to->capacity = 2 * (to->length + length) + 64;
    to->data = realloc(to->data, to->capacity);
    if (!to->data) abort();
  }
  memcpy(to->data + to->length, data, length);
  to->length += length;
  to->data[to->length] = '\0';
}

static void append_string(text* to, const char* data, size_t length) {
  append(to, "\"", 1);
  for (const char* end = data + length; data < end; data++) {
    char escaped[8];
    if (*data == '"' || *data == '\\' || (unsigned char)*data < ' ') {
      append(to, escaped, (size_t)sprintf(escaped, "\\u%04x", (unsigned char)*data));
    } else {
      append(to, data, 1);
    }
  }
  append(to, "\"", 1);
}

/* Messages are kept as an open array, "[{...}, {...}": the end comes with each use. */
static void append_message(text* messages, const char* role, const text* content) {
  const char* start = messages->length ? ", {\"role\": " : "[{\"role\": ";
  append(messages, start, strlen(start));
  append_string(messages, role, strlen(role));
  append(messages, ", \"content\": ", strlen(", \"content\": "));
  append_string(messages, content->data ? content->data : "", content->length);
  append(messages, "}", 1);
}

/* Print what comes, and keep the answer: the next turn needs it. */
static bool show(const cow_mlx_event* event, void* answer) {
  switch (event->kind) {
    case COW_MLX_EVENT_TEXT:
      append(answer, event->text, event->length);
      fwrite(event->text, 1, event->length, stdout);
      break;
    case COW_MLX_EVENT_REASONING:
      fwrite(event->text, 1, event->length, stderr);
      break;
    case COW_MLX_EVENT_TOOL_CALL:
      printf("[%s %s]", event->name, event->text);
      break;
    case COW_MLX_EVENT_END:
      printf(event->finish == COW_MLX_FINISH_LENGTH ? " ...\n" : "\n");
      break;
  }
  fflush(stdout);
  return true;
}

/* One line without its end; false at the end of the input. */
static bool read_line(text* line) {
  int c;
  line->length = 0;
  while ((c = getchar()) != EOF && c != '\n') append(line, &(char){(char)c}, 1);
  return c != EOF || line->length > 0;
}

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s: %s\n", cow_mlx_status_name(status), cow_mlx_error_message());
  exit(1);
}

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: %s MODEL [SYSTEM PROMPT]\n", argv[0]);
    return 2;
  }
  cow_mlx_model model;
  cow_mlx_context context;
  check(cow_mlx_runtime_start(NULL));
  check(cow_mlx_model_load(argv[1], NULL, &model));
  check(cow_mlx_context_create(model, NULL, &context));

  text messages = {0}, line = {0}, answer = {0};
  if (argc == 3) append_message(&messages, "system", &(text){argv[2], strlen(argv[2]), 0});
  while (fputs("> ", stderr), read_line(&line)) {
    if (line.length == 0) continue;
    size_t before = messages.length;
    append_message(&messages, "user", &line);
    append(&messages, "]", 1);
    answer.length = 0;
    cow_mlx_status status = cow_mlx_context_chat(context, messages.data, messages.length, NULL,
                                                 NULL, show, &answer, NULL);
    messages.length--; /* the array is open again */
    if (status == COW_MLX_OK) {
      append_message(&messages, "assistant", &answer);
    } else {
      fprintf(stderr, "%s\n", cow_mlx_error_message());
      messages.length = before; /* as if the line had not been said */
    }
  }
  free(messages.data);
  free(line.data);
  free(answer.data);
  check(cow_mlx_runtime_stop());
  return 0;
}
