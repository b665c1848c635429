/* The bridge: the package beside this library, imported into the Python of the process. */
#ifndef COW_ATTACH_H
#define COW_ATTACH_H

#include "bridge.h"

/* Import it and exchange the tables; a joined Python gets an exit hook. The caller holds the
 * interpreter. */
cow_mlx_status cow_attach_bridge(const cow_bridge** bridge);

#endif
