#include "record.h"

#include <cow_mlx.h>
#include <gio/gio.h>
#include <json-glib/json-glib.h>

#define VERSION 1  /* of the file format */
#define DEEPEST 32 /* nested arrays and objects */

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
  self->id = g_uuid_string_random();
  self->lock = -1;
  self->turns = g_ptr_array_new_with_free_func(free_turn);
  return self;
}

void record_free(Record* self) {
  g_free(self->id);
  g_free(self->title);
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

/* ----------------------------------------------------------------- Writing */

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

static const char* const KINDS[] = {[COW_MLX_EVENT_TEXT] = "text",
                                    [COW_MLX_EVENT_REASONING] = "reasoning",
                                    [COW_MLX_EVENT_TOOL_CALL] = "tool call"};

static void add_parts(JsonBuilder* to, const Turn* turn) {
  json_builder_set_member_name(to, "parts");
  json_builder_begin_array(to);
  for (guint i = 0; i < turn->parts->len; i++) {
    const Part* part = turn->parts->pdata[i];
    json_builder_begin_object(to);
    add_string(to, "kind", KINDS[part->kind]);
    add_string(to, "text", part->text->str);
    json_builder_end_object(to);
  }
  json_builder_end_array(to);
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

char* record_json(const Record* self) {
  JsonBuilder* builder = json_builder_new();
  json_builder_begin_object(builder);
  json_builder_set_member_name(builder, "version");
  json_builder_add_int_value(builder, VERSION);
  add_string(builder, "title", self->title ? self->title : "");
  json_builder_set_member_name(builder, "messages");
  json_builder_begin_array(builder);
  for (guint i = 0; i < self->turns->len; i++) {
    const Turn* turn = self->turns->pdata[i];
    char* answer = turn_answer(turn);
    add_message(builder, "user", turn->question);
    json_builder_begin_object(builder);
    add_string(builder, "role", "assistant");
    add_string(builder, "content", answer);
    add_parts(builder, turn);
    json_builder_set_member_name(builder, "whole");
    json_builder_add_boolean_value(builder, turn->whole);
    json_builder_end_object(builder);
    g_free(answer);
  }
  json_builder_end_array(builder);
  json_builder_end_object(builder);
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

/* ----------------------------------------------------------------- Reading */

/* The parser calls itself for each array and object. */
static bool is_shallow(const char* json, gsize length) {
  int depth = 0;
  bool quoted = false;
  for (gsize i = 0; i < length; i++) {
    if (quoted && json[i] == '\\') {
      i++;
    } else if (json[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && (json[i] == '[' || json[i] == '{')) {
      if (++depth > DEEPEST) return false;
    } else if (!quoted && (json[i] == ']' || json[i] == '}')) {
      depth--;
    }
  }
  return true;
}

static JsonNode* member(JsonNode* object, const char* name, GType type) {
  if (!object || !JSON_NODE_HOLDS_OBJECT(object)) return NULL;
  JsonNode* node = json_object_get_member(json_node_get_object(object), name);
  return node && json_node_get_value_type(node) == type ? node : NULL;
}

/* The parser accepts half of a surrogate pair, which no widget can show, in values and messages. */
static const char* string(JsonNode* object, const char* name) {
  JsonNode* node = member(object, name, G_TYPE_STRING);
  const char* text = node ? json_node_get_string(node) : NULL;
  return text && g_utf8_validate(text, -1, NULL) ? text : NULL;
}

static JsonArray* array(JsonNode* object, const char* name) {
  JsonNode* node = member(object, name, JSON_TYPE_ARRAY);
  return node ? json_node_get_array(node) : NULL;
}

static bool read_part(Turn* turn, JsonNode* node) {
  const char *name = string(node, "kind"), *text = string(node, "text");
  for (int32_t kind = COW_MLX_EVENT_TEXT; kind < COW_MLX_EVENT_END; kind++) {
    if (!text || g_strcmp0(name, KINDS[kind]) != 0) continue;
    turn_append(turn, kind, text);
    return true;
  }
  return false;
}

static bool read_answer(Turn* turn, JsonNode* node) {
  JsonArray* parts = array(node, "parts");
  const char* content = string(node, "content");
  for (guint i = 0; parts && i < json_array_get_length(parts); i++) {
    if (!read_part(turn, json_array_get_element(parts, i))) return false;
  }
  if (!turn->parts->len && content) turn_append(turn, COW_MLX_EVENT_TEXT, content);
  JsonNode* whole = member(node, "whole", G_TYPE_BOOLEAN);
  turn->whole = whole && json_node_get_boolean(whole);
  return turn->parts->len > 0;
}

/* Questions and answers alternate. */
static bool read_messages(Record* self, JsonArray* messages) {
  guint count = messages ? json_array_get_length(messages) : 1;
  for (guint i = 0; i + 1 < count; i += 2) {
    JsonNode *asked = json_array_get_element(messages, i),
             *answered = json_array_get_element(messages, i + 1);
    const char* question = string(asked, "content");
    if (!question || g_strcmp0(string(asked, "role"), "user") != 0 ||
        g_strcmp0(string(answered, "role"), "assistant") != 0 ||
        !read_answer(record_ask(self, question), answered)) {
      return false;
    }
  }
  return count % 2 == 0;
}

static bool read_root(Record* self, JsonNode* root) {
  JsonNode* version = member(root, "version", G_TYPE_INT64);
  const char* title = string(root, "title");
  if (!title || !version || json_node_get_int(version) != VERSION) return false;
  self->title = g_strdup(title);
  return read_messages(self, array(root, "messages"));
}

Record* record_read(const char* id, const char* json, gsize length, GError** error) {
  JsonParser* parser = json_parser_new();
  Record* self = record_new();
  g_free(self->id);
  self->id = g_strdup(id);
  bool read = false;
  if (!is_shallow(json, length)) {
    g_set_error(error, G_IO_ERROR, G_IO_ERROR_INVALID_DATA,
                "more than %d arrays and objects in one another", DEEPEST);
  } else if (json_parser_load_from_data(parser, json, (gssize)length, error)) {
    read = read_root(self, json_parser_get_root(parser));
    if (!read) {
      g_set_error(error, G_IO_ERROR, G_IO_ERROR_INVALID_DATA,
                  "this is no conversation of version %d", VERSION);
    }
  }
  g_object_unref(parser);
  if (error && *error) {
    char* message = (*error)->message;
    (*error)->message = g_utf8_make_valid(message, -1);
    g_free(message);
  }
  if (read) return self;
  record_free(self);
  return NULL;
}
