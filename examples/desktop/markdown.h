/* Markdown as widgets, while it is being written. */
#ifndef MARKDOWN_H
#define MARKDOWN_H

#include "gtk48.h"

/* A box for a text that is yet to come. */
GtkWidget* markdown_new(void);

/* More of the text. What is shown already stays, but for the last block. */
void markdown_append(GtkWidget* markdown, const char* text);

/* There is no more. */
void markdown_end(GtkWidget* markdown);

#endif
