#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <gio/gio.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LARGEST (64 << 20) /* bytes of a file that is read */

static char* folder(void) {
  return g_build_filename(g_get_user_data_dir(), "cowmlx-desktop", "conversations", NULL);
}

static char* path_of(const char* id, const char* suffix) {
  char* in = folder();
  char* name = g_strconcat(id, suffix, NULL);
  char* path = g_build_filename(in, name, NULL);
  g_free(name);
  g_free(in);
  return path;
}

char* store_context(const char* id) { return path_of(id, ".safetensors"); }

static bool fail(GError** error, const char* what, const char* path, int number) {
  g_set_error(error, G_IO_ERROR, g_io_error_from_errno(number), "%s %s: %s", path, what,
              g_strerror(number));
  return false;
}

static bool make_folder(GError** error) {
  char* path = folder();
  bool made = g_mkdir_with_parents(path, 0700) == 0 || fail(error, "cannot be made", path, errno);
  g_free(path);
  return made;
}

void store_release(Record* record) {
  if (record->lock >= 0) close(record->lock);
  record->lock = -1;
}

/* Two writers of one conversation would overwrite each other. Without locks in the file system,
 * both may write. */
static bool is_free(Record* record, const char* path) {
  int lock = open(path, O_RDONLY);
  if (lock >= 0) fcntl(lock, F_SETFD, FD_CLOEXEC);
  if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(lock);
    return false;
  }
  store_release(record); /* the lock of the earlier file */
  record->lock = lock;
  return true;
}

bool store_write(Record* record, GError** error) {
  if (!make_folder(error)) return false;
  char* path = path_of(record->id, ".json");
  char* json = record_json(record);
  bool written = g_file_set_contents_full(
      path, json, -1, G_FILE_SET_CONTENTS_CONSISTENT | G_FILE_SET_CONTENTS_DURABLE, 0600, error);
  if (written) is_free(record, path);
  g_free(json);
  g_free(path);
  return written;
}

bool store_has(const char* id) {
  char* path = path_of(id, ".json");
  bool there = g_file_test(path, G_FILE_TEST_EXISTS);
  g_free(path);
  return there;
}

static Record* read_file(const char* path, const char* id, GError** error) {
  GStatBuf status;
  if (g_stat(path, &status) != 0) {
    fail(error, "cannot be read", path, errno);
    return NULL;
  }
  if (!S_ISREG(status.st_mode) || status.st_size > LARGEST) {
    g_set_error(error, G_IO_ERROR, G_IO_ERROR_INVALID_DATA, "%s is no file of at most %d bytes",
                path, LARGEST);
    return NULL;
  }
  char* json;
  gsize length;
  if (!g_file_get_contents(path, &json, &length, error)) return NULL;
  Record* record = record_read(id, json, length, error);
  if (!record) g_prefix_error(error, "%s is damaged: ", path);
  g_free(json);
  return record;
}

Record* store_read(const char* id, GError** error) {
  char* path = path_of(id, ".json");
  Record* record = read_file(path, id, error);
  if (record && !is_free(record, path)) {
    g_set_error(error, G_IO_ERROR, G_IO_ERROR_BUSY, "“%s” is open in another window",
                record->title);
    g_clear_pointer(&record, record_free);
  }
  g_free(path);
  return record;
}

/* ------------------------------------------------------------------- List */

typedef struct Entry {
  gint64 changed; /* microseconds */
  Record* record;
} Entry;

static int by_age(gconstpointer a, gconstpointer b) {
  const Entry *one = a, *other = b;
  return (one->changed < other->changed) - (one->changed > other->changed);
}

static gint64 changed(const char* path) {
  GFile* file = g_file_new_for_path(path);
  GFileInfo* info = g_file_query_info(file, "time::modified,time::modified-usec",
                                      G_FILE_QUERY_INFO_NONE, NULL, NULL);
  gint64 time = 0;
  if (info) {
    time = (gint64)g_file_info_get_attribute_uint64(info, "time::modified") * G_USEC_PER_SEC +
           g_file_info_get_attribute_uint32(info, "time::modified-usec");
    g_object_unref(info);
  }
  g_object_unref(file);
  return time;
}

/* The list keeps only the end of each conversation in memory. */
static void forget_all_but_the_last(Record* record) {
  if (record->turns->len > 1) g_ptr_array_remove_range(record->turns, 0, record->turns->len - 1);
}

static void add_entry(GArray* to, const char* in, const char* name, GString* problems) {
  char* path = g_build_filename(in, name, NULL);
  char* id = g_strndup(name, strlen(name) - strlen(".json"));
  GError* error = NULL;
  Record* record = read_file(path, id, &error);
  if (record) {
    forget_all_but_the_last(record);
    Entry entry = {changed(path), record};
    g_array_append_val(to, entry);
  } else {
    g_string_append_printf(problems, "%s%s", problems->len ? "\n" : "", error->message);
    g_clear_error(&error);
  }
  g_free(id);
  g_free(path);
}

GPtrArray* store_list(GString* problems) {
  GArray* entries = g_array_new(FALSE, FALSE, sizeof(Entry));
  GError* error = NULL;
  char* in = folder();
  GDir* files = g_dir_open(in, 0, &error);
  for (const char* name; files && (name = g_dir_read_name(files));) {
    if (g_str_has_suffix(name, ".json") && *name != '.') add_entry(entries, in, name, problems);
  }
  if (error && !g_error_matches(error, G_FILE_ERROR, G_FILE_ERROR_NOENT)) {
    g_string_append(problems, error->message);
  }
  g_clear_error(&error);
  if (files) g_dir_close(files);
  g_free(in);
  g_array_sort(entries, by_age);
  GPtrArray* records = g_ptr_array_new_with_free_func((GDestroyNotify)record_free);
  for (guint i = 0; i < entries->len; i++) {
    g_ptr_array_add(records, g_array_index(entries, Entry, i).record);
  }
  g_array_unref(entries);
  return records;
}

/* ----------------------------------------------------------------- Delete */

static bool delete(const char* path, GError** error) {
  return g_unlink(path) == 0 || errno == ENOENT || fail(error, "cannot be deleted", path, errno);
}

bool store_delete(const char* id, GError** error) {
  char* json = path_of(id, ".json");
  char* context = store_context(id);
  bool deleted = delete(json, error) && delete(context, error);
  g_free(json);
  g_free(context);
  return deleted;
}
