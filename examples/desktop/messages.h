/* Messages as the library takes them: a JSON array of objects with "role" and "content". */
#ifndef MESSAGES_H
#define MESSAGES_H

#include <glib.h>

/* messages is "" at first, and a whole array ever after. text is UTF-8. */
void messages_append(GString* messages, const char* role, const char* text);

/* Go back to what messages was when it had this length. */
void messages_truncate(GString* messages, gsize length);

/* A question and its answer as a JSON object with "messages", to learn from; system may be NULL. */
char* messages_line(const char* system, const char* question, const char* answer);

#endif
