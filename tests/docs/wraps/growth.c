#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* BLOCK */

#undef cow_mlx_embed_params_init

enum { FIRST_SIZE = 24 };

_Static_assert(offsetof(cow_mlx_embed_params, dimensions) == FIRST_SIZE, "what 1.0 had");

int main(void) { return 0; }
