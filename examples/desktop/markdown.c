#include "markdown.h"

#include <stdbool.h>
#include <string.h>

#include "copy.h"
#include "label.h"
#include "markup.h"

#define DEEPEST 6 /* lists and quotes in one another; of what is deeper, only the text is shown */

enum { TEXT = 1, PREFORMATTED, CODE, QUOTE, LIST, ITEM, RULE, HEADING };

/* What may still change is parsed again, and no more than that. */
typedef struct Stream {
  GString* open;      /* the text from the first block on that is not settled */
  GtkWidget* settled; /* the last block that stays as it is, or NULL */
} Stream;

static void free_stream(gpointer data) {
  Stream* self = data;
  g_string_free(self->open, TRUE);
  g_free(self);
}

/* ----------------------------------------------------------------- Blocks */

static GtkWidget* build_box(GtkOrientation orientation, int spacing, const char* css_class) {
  GtkWidget* box = gtk_box_new(orientation, spacing);
  gtk_widget_add_css_class(box, css_class);
  return box;
}

static GtkWidget* build_code(void) {
  GtkWidget* box = build_box(GTK_ORIENTATION_VERTICAL, 0, "code");
  GtkWidget* head = build_box(GTK_ORIENTATION_HORIZONTAL, 8, "head");
  GtkWidget* language = gtk_label_new(NULL);
  gtk_label_set_xalign(GTK_LABEL(language), 0);
  gtk_label_set_ellipsize(GTK_LABEL(language), PANGO_ELLIPSIZE_END);
  gtk_widget_set_hexpand(language, TRUE);
  gtk_box_append(GTK_BOX(head), language);
  gtk_box_append(GTK_BOX(head), copy_button_new("Copy code"));
  gtk_box_append(GTK_BOX(box), head);
  gtk_box_append(GTK_BOX(box), build_box(GTK_ORIENTATION_VERTICAL, 0, "lines"));
  return box;
}

static GtkWidget* build_item(void) {
  GtkWidget* box = build_box(GTK_ORIENTATION_HORIZONTAL, 8, "item");
  GtkWidget* mark = gtk_label_new(NULL);
  GtkWidget* content = build_box(GTK_ORIENTATION_VERTICAL, 4, "blocks");
  gtk_widget_set_valign(mark, GTK_ALIGN_START);
  gtk_widget_set_hexpand(content, TRUE);
  gtk_box_append(GTK_BOX(box), mark);
  gtk_box_append(GTK_BOX(box), content);
  return box;
}

static GtkWidget* build(int kind) {
  switch (kind) {
    case CODE:
      return build_code();
    case QUOTE:
      return build_box(GTK_ORIENTATION_VERTICAL, 8, "quote");
    case LIST:
      return build_box(GTK_ORIENTATION_VERTICAL, 4, "list");
    case ITEM:
      return build_item();
    case RULE:
      return gtk_separator_new(GTK_ORIENTATION_HORIZONTAL);
    default:
      break;
  }
  char* css_class = kind >= HEADING ? g_strdup_printf("h%d", kind - HEADING)
                                    : g_strdup(kind == PREFORMATTED ? "preformatted" : "text");
  GtkWidget* box = build_box(GTK_ORIENTATION_VERTICAL, 0, css_class);
  g_free(css_class);
  return box;
}

/* The widget behind another, or the first: the one that is there, or a new one in its place. */
static GtkWidget* place(GtkWidget* box, GtkWidget* after, int kind) {
  GtkWidget* there = after ? gtk_widget_get_next_sibling(after) : gtk_widget_get_first_child(box);
  if (there && GPOINTER_TO_INT(g_object_get_data(G_OBJECT(there), "kind")) == kind) return there;
  GtkWidget* widget = build(kind);
  g_object_set_data(G_OBJECT(widget), "kind", GINT_TO_POINTER(kind));
  gtk_box_insert_child_after(GTK_BOX(box), widget, after);
  return widget;
}

static void remove_behind(GtkWidget* box, GtkWidget* last) {
  GtkWidget* next;
  while ((next = last ? gtk_widget_get_next_sibling(last) : gtk_widget_get_first_child(box))) {
    gtk_box_remove(GTK_BOX(box), next);
  }
}

/* Labels for pieces; those that show theirs already are not laid out again. */
static void show_pieces(GtkWidget* box, GPtrArray* pieces) {
  GtkWidget* last = NULL;
  for (guint i = 0; i < pieces->len; i++) {
    GtkWidget* label = last ? gtk_widget_get_next_sibling(last) : gtk_widget_get_first_child(box);
    if (!label) gtk_box_append(GTK_BOX(box), label = label_new(NULL));
    if (strcmp(gtk_label_get_label(GTK_LABEL(label)), pieces->pdata[i]) != 0) {
      gtk_label_set_markup(GTK_LABEL(label), pieces->pdata[i]);
    }
    last = label;
  }
  remove_behind(box, last);
  g_ptr_array_unref(pieces);
}

static void show_code(GtkWidget* box, cmark_node* node) {
  GtkWidget* head = gtk_widget_get_first_child(box);
  GtkWidget* language = gtk_widget_get_first_child(head);
  const char* info = cmark_node_get_fence_info(node);
  gtk_label_set_text(GTK_LABEL(language), info ? info : "");
  const char* literal = cmark_node_get_literal(node);
  copy_button_set_text(gtk_widget_get_next_sibling(language), literal);
  show_pieces(gtk_widget_get_next_sibling(head), markup_of_lines(literal));
}

static void show_blocks(GtkWidget* box, GtkWidget* after, cmark_node* parent, int depth);

static void show_list(GtkWidget* box, cmark_node* list, int depth) {
  bool counted = cmark_node_get_list_type(list) == CMARK_ORDERED_LIST;
  int number = cmark_node_get_list_start(list);
  GtkWidget* item = NULL;
  for (cmark_node* node = cmark_node_first_child(list); node; node = cmark_node_next(node)) {
    item = place(box, item, ITEM);
    GtkWidget* mark = gtk_widget_get_first_child(item);
    char* text = counted ? g_strdup_printf("%d.", number++) : g_strdup("•");
    gtk_label_set_text(GTK_LABEL(mark), text);
    g_free(text);
    show_blocks(gtk_widget_get_next_sibling(mark), NULL, node, depth);
  }
  remove_behind(box, item);
}

static int kind_of(cmark_node* node, int depth) {
  switch (cmark_node_get_type(node)) {
    case CMARK_NODE_HEADING:
      return HEADING + cmark_node_get_heading_level(node);
    case CMARK_NODE_CODE_BLOCK:
      return CODE;
    case CMARK_NODE_BLOCK_QUOTE:
      return depth < DEEPEST ? QUOTE : PREFORMATTED;
    case CMARK_NODE_LIST:
      return depth < DEEPEST ? LIST : PREFORMATTED;
    case CMARK_NODE_HTML_BLOCK:
      return PREFORMATTED;
    case CMARK_NODE_THEMATIC_BREAK:
      return RULE;
    default:
      return TEXT;
  }
}

static void show_blocks(GtkWidget* box, GtkWidget* after, cmark_node* parent, int depth) {
  GtkWidget* block = after;
  for (cmark_node* node = cmark_node_first_child(parent); node; node = cmark_node_next(node)) {
    int kind = kind_of(node, depth);
    block = place(box, block, kind);
    if (kind == CODE) {
      show_code(block, node);
    } else if (kind == QUOTE) {
      show_blocks(block, NULL, node, depth + 1);
    } else if (kind == LIST) {
      show_list(block, node, depth + 1);
    } else if (kind != RULE) {
      show_pieces(block, markup_of_block(node));
    }
  }
  remove_behind(box, block);
}

/* ----------------------------------------------------------------- Stream */

/* "-" or "=" under a paragraph makes it a heading, but may be the beginning of something else. */
static gsize length_to_show(const GString* text) {
  const char* newline = strrchr(text->str, '\n');
  if (!newline || newline[1 + strspn(newline + 1, "-= ")]) return text->len;
  return (gsize)(newline + 1 - text->str);
}

/* A block is settled as soon as a whole line of the next one is there. */
static void settle(Stream* self, GtkWidget* box, cmark_node* document) {
  int lines = 0; /* whole ones */
  for (const char* at = self->open->str; (at = strchr(at, '\n')); at++) lines++;
  GtkWidget* shown = self->settled;
  int first = 1; /* line of what is not settled */
  for (cmark_node* node = cmark_node_first_child(document); node; node = cmark_node_next(node)) {
    if (cmark_node_get_start_line(node) > lines) break;
    if (cmark_node_previous(node)) self->settled = shown;
    first = cmark_node_previous(node) ? cmark_node_get_start_line(node) : first;
    shown = shown ? gtk_widget_get_next_sibling(shown) : gtk_widget_get_first_child(box);
  }
  const char* start = self->open->str;
  for (int line = 1; line < first; line++) start = strchr(start, '\n') + 1;
  g_string_erase(self->open, 0, start - self->open->str);
}

static void show(GtkWidget* markdown, Stream* self, gsize length) {
  cmark_node* document =
      cmark_parse_document(self->open->str, length, CMARK_OPT_DEFAULT | CMARK_OPT_VALIDATE_UTF8);
  show_blocks(markdown, self->settled, document, 0);
  settle(self, markdown, document);
  cmark_node_free(document);
}

GtkWidget* markdown_new(void) {
  GtkWidget* box = build_box(GTK_ORIENTATION_VERTICAL, 8, "blocks");
  Stream* self = g_new0(Stream, 1);
  self->open = g_string_new(NULL);
  g_object_set_data_full(G_OBJECT(box), "stream", self, free_stream);
  return box;
}

void markdown_append(GtkWidget* markdown, const char* text) {
  Stream* self = g_object_get_data(G_OBJECT(markdown), "stream");
  g_string_append(self->open, text);
  show(markdown, self, length_to_show(self->open));
}

void markdown_end(GtkWidget* markdown) {
  Stream* self = g_object_get_data(G_OBJECT(markdown), "stream");
  show(markdown, self, self->open->len);
}
