/* Shared by the C programs that embed texts: the texts of a file, and answers to lines. */
#ifndef BENCHMARK_TEXTS_H
#define BENCHMARK_TEXTS_H

#include <sys/resource.h>

#include "protocol.h"

enum { MAX_TEXTS = 4096 };

typedef struct texts {
  char* data[MAX_TEXTS];
  size_t length[MAX_TEXTS];
  size_t count, dims;
  float* vectors; /* count rows of dims */
} texts;

/* Read a file with a text on each line. */
static inline void read_texts(const char* path, texts* out) {
  FILE* file = fopen(path, "r");
  char* line = NULL;
  size_t capacity = 0;
  ssize_t length;
  if (!file) exit(2);
  while (out->count < MAX_TEXTS && (length = getline(&line, &capacity, file)) > 1) {
    out->data[out->count] = line;
    out->length[out->count] = (size_t)length - 1;
    out->data[out->count++][length - 1] = '\0';
    line = NULL;
    capacity = 0;
  }
  free(line);
  fclose(file);
}

/* Say that this host waits for lines, and the most memory that it took before, in MB. */
static inline void ready_above(long idle) {
  printf("ready %.3f\n", (double)idle / 1024);
  fflush(stdout);
}

/* The most memory that this process has taken, in KB; on Linux. */
static inline long peak(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

/* Embed texts [first, first + count). */
typedef void embed_texts(const texts* all, size_t first, size_t count);

/* Answer lines until the input ends: "all" with the seconds that all texts take together, "each
 * STEP" with those of every STEPth text one at a time, "write PATH" when the vectors are in that
 * file. The second number is the processor time. */
static inline void answer_texts(const texts* all, embed_texts* embed) {
  static char line[4096];
  while (fgets(line, sizeof line, stdin)) {
    double spent = processor_time(), begun = now();
    line[strcspn(line, "\n")] = '\0';
    if (strcmp(line, "all") == 0) {
      embed(all, 0, all->count);
    } else if (strncmp(line, "each ", 5) == 0) {
      size_t step = strtoul(line + 5, NULL, 10);
      for (size_t i = 0; i < all->count && step > 0; i += step) embed(all, i, 1);
    } else if (strncmp(line, "write ", 6) == 0) {
      FILE* file = fopen(line + 6, "wb");
      if (!file) exit(2);
      fwrite(all->vectors, sizeof(float), all->count * all->dims, file);
      fclose(file);
    } else {
      exit(2);
    }
    printf("%.6f %.6f\n", now() - begun, processor_time() - spent);
    fflush(stdout);
  }
}

#endif
