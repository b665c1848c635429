/* The Python of the process: found once, booted or joined once, and which thread holds it. */
#ifndef COW_INTERPRETER_H
#define COW_INTERPRETER_H

#include "boot/python_api.h"
#include "boot/locate.h"

typedef struct cow_interpreter {
  cow_python_api api; /* filled once it is found */
  cow_python place;   /* of a Python to boot; empty for one that is joined */
  bool joined;        /* the host runs it */
} cow_interpreter;

extern cow_interpreter cow_python_here;

/* Fill a table from a library, or RTLD_DEFAULT. NULL, or the name of the first function that is not
 * there. */
const char* cow_python_look_up(void* library, cow_python_api* py);

/* Whether the functions are of the Python that this was compiled for. */
bool cow_python_fits(const cow_python_api* py);

/* Load the right libpython, its symbols visible to extension modules, and fill the table; or check
 * that the Python found before is the one that the host asks for. */
cow_mlx_status cow_interpreter_find(const char* home);

/* Boot the Python that was found, once in a process; the caller then holds the interpreter. It is
 * isolated from the host: no PYTHON* variables, no user site, no locale, no signal handlers, no
 * files written. */
cow_mlx_status cow_interpreter_boot(void);

/* Prepare to join a host's Python, on the thread that starts the runtime. */
cow_mlx_status cow_interpreter_prepare_join(void);

/* Import the package beside this library, whose bridge exchanges tables with it. A joined Python
 * calls `at_exit` when it ends. The caller holds the interpreter. */
cow_mlx_status cow_interpreter_attach(const cow_bridge** bridge, void (*at_exit)(void));

/* Turn the pending Python exception into the error message. Returns `status`, or that of a resource
 * that ran out. */
cow_mlx_status cow_interpreter_failed(cow_mlx_status status, const char* what);

/* The state with which this thread holds an interpreter, or NULL. */
PyThreadState* cow_thread_state_held(const cow_python_api* py);

#endif
