/* The quality-of-service class of the dispatch thread, which macOS schedules by. */
#ifndef COW_QUALITY_H
#define COW_QUALITY_H

#include <stdbool.h>

/* What the names accepted by cow_quality_is_known() are, for messages. */
extern const char* const cow_quality_names;

/* Whether a class has that name; NULL is the default one. */
bool cow_quality_is_known(const char* name);

/* Give the calling thread a class, and so those that it starts. Other systems have none. */
void cow_quality_set(const char* name);

#endif /* COW_QUALITY_H */
