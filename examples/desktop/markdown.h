/* Markdown as widgets, while it is being written. */
#ifndef MARKDOWN_H
#define MARKDOWN_H

#include "widgets.h"

/* An empty box. */
GtkWidget* markdown_new(void);

/* Append text. Only the last block changes. */
void markdown_append(GtkWidget* markdown, const char* text);

/* End the text. */
void markdown_end(GtkWidget* markdown);

#endif
