/* Memory of arrays, which counts its holders. Any thread may call. */
#ifndef COW_MEMORY_H
#define COW_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes before the data that a sole holder may write, as mlx does. */
enum { COW_MEMORY_FRONT = 32 };

/* Memory for so many bytes, aligned to 64 and held once; NULL if there is too little, or more than
 * the limit. */
void* cow_memory_new(size_t bytes);
void cow_memory_hold(void* data);
void cow_memory_let_go(void* data);

/* Whether it has more than one holder. */
bool cow_memory_is_shared(const void* data);

/* Its bytes: at least the number that was asked for. */
size_t cow_memory_capacity(const void* data);

/* Let the engine count the memory from now on: it does so until its holder lets go. */
void cow_memory_count_with_engine(void* data);

/* Bound the memory that is held, together with `others` bytes of the engine. */
void cow_memory_bound(size_t limit, size_t others);

/* The last bound, and the bytes in use, those of the engine included. */
size_t cow_memory_limit(void);
size_t cow_memory_in_use(void);

/* Free the memory that is kept for reuse. */
void cow_memory_trim(void);

/* Let a forked child let go of memory. */
void cow_memory_before_fork(void);
void cow_memory_after_fork(void);

#endif
