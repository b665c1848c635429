/*
 * Shows Markdown from standard input, given in parts of N bytes, and prints the widgets, a line
 * each: markdown_host N
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "markdown.h"

static void print(GtkWidget* widget, int depth) {
  char** classes = gtk_widget_get_css_classes(widget);
  char* name = g_strjoinv(" ", classes);
  if (GTK_IS_LABEL(widget)) {
    char* line = g_strescape(gtk_label_get_label(GTK_LABEL(widget)), "\x7f•");
    printf("%*s%s\n", depth, "", line);
    g_free(line);
  } else if (GTK_IS_BUTTON(widget)) {
    printf("%*sbutton\n", depth, "");
  } else {
    printf("%*s[%s]\n", depth, "", name);
    for (GtkWidget* child = gtk_widget_get_first_child(widget); child;
         child = gtk_widget_get_next_sibling(child)) {
      print(child, depth + 1);
    }
  }
  g_free(name);
  g_strfreev(classes);
}

int main(int argc, char** argv) {
  static char text[4 << 20];
  size_t step = argc > 1 ? strtoul(argv[1], NULL, 10) : 0;
  size_t length = fread(text, 1, sizeof text - 1, stdin);
  gtk_init();
  GtkWidget* markdown = g_object_ref_sink(markdown_new());
  for (size_t at = 0; at < length; at += step) {
    char* part = g_strndup(text + at, step);
    markdown_append(markdown, part);
    g_free(part);
  }
  markdown_end(markdown);
  int natural;
  gtk_widget_measure(markdown, GTK_ORIENTATION_VERTICAL, 600, NULL, &natural, NULL, NULL);
  print(markdown, 0);
  g_object_unref(markdown);
  return natural > 0 ? 0 : 1;
}
