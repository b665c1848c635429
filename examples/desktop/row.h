/* A row in the list of conversations: title, end of the last message, spinner. */
#ifndef ROW_H
#define ROW_H

#include <stdbool.h>

#include "widgets.h"

/* id: of the conversation. title may be NULL. */
GtkWidget* row_new(const char* id, const char* title);

const char* row_id(GtkWidget* row);
const char* row_title(GtkWidget* row);
void row_set_title(GtkWidget* row, const char* title);

/* Show the end of a text, and of added text. */
void row_show(GtkWidget* row, const char* text);
void row_add(GtkWidget* row, const char* text);

void row_set_busy(GtkWidget* row, bool busy);

/* Let the user type another title; Enter activates "win.renamed" with it. */
void row_rename(GtkWidget* row);

/* Keep the title. False if it is not being renamed. */
bool row_stop_renaming(GtkWidget* row);

#endif
