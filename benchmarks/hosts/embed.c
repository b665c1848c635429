/*
 * The library as a host that embeds texts when asked: embed MODEL TEXTS
 *
 * TEXTS is a file with a text on each line. Prints "ready IDLE" (MB, before the model is loaded)
 * and answers the lines of texts.h.
 */
#include "host.h"
#include "texts.h"

static cow_mlx_model model;
static cow_mlx_text views[MAX_TEXTS];

static void embed(const texts* all, size_t first, size_t count) {
  size_t dims;
  check(cow_mlx_model_embed(model, views + first, count, NULL, all->vectors + first * all->dims,
                            count * all->dims, &dims));
}

int main(int argc, char** argv) {
  static texts all;
  if (argc != 3) return 2;
  check(cow_mlx_runtime_start(NULL));
  long idle = peak();
  check(cow_mlx_model_load(argv[1], NULL, &model));
  read_texts(argv[2], &all);
  for (size_t i = 0; i < all.count; i++)
    views[i] = (cow_mlx_text){.data = all.data[i], .length = all.length[i]};
  cow_mlx_model_embed(model, views, all.count, NULL, NULL, 0, &all.dims);
  all.vectors = malloc(all.count * all.dims * sizeof(float));
  if (!all.vectors) return 2;
  ready_above(idle);
  answer_texts(&all, embed);
  free(all.vectors);
  check(cow_mlx_model_free(model));
  check(cow_mlx_runtime_stop());
  return 0;
}
