/* The C side of the Swift package: the calls of the library, which is found at run time. */
#ifndef CCOWMLX_H
#define CCOWMLX_H

#include "cow_mlx.h"
#include "calls.h"

/*
 * Name the library's file, before the first call. NULL: none is named.
 *
 * Otherwise it is the one in $COWMLX_LIBRARY, the one in the folder $COWMLX_LIB_DIR, one that the
 * process has loaded already, one near the program (see places in loader.c), or one that the
 * system's loader finds, in this order.
 *
 * COW_MLX_ESTATE: a library is in use already. COW_MLX_ENOMEM: there is too little memory.
 */
cow_mlx_status cow_mlx_use_library(const char* _Nullable path);

/* The file of the library in use, which is loaded if none is; "" if none is found. */
const char* _Nonnull cow_mlx_library_path(void);

/*
 * The calls of the library. Before it is loaded they are functions that load it, and that fail with
 * COW_MLX_ENOENT, COW_MLX_EFORMAT or COW_MLX_EUNSUPPORTED if that fails; error_message() and
 * error_details() then say why. Never blocks, async-signal-safe.
 */
const cow_mlx_calls* _Nonnull cow_mlx_loaded(void);

/* Call a function on a new thread, which ends with it. False: the system has no thread. */
bool cow_mlx_start_thread(void (*_Nonnull function)(void* _Nullable), void* _Nullable argument);

#endif /* CCOWMLX_H */
