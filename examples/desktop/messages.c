#include "messages.h"

static void append_string(GString* to, const char* text) {
  g_string_append_c(to, '"');
  for (; *text; text++) {
    guchar c = (guchar)*text;
    if (c == '"' || c == '\\' || c < ' ') {
      g_string_append_printf(to, "\\u%04x", c);
    } else {
      g_string_append_c(to, *text);
    }
  }
  g_string_append_c(to, '"');
}

void messages_append(GString* messages, const char* role, const char* text) {
  if (messages->len) {
    messages->str[messages->len - 1] = ',';
  } else {
    g_string_append_c(messages, '[');
  }
  g_string_append_printf(messages, "{\"role\":\"%s\",\"content\":", role);
  append_string(messages, text);
  g_string_append(messages, "}]");
}

void messages_truncate(GString* messages, gsize length) {
  g_string_truncate(messages, length);
  if (length) messages->str[length - 1] = ']';
}

char* messages_line(const char* system, const char* question, const char* answer) {
  GString* messages = g_string_new(NULL);
  if (system) messages_append(messages, "system", system);
  messages_append(messages, "user", question);
  messages_append(messages, "assistant", answer);
  g_string_prepend(messages, "{\"messages\":");
  g_string_append_c(messages, '}');
  return g_string_free(messages, FALSE);
}
