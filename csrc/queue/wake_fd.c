#ifndef __APPLE__
#define _GNU_SOURCE /* pipe2 */
#endif

#include "queue/wake_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hold.h"

/* Whether two descriptors are open, and for the same pipe. */
static bool are_same(int one, int other) {
  struct stat a, b;
  if (fstat(one, &a) != 0 || fstat(other, &b) != 0) return false;
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static bool make_pipe(int ends[2]) {
#ifdef __APPLE__
  if (pipe(ends) != 0) return false;
  for (int i = 0; i < 2; i++) {
    fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    fcntl(ends[i], F_SETFL, fcntl(ends[i], F_GETFL) | O_NONBLOCK);
  }
  return true;
#else
  return pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0;
#endif
}

static bool make(cow_wake_fd* wake) {
  int ends[2];
  if (!make_pipe(ends)) return false;
  *wake = (cow_wake_fd){.made = true, .reading = ends[0], .writing = ends[1], .host = -1};
  return true;
}

static void close_all(cow_wake_fd* wake) {
  if (wake->host >= 0 && are_same(wake->host, wake->reading)) close(wake->host);
  close(wake->reading);
  close(wake->writing);
  *wake = (cow_wake_fd){0};
}

static int get(cow_wake_fd* wake) {
  bool fresh = !wake->made;
  if (fresh && !make(wake)) return -1;
  if (wake->host >= 0 && are_same(wake->host, wake->reading)) return wake->host;
  wake->host = fcntl(wake->reading, F_DUPFD_CLOEXEC, 0);
  if (wake->host < 0 && fresh) {
    int failure = errno;
    close_all(wake);
    errno = failure;
    return -1;
  }
  return wake->host;
}

static bool is_readable(int descriptor) {
  struct pollfd looked = {.fd = descriptor, .events = POLLIN};
  return poll(&looked, 1, 0) > 0;
}

static void show(cow_wake_fd* wake, bool ready) {
  char byte = 1;
  if (ready && !is_readable(wake->reading)) {
    while (write(wake->writing, &byte, 1) < 0 && errno == EINTR) continue;
  } else if (!ready && wake->raised) { /* the host may have read the byte */
    while (read(wake->reading, &byte, 1) < 0 && errno == EINTR) continue;
  }
  wake->raised = ready;
}

/* A thread that was cancelled in one of these calls would keep its owner's lock. */

int cow_wake_fd_get(cow_wake_fd* wake) {
  int held = cow_hold_thread();
  int descriptor = get(wake);
  cow_release_thread(held);
  return descriptor;
}

void cow_wake_fd_show(cow_wake_fd* wake, bool ready) {
  if (!wake->made) return;
  int held = cow_hold_thread();
  show(wake, ready);
  cow_release_thread(held);
}

void cow_wake_fd_close(cow_wake_fd* wake) {
  if (!wake->made) return;
  int held = cow_hold_thread();
  close_all(wake);
  cow_release_thread(held);
}
