/* What the library must leave as it was: everything of the process's own. */
#include <locale.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host.h"

extern char** environ;

typedef struct process {
  struct rlimit files;
  char folder[4096];
  char locale[256];
  mode_t mask;
  size_t variables;
  void (*handlers[32])(int);
  sigset_t blocked;
} process;

static process look(void) {
  process p;
  memset(&p, 0, sizeof p);
  getrlimit(RLIMIT_NOFILE, &p.files);
  EXPECT(getcwd(p.folder, sizeof p.folder));
  snprintf(p.locale, sizeof p.locale, "%s", setlocale(LC_ALL, NULL));
  p.mask = umask(0);
  umask(p.mask);
  while (environ[p.variables]) p.variables++;
  for (int number = 1; number < 32; number++) {
    struct sigaction action;
    sigaction(number, NULL, &action);
    p.handlers[number] = action.sa_handler;
  }
  sigprocmask(SIG_SETMASK, NULL, &p.blocked);
  return p;
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  process before = look();
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  session s = open_session(argv[1]);
  EXPECT_OK(generate(&s, LENGTH, NULL, NULL));
  EXPECT_OK(cow_mlx_runtime_stop());
  process after = look();
  EXPECT(before.files.rlim_cur == after.files.rlim_cur);
  EXPECT(before.files.rlim_max == after.files.rlim_max);
  EXPECT(strcmp(before.folder, after.folder) == 0);
  EXPECT(strcmp(before.locale, after.locale) == 0);
  EXPECT(before.mask == after.mask);
  EXPECT(before.variables == after.variables);
  EXPECT(memcmp(before.handlers, after.handlers, sizeof before.handlers) == 0);
  EXPECT(memcmp(&before.blocked, &after.blocked, sizeof before.blocked) == 0);
  return 0;
}
