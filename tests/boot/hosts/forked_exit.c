/* Children forked while eight contexts generate end with exit(): each with its status and what it
 * wrote, and on Linux without the handlers from before the start. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

enum { CONTEXTS = 8, FORKS = 200 };

static pid_t parent;
static FILE* output; /* the child's, to the parent */

static void early(void) {
#ifdef __GLIBC__
  if (getpid() != parent) _Exit(99);
#endif
}

static void late(void) {
  if (getpid() != parent) fputs("late ", output);
}

static void latest(void) { fputs("latest ", output); }

static void leave(int pipe, int status) {
  alarm(60); /* ends a child that hangs */
  output = fdopen(pipe, "w");
  if (!output || atexit(latest)) _exit(98);
  fputs("last words ", output);
  exit(status);
}

static void fork_once(int expected) {
  int ends[2], status;
  char text[64] = {0};
  EXPECT(pipe(ends) == 0);
  pid_t id = fork();
  EXPECT(id >= 0);
  if (id == 0) leave(ends[1], expected);
  close(ends[1]);
  for (ssize_t got, size = 0; (got = read(ends[0], text + size, sizeof text - 1 - size)) > 0;) {
    size += got;
  }
  close(ends[0]);
  EXPECT(waitpid(id, &status, 0) == id);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != expected) {
    fprintf(stderr, "the child of status %d ended with %#x\n", expected, (unsigned)status);
    exit(1);
  }
  EXPECT(strcmp(text, "last words latest late ") == 0);
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  parent = getpid();
  EXPECT(atexit(early) == 0);
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  EXPECT(atexit(late) == 0);
  session sessions[CONTEXTS];
  pthread_t threads[CONTEXTS];
  for (int i = 0; i < CONTEXTS; i++) {
    sessions[i] = open_session(argv[1]);
    EXPECT(pthread_create(&threads[i], NULL, generate_forever, &sessions[i]) == 0);
  }
  for (int i = 0; i < CONTEXTS; i++) await_generation(&sessions[i]);
  for (int i = 0; i < FORKS; i++) fork_once(i % 90);
  EXPECT_OK(cow_mlx_runtime_stop());
  for (int i = 0; i < CONTEXTS; i++) pthread_join(threads[i], NULL);
  return 0;
}
