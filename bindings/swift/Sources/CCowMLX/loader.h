/* How the calls of the package find the library. */
#ifndef COWMLX_LOADER_H
#define COWMLX_LOADER_H

#include "CCowMLX.h"

#define COWMLX_HIDDEN __attribute__((visibility("hidden")))

/* A call of the library, and where its address lies in the table. */
struct cowmlx_symbol {
  const char* name;
  size_t offset;
};

/* All calls; the last has no name. */
COWMLX_HIDDEN extern const struct cowmlx_symbol cowmlx_symbols[];

/* Calls that load the library and then make the call. */
COWMLX_HIDDEN extern const cow_mlx_calls cowmlx_unloaded;

/* Load the library unless it is loaded. A failure is this thread's last error. */
COWMLX_HIDDEN cow_mlx_status cowmlx_load(void);

/* Why this thread's last load failed; "" if none did. */
COWMLX_HIDDEN const char* cowmlx_load_message(void);

/* The same as cow_mlx_error_details() gives it. */
COWMLX_HIDDEN cow_mlx_status cowmlx_load_details(char* buffer, size_t capacity, size_t* length);

#endif /* COWMLX_LOADER_H */
