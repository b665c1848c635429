#include "boot/quality.h"

#include <stddef.h>
#include <string.h>
#ifdef __APPLE__
#include <pthread/qos.h>
#else
enum {
  QOS_CLASS_USER_INTERACTIVE,
  QOS_CLASS_USER_INITIATED,
  QOS_CLASS_UTILITY,
  QOS_CLASS_BACKGROUND
};
#endif

static const struct {
  const char* name;
  unsigned value;
} classes[] = {
    {"user-initiated", QOS_CLASS_USER_INITIATED}, /* the default */
    {"user-interactive", QOS_CLASS_USER_INTERACTIVE},
    {"utility", QOS_CLASS_UTILITY},
    {"background", QOS_CLASS_BACKGROUND},
};
enum { CLASSES = sizeof classes / sizeof *classes };

const char* const cow_quality_names =
    "\"user-interactive\", \"user-initiated\", \"utility\", \"background\" or NULL";

static int index_of(const char* name) {
  if (!name) return 0;
  for (int i = 0; i < CLASSES; i++) {
    if (strcmp(name, classes[i].name) == 0) return i;
  }
  return -1;
}

bool cow_quality_is_known(const char* name) { return index_of(name) >= 0; }

void cow_quality_set(const char* name) {
  unsigned value = classes[index_of(name)].value;
#ifdef __APPLE__
  pthread_set_qos_class_self_np((qos_class_t)value, 0);
#else
  (void)value;
#endif
}
