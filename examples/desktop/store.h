/* Conversations on disk: the turns as JSON, and beside them the context as the library saves it.
 * Files appear whole or not at all. */
#ifndef STORE_H
#define STORE_H

#include "record.h"

/* Write a conversation; it is open here afterwards, like one that was read. */
bool store_write(Record* record, GError** error);

/* Whether a conversation is on disk. */
bool store_has(const char* id);

/* Read a conversation, or return NULL and the error: G_IO_ERROR_BUSY if it is open elsewhere, in
 * another process or here. It is open until store_release(), or the end of the process. */
Record* store_read(const char* id, GError** error);

/* Let others open the conversation. */
void store_release(Record* record);

/* All conversations on disk, the last first, with the end of the text as their only turn. Adds
 * files that cannot be read, and the reasons, to problems; they stay unchanged. */
GPtrArray* store_list(GString* problems);

/* Delete a conversation and its saved context, if they exist. */
bool store_delete(const char* id, GError** error);

/* The file of a saved context. */
char* store_context(const char* id);

#endif
