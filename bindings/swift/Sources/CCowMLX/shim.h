/* A module map names files; pkg-config names the folder of this one. */
#include <cow_mlx.h>
