/*
 * Conversations on disk, below XDG_DATA_HOME: store_host, prints which there are and what is wrong
 * with others; store_host full, keeps one, and keeps it again where no file can grow that far;
 * store_host twice, opens one that is open.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "store.h"

static void list(void) {
  GString* problems = g_string_new(NULL);
  GPtrArray* records = store_list(problems);
  for (guint i = 0; i < records->len; i++) {
    const Record* record = records->pdata[i];
    printf("%s: %s\n", record->id, record->title);
  }
  printf("%s\n", problems->str);
  g_string_free(problems, TRUE);
  g_ptr_array_unref(records);
}

static int keep(Record* record) {
  GError* error = NULL;
  if (store_write(record, &error)) return 0;
  printf("%s\n", error->message);
  g_error_free(error);
  return 1;
}

/* Tell whether it can be opened, and leave it closed. */
static void try(const char* id) {
  GError* error = NULL;
  Record* record = store_read(id, &error);
  printf("%s\n", record ? record->title : error->message);
  g_clear_error(&error);
  if (!record) return;
  store_release(record);
  record_free(record);
}

static int twice(void) {
  Record* record = record_new();
  record->title = g_strdup("first");
  int failures = keep(record);
  try(record->id);
  record->title[0] = 'F';
  failures += keep(record);
  try(record->id);
  store_release(record);
  try(record->id);
  record_free(record);
  return failures;
}

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "twice") == 0) return twice();
  if (argc < 2 || strcmp(argv[1], "full") != 0) {
    list();
    return 0;
  }
  Record* record = record_new();
  record->title = g_strdup("before");
  int failures = keep(record);
  g_free(record->title);
  record->title = g_strnfill(10000, 'x');
  signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &(struct rlimit){1000, 1000});
  failures += keep(record);
  list();
  record_free(record);
  return failures;
}
