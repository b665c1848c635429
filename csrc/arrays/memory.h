/* Memory of arrays, which several may hold. Any thread may call. */
#ifndef COW_MEMORY_H
#define COW_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes before the data that whoever holds it alone may write, as mlx does. */
enum { COW_MEMORY_FRONT = 32 };

/* Memory for so many bytes, aligned to 64 and held once; NULL if there is too little, or more than
 * the limit. */
void* cow_memory_new(size_t bytes);
void cow_memory_hold(void* data);
void cow_memory_let_go(void* data);

/* Whether others hold it, too. */
bool cow_memory_is_shared(const void* data);

/* The bytes that it has, at least those that were asked for. */
size_t cow_memory_capacity(const void* data);

/* Bound what is held, together with `others` bytes that the engine has. */
void cow_memory_bound(size_t limit, size_t others);

/* The bytes of the last bound, and how many are held, by the engine too. */
size_t cow_memory_limit(void);
size_t cow_memory_in_use(void);

/* Give back what is kept for reuse. */
void cow_memory_trim(void);

#endif
