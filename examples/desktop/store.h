/* Conversations on disk: of each what was said, as JSON, and beside it what its context holds, as
 * the library saves it. Files appear whole or not at all. */
#ifndef STORE_H
#define STORE_H

#include "record.h"

/* Write a conversation; from then on it is open here, as one that was read. */
bool store_write(Record* record, GError** error);

/* Whether one is kept. */
bool store_has(const char* id);

/* Read one, or NULL and why it cannot be read: with G_IO_ERROR_BUSY if it is open elsewhere, in
 * another process or here. It is open until store_release(), or the end of the process. */
Record* store_read(const char* id, GError** error);

/* It may be opened elsewhere. */
void store_release(Record* record);

/* All that are kept, the last first, with the end of what was said as their only turn. Adds to
 * problems what cannot be read, and why; that stays as it is. */
GPtrArray* store_list(GString* problems);

/* Delete one and what its context holds; there need be none. */
bool store_delete(const char* id, GError** error);

/* The file of what a context holds. */
char* store_context(const char* id);

#endif
