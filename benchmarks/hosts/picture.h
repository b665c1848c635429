/* Shared by the hosts that are given images. */
#ifndef BENCHMARK_PICTURE_H
#define BENCHMARK_PICTURE_H

#include "protocol.h"

/* A task about an image: SEED WIDTH HEIGHT BEFORE, then the tokens before the image, then those
 * behind it. */
enum { SEED, WIDTH, HEIGHT, BEFORE, FIRST_TOKEN };

/* Return the pixels of an image, RGB; equal for equal tasks. */
static inline unsigned char* drawn(const task* asked) {
  size_t size = (size_t)asked->prompt[WIDTH] * (size_t)asked->prompt[HEIGHT] * 3;
  unsigned char* pixels = malloc(size);
  uint32_t state = (uint32_t)asked->prompt[SEED] + 1;
  if (!pixels) exit(1);
  for (size_t i = 0; i < size; i++) {
    state = state * 1664525U + 1013904223U;
    pixels[i] = (unsigned char)(state >> 24);
  }
  return pixels;
}

#endif
