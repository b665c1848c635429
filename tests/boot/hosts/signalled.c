/* A storm of signals whose handler cancels contexts, beside calls from several threads. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

enum { THREADS = 4, SIGNALS = 40000, MICROSECONDS = 20, UNKNOWN = 0x2fffffff };

static session sessions[THREADS];
static atomic_int caught, cancelled, wrong;

static void handle(int number) {
  (void)number;
  int count = atomic_fetch_add(&caught, 1);
  errno = ERANGE; /* of the handler: the library must leave it alone */
  cow_mlx_status known = cow_mlx_context_cancel(sessions[count % THREADS].context);
  cow_mlx_status unknown = cow_mlx_context_cancel(UNKNOWN);
  if (known != COW_MLX_OK || unknown != COW_MLX_EHANDLE || errno != ERANGE) {
    atomic_fetch_add(&wrong, 1);
  }
}

static void storm(bool on) {
  struct itimerval every = {0};
  if (on) every.it_interval.tv_usec = every.it_value.tv_usec = MICROSECONDS;
  setitimer(ITIMER_REAL, &every, NULL);
}

/* What a thread does is not disturbed by cancels in it, but for the calls they are meant for. */
static void* call_always(void* data) {
  session* s = data;
  while (atomic_load(&caught) < SIGNALS) {
    cow_mlx_status status = generate(s, 4, NULL, NULL);
    EXPECT(status == COW_MLX_OK || status == COW_MLX_ECANCELED);
    EXPECT((cow_mlx_error_message()[0] == '\0') == (status == COW_MLX_OK));
    if (status == COW_MLX_ECANCELED) atomic_fetch_add(&cancelled, 1);
    EXPECT(cow_mlx_context_free(0) == COW_MLX_EHANDLE);
    EXPECT(strstr(cow_mlx_error_message(), "context_free: 0") != NULL);
    for (int i = 0; i < 20; i++) EXPECT_OK(cow_mlx_memory_trim());
    EXPECT(cow_mlx_error_message()[0] == '\0');
  }
  return NULL;
}

/* A signal that a forked child gets before it execs. */
static void check_child(void) {
  pid_t child = fork();
  if (child == 0) {
    errno = 0;
    cow_mlx_status status = cow_mlx_context_cancel(sessions[0].context);
    _exit(status == COW_MLX_EFORK && errno == 0 ? 0 : 1);
  }
  int status;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  EXPECT(cow_mlx_context_cancel(UNKNOWN) == COW_MLX_ESTATE);
  EXPECT_OK(cow_mlx_runtime_start(NULL));
  sessions[0] = open_session(argv[1]);
  for (int i = 1; i < THREADS; i++) {
    sessions[i] = sessions[0];
    EXPECT_OK(cow_mlx_context_create(sessions[0].model, NULL, &sessions[i].context));
  }
  struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &action, NULL);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    EXPECT(pthread_create(&threads[i], NULL, call_always, &sessions[i]) == 0);
  }
  storm(true);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  storm(false);
  EXPECT(atomic_load(&wrong) == 0);
  EXPECT(atomic_load(&cancelled) > 0);
  check_child();
  EXPECT_OK(cow_mlx_context_reset(sessions[0].context));
  EXPECT_OK(generate(&sessions[0], LENGTH, print_text, NULL));
  EXPECT_OK(cow_mlx_runtime_stop());
  return 0;
}
