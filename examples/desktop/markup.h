/* Text as Pango markup, in pieces of bounded length. Nothing here needs a display. */
#ifndef MARKUP_H
#define MARKUP_H

#include <cmark.h>
#include <glib.h>

/* What stands in a block, such as a paragraph. Whatever a model writes is escaped. */
GPtrArray* markup_of_block(cmark_node* block);

/* Lines as they are. */
GPtrArray* markup_of_lines(const char* text);

#endif
