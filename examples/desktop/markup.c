#include "markup.h"

#include <stdbool.h>
#include <string.h>

#define PIECE 4096 /* bytes of text that are laid out again when the last of them change */
#define WORD 256   /* bytes without a space, which take Pango a time that grows with their square */

typedef enum Style { STRONG, EMPHASIS, LINK, CODE, STYLES } Style;

static const char* const OPEN[STYLES] = {
    "<b>", "<i>", "<u>",
    "<span face=\"monospace\" background=\"#808080\" background_alpha=\"16%\">"};
static const char* const CLOSE[STYLES] = {"</b>", "</i>", "</u>", "</span>"};

typedef struct Writer {
  GPtrArray* pieces;
  GString* piece;
  gsize room;           /* bytes of text that the piece has room for */
  gsize word;           /* bytes since the last space */
  const char* breaks;   /* characters at which it is best broken */
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

/* Where the character that holds this byte begins. */
static gsize character(const char* text, gsize at) {
  while (at > 0 && ((guchar)text[at] & 0xC0) == 0x80) at--;
  return at;
}

/* How much of a text the piece takes. */
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
      enter(self, CODE);
      add_text(self, cmark_node_get_literal(node));
      leave(self, CODE);
      break;
    case CMARK_NODE_SOFTBREAK: /* a line that a model ends is meant to end */
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
    case CMARK_NODE_ITEM: /* in a list that is not shown as one */
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

GPtrArray* markup_of_block(cmark_node* block) {
  Writer self = begin(" \n");
  cmark_iter* all = cmark_iter_new(block);
  for (cmark_event_type event; (event = cmark_iter_next(all)) != CMARK_EVENT_DONE;) {
    add_inline(&self, cmark_iter_get_node(all), event == CMARK_EVENT_ENTER);
  }
  cmark_iter_free(all);
  return end(&self);
}

GPtrArray* markup_of_lines(const char* text) {
  Writer self = begin("\n");
  add_text(&self, text);
  return end(&self);
}
