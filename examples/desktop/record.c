#include "record.h"

#include <cow_mlx.h>
#include <json-glib/json-glib.h>

static void free_part(gpointer data) {
  Part* part = data;
  g_string_free(part->text, TRUE);
  g_free(part);
}

static void free_turn(gpointer data) {
  Turn* turn = data;
  g_free(turn->question);
  g_ptr_array_unref(turn->parts);
  g_free(turn);
}

Record* record_new(void) {
  Record* self = g_new0(Record, 1);
  self->turns = g_ptr_array_new_with_free_func(free_turn);
  return self;
}

void record_free(Record* self) {
  g_ptr_array_unref(self->turns);
  g_free(self);
}

Turn* record_ask(Record* self, const char* question) {
  Turn* turn = g_new0(Turn, 1);
  turn->question = g_strdup(question);
  turn->parts = g_ptr_array_new_with_free_func(free_part);
  g_ptr_array_add(self->turns, turn);
  return turn;
}

GPtrArray* record_cut(Record* self, guint turn) {
  GPtrArray* cut = g_ptr_array_new_with_free_func(free_turn);
  while (self->turns->len > turn) {
    g_ptr_array_insert(cut, 0, g_ptr_array_steal_index(self->turns, self->turns->len - 1));
  }
  return cut;
}

void record_put_back(Record* self, GPtrArray* turns) {
  g_ptr_array_extend_and_steal(self->turns, turns);
}

void turn_append(Turn* self, int32_t kind, const char* text) {
  Part* last = self->parts->len ? self->parts->pdata[self->parts->len - 1] : NULL;
  if (last && last->kind == kind && kind != COW_MLX_EVENT_TOOL_CALL) {
    g_string_append(last->text, text);
    return;
  }
  Part* part = g_new(Part, 1);
  *part = (Part){kind, g_string_new(text)};
  g_ptr_array_add(self->parts, part);
}

char* turn_answer(const Turn* self) {
  GString* answer = g_string_new(NULL);
  for (guint i = 0; i < self->parts->len; i++) {
    const Part* part = self->parts->pdata[i];
    if (part->kind == COW_MLX_EVENT_TEXT) g_string_append(answer, part->text->str);
  }
  return g_string_free(answer, FALSE);
}

/* ------------------------------------------------------------------- JSON */

static void add_string(JsonBuilder* to, const char* name, const char* text) {
  json_builder_set_member_name(to, name);
  json_builder_add_string_value(to, text);
}

static void add_message(JsonBuilder* to, const char* role, const char* content) {
  json_builder_begin_object(to);
  add_string(to, "role", role);
  add_string(to, "content", content);
  json_builder_end_object(to);
}

/* The last turn of a conversation may have no answer yet. */
static void add_turn(JsonBuilder* to, const Turn* turn) {
  add_message(to, "user", turn->question);
  if (!turn->parts->len) return;
  char* answer = turn_answer(turn);
  add_message(to, "assistant", answer);
  g_free(answer);
}

static char* end(JsonBuilder* builder) {
  JsonNode* root = json_builder_get_root(builder);
  char* text = json_to_string(root, FALSE);
  json_node_unref(root);
  g_object_unref(builder);
  return text;
}

char* record_messages(const Record* self, const char* system) {
  JsonBuilder* builder = json_builder_new();
  json_builder_begin_array(builder);
  if (system) add_message(builder, "system", system);
  for (guint i = 0; i < self->turns->len; i++) add_turn(builder, self->turns->pdata[i]);
  json_builder_end_array(builder);
  return end(builder);
}

char* turn_line(const Turn* self, const char* system) {
  JsonBuilder* builder = json_builder_new();
  json_builder_begin_object(builder);
  json_builder_set_member_name(builder, "messages");
  json_builder_begin_array(builder);
  if (system) add_message(builder, "system", system);
  add_turn(builder, self);
  json_builder_end_array(builder);
  json_builder_end_object(builder);
  return end(builder);
}
