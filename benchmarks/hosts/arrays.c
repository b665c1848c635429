/* Upload and read of arrays against memcpy: a line per size and round: bytes, then seconds of a
 * copy into memory that is there, of an upload, and of a read. Arguments: rounds, the largest size.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cow_mlx.h"

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void check(cow_mlx_status status) {
  if (status == COW_MLX_OK) return;
  fprintf(stderr, "%s\n", cow_mlx_error_message());
  exit(1);
}

/* So many at a time that the clock's own time is small. */
static void measure(char* from, char* to, size_t bytes) {
  size_t times = bytes < (1 << 20) ? (1 << 20) / bytes : 1;
  const int64_t shape[] = {(int64_t)bytes};
  cow_mlx_tensor source = {.struct_size = sizeof source,
                           .data = from,
                           .bytes = bytes,
                           .dtype = COW_MLX_UINT8,
                           .rank = 1,
                           .shape = shape};
  cow_mlx_tensor target = source;
  target.data = to;
  double copy = 0, upload = 0, read = 0;
  for (size_t i = 0; i < times; i++) {
    cow_mlx_array array;
    double begin = now();
    memcpy(to, from, bytes);
    double copied = now();
    check(cow_mlx_array_create(&source, &array));
    double uploaded = now();
    check(cow_mlx_array_read(array, &target));
    double done = now();
    check(cow_mlx_array_free(array));
    copy += copied - begin;
    upload += uploaded - copied;
    read += done - uploaded;
  }
  printf("%zu %.9f %.9f %.9f\n", bytes, copy / (double)times, upload / (double)times,
         read / (double)times);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  int rounds = atoi(argv[1]);
  size_t largest = strtoull(argv[2], NULL, 10);
  char *from = malloc(largest), *to = malloc(largest);
  if (!from || !to) return 3;
  memset(from, 1, largest);
  memset(to, 2, largest);
  check(cow_mlx_runtime_start(NULL));
  for (size_t bytes = 1 << 10; bytes <= largest; bytes *= 4) {
    for (int round = 0; round < rounds; round++) measure(from, to, bytes);
  }
  check(cow_mlx_runtime_stop());
  return 0;
}
