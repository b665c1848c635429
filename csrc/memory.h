/* Memory of arrays, which several may hold. Any thread may call. */
#ifndef COW_MEMORY_H
#define COW_MEMORY_H

#include <stddef.h>

/* Memory for so many bytes, aligned to 64 and held once; NULL if there is too little. */
void* cow_memory_new(size_t bytes);
void cow_memory_hold(void* data);
void cow_memory_let_go(void* data);

/* Give back what is kept for reuse. */
void cow_memory_trim(void);

#endif
