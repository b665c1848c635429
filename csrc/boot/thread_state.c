#ifndef __APPLE__
#define _GNU_SOURCE /* pthread_getattr_np */
#endif

#include "boot/thread_state.h"

#include <pthread.h>

/* PyGILState_Check() is no help: it answers yes to everybody once the process has
 * made a sub-interpreter. */

#if PY_VERSION_HEX >= 0x030D0000

PyThreadState* cow_thread_state_held(const cow_python_api* py) {
  return py->PyThreadState_GetUnchecked();
}

#elif PY_VERSION_HEX >= 0x030C0000

PyThreadState* cow_thread_state_held(const cow_python_api* py) {
  return py->_PyThreadState_UncheckedGet();
}

#else

static bool is_on_this_stack(const void* address) {
  size_t size;
#ifdef __APPLE__
  char* bottom = pthread_get_stackaddr_np(pthread_self());
  size = pthread_get_stacksize_np(pthread_self());
  bottom -= size;
#else
  void* bottom = NULL;
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes)) return false;
  pthread_attr_getstack(&attributes, &bottom, &size);
  pthread_attr_destroy(&attributes);
#endif
  return (uintptr_t)address - (uintptr_t)bottom < size;
}

/* Before 3.12 the current state is the process's, whichever thread it runs on: this
 * one's own, or, of a sub-interpreter, one whose innermost frame is on this stack. */
PyThreadState* cow_thread_state_held(const cow_python_api* py) {
  PyThreadState* current = py->_PyThreadState_UncheckedGet();
  if (!current || current == py->PyGILState_GetThisThreadState()) return current;
  if (py->PyInterpreterState_Head() == py->PyInterpreterState_Main()) return NULL;
  return is_on_this_stack(current->cframe) ? current : NULL;
}

#endif

bool cow_thread_state_is_sub(const cow_python_api* py) {
  PyThreadState* held = cow_thread_state_held(py);
#if PY_VERSION_HEX < 0x030C0000
  /* Without a frame nothing tells on which thread it runs, but where it was made. */
  PyThreadState* current = py->_PyThreadState_UncheckedGet();
  if (!held && current && current->thread_id == py->PyThread_get_thread_ident()) held = current;
#endif
  return held && py->PyThreadState_GetInterpreter(held) != py->PyInterpreterState_Main();
}
