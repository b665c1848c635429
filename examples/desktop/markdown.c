#include "markdown.h"

#include <cmark.h>
#include <stdbool.h>
#include <string.h>

/* ----------------- Text as Pango markup, in pieces of bounded length. The text is escaped. */

#define PIECE 4096 /* bytes of text that are laid out again when the last of them change */
#define WORD 256   /* bytes without a space, which take Pango a time that grows with their square */

typedef enum Style { STRONG, EMPHASIS, LINK, CODE_SPAN, STYLES } Style;

static const char* const OPEN[STYLES] = {
    "<b>", "<i>", "<u>",
    "<span face=\"monospace\" background=\"#808080\" background_alpha=\"16%\">"};
static const char* const CLOSE[STYLES] = {"</b>", "</i>", "</u>", "</span>"};

typedef struct Writer {
  GPtrArray* pieces;
  GString* piece;
  gsize room;           /* bytes of text left in the piece */
  gsize word;           /* bytes since the last space */
  const char* breaks;   /* characters at which to break it */
  guint depth[STYLES];  /* how often a style is nested: once is enough to show it */
  Style opened[STYLES]; /* the styles that are on, the outermost first */
  guint count;          /* of them */
} Writer;

static void next_piece(Writer* self) {
  for (guint i = self->count; i-- > 0;) g_string_append(self->piece, CLOSE[self->opened[i]]);
  g_ptr_array_add(self->pieces, g_string_free(self->piece, FALSE));
  self->piece = g_string_new(NULL);
  self->room = PIECE;
  self->word = 0;
  for (guint i = 0; i < self->count; i++) g_string_append(self->piece, OPEN[self->opened[i]]);
}

/* The first byte of the character that contains this byte. */
static gsize character(const char* text, gsize at) {
  while (at > 0 && ((guchar)text[at] & 0xC0) == 0x80) at--;
  return at;
}

/* The number of bytes of a text that the piece takes. */
static gsize fitting(Writer* self, const char* text) {
  gsize end = 0;
  for (; text[end] && end < self->room; end++) {
    self->word = text[end] == ' ' || text[end] == '\n' ? 0 : self->word + 1;
    if (self->word > WORD) return character(text, end);
  }
  if (!text[end]) return end;
  for (gsize i = end; i-- > 0;) {
    if (strchr(self->breaks, text[i])) return i + 1;
  }
  return character(text, end);
}

static void add_escaped(Writer* self, const char* text, gsize length) {
  char* escaped = g_markup_escape_text(text, (gssize)length);
  g_string_append(self->piece, escaped);
  g_free(escaped);
}

static void add_text(Writer* self, const char* text) {
  gsize end;
  for (; text[end = fitting(self, text)]; text += end) {
    bool dropped = end > 0 && strchr(self->breaks, text[end - 1]); /* a new piece is a new line */
    add_escaped(self, text, dropped ? end - 1 : end);
    next_piece(self);
  }
  add_escaped(self, text, end);
  self->room -= end;
}

static void enter(Writer* self, Style style) {
  if (self->depth[style]++ > 0) return;
  self->opened[self->count++] = style;
  g_string_append(self->piece, OPEN[style]);
}

static void leave(Writer* self, Style style) {
  if (--self->depth[style] > 0) return;
  self->count--;
  g_string_append(self->piece, CLOSE[style]);
}

/* A model can link to anything, so the address is shown and cannot be clicked. */
static void leave_link(Writer* self, cmark_node* node) {
  leave(self, LINK);
  const char* address = cmark_node_get_url(node);
  cmark_node* text = cmark_node_first_child(node);
  const char* shown = text && !cmark_node_next(text) ? cmark_node_get_literal(text) : NULL;
  if (!*address || g_strcmp0(shown, address) == 0) return;
  add_text(self, " (");
  add_text(self, address);
  add_text(self, ")");
}

static void add_inline(Writer* self, cmark_node* node, bool entering) {
  switch (cmark_node_get_type(node)) {
    case CMARK_NODE_TEXT:
    case CMARK_NODE_HTML_INLINE:
    case CMARK_NODE_HTML_BLOCK:
    case CMARK_NODE_CODE_BLOCK:
      add_text(self, cmark_node_get_literal(node));
      break;
    case CMARK_NODE_CODE:
      enter(self, CODE_SPAN);
      add_text(self, cmark_node_get_literal(node));
      leave(self, CODE_SPAN);
      break;
    case CMARK_NODE_SOFTBREAK: /* keep the line breaks of a model */
    case CMARK_NODE_LINEBREAK:
      add_text(self, "\n");
      break;
    case CMARK_NODE_STRONG:
      (entering ? enter : leave)(self, STRONG);
      break;
    case CMARK_NODE_EMPH:
      (entering ? enter : leave)(self, EMPHASIS);
      break;
    case CMARK_NODE_LINK:
    case CMARK_NODE_IMAGE:
      if (entering) {
        enter(self, LINK);
      } else {
        leave_link(self, node);
      }
      break;
    case CMARK_NODE_ITEM: /* in a list that is too deep */
      if (entering && self->room < PIECE) add_text(self, "\n");
      break;
    default:
      break;
  }
}

static Writer begin(const char* breaks) {
  return (Writer){.pieces = g_ptr_array_new_with_free_func(g_free),
                  .piece = g_string_new(NULL),
                  .room = PIECE,
                  .breaks = breaks};
}

static GPtrArray* end(Writer* self) {
  GString* piece = self->piece;
  while (g_str_has_suffix(piece->str, "\n")) g_string_truncate(piece, piece->len - 1);
  g_ptr_array_add(self->pieces, g_string_free(piece, FALSE));
  return self->pieces;
}

static GPtrArray* markup_of_block(cmark_node* block) {
  Writer self = begin(" \n");
  cmark_iter* all = cmark_iter_new(block);
  for (cmark_event_type event; (event = cmark_iter_next(all)) != CMARK_EVENT_DONE;) {
    add_inline(&self, cmark_iter_get_node(all), event == CMARK_EVENT_ENTER);
  }
  cmark_iter_free(all);
  return end(&self);
}

static GPtrArray* markup_of_lines(const char* text) {
  Writer self = begin("\n");
  add_text(&self, text);
  return end(&self);
}

/* ---------------------------------------------------------------- Widgets */

#define DEEPEST 6 /* nested lists and quotes; deeper ones are shown as text */

enum { TEXT = 1, PREFORMATTED, CODE, QUOTE, LIST, ITEM, RULE, HEADING };

/* Only text that may still change is parsed again. */
typedef struct Stream {
  GString* open;      /* the text of the blocks that are not settled */
  GtkWidget* settled; /* the last block that no longer changes, or NULL */
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

/* The widget behind another, or the first one: the existing widget, or a new one in its place. */
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

/* Labels for pieces; labels whose text stays the same are not laid out again. */
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
  int first = 1; /* first line that is not settled */
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
