/* Starts with a Python home that cannot be loaded (argv[1]), or if that is empty where no thread
 * can be created, then runs another Python (the libpython argv[2], with the packages in argv[3]),
 * and starts again. Prints two statuses; then that Python prints, and must be unchanged. */
#define _GNU_SOURCE /* RTLD_NEXT */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include "host.h"

static void* own;
static bool refuses_threads;

/* In the place of the system's. */
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* data) {
  int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  *(void**)&create = dlsym(RTLD_NEXT, "pthread_create");
  return refuses_threads ? EAGAIN : create(thread, attributes, run, data);
}

static void run(const char* source) {
  int (*simple)(const char*);
  *(void**)&simple = dlsym(own, "PyRun_SimpleString");
  EXPECT(simple(source) == 0);
}

int main(int argc, char** argv) {
  char source[1024];
  cow_mlx_runtime_params params;
  cow_mlx_runtime_params_init(&params, sizeof params);
  EXPECT(argc == 4);
  refuses_threads = !*argv[1];
  params.python_home = refuses_threads ? NULL : argv[1];
  printf("%s\n", cow_mlx_status_name(cow_mlx_runtime_start(&params)));
  refuses_threads = false;

  own = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
  EXPECT(own);
  void (*initialize)(int);
  *(void**)&initialize = dlsym(own, "Py_InitializeEx");
  initialize(0);
  snprintf(source, sizeof source, "import gc, sys; sys.path.insert(0, '%s'); gc.disable()",
           argv[3]);
  run(source);
  printf("%s\n", cow_mlx_status_name(cow_mlx_runtime_start(NULL)));
  fflush(stdout);
  run("print(gc.isenabled(), gc.get_freeze_count(), flush=True)");

  char info[16384];
  size_t length;
  EXPECT_OK(cow_mlx_runtime_info(info, sizeof info, &length));
  EXPECT(strstr(info, "\"interpreter\": \"joined\", \"python_home\": null"));
  EXPECT_OK(cow_mlx_runtime_stop());
  return 0;
}
