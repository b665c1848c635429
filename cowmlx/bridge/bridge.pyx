# cython: language_level=3
"""Between C and the engine: unwrap a request, call the engine, map exceptions.

The only Cython, and the project's single exception boundary. Runs on the
dispatch thread, which holds the interpreter.
"""

from cpython.buffer cimport (
    PyBUF_C_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_FULL_RO,
    PyBuffer_IsContiguous,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.math cimport NAN
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

import importlib

from cowmlx.generated.cow_mlx cimport *

from cowmlx import cuda, errors, failures, interpreter, json_text, resources
from cowmlx.call import ends_later
from cowmlx.errors import BadFormat, BufferTooSmall, CowMlxError, InvalidArgument, OutOfRange

cdef const cow_host* host = NULL
cdef object engine = None
cdef object require_declared = None  # of cowmlx.arrays.dtypes, once mlx is there
cdef object output = interpreter.CapturedOutput()
cdef set kept = set()  # calls that end later
cdef size_t RESERVE = resources.RESERVE


include "values.pxi"
include "arrays.pxi"
include "launches.pxi"
include "../generated/call_arguments.pxi"
include "outcomes.pxi"
include "process.pxi"
include "vocabulary.pxi"


# ------------------------------------------------- Operations made by hand

cdef void runtime_start(cow_request* r) except *:
    cdef const cow_runtime_start_args* a = <const cow_runtime_start_args*> r.args
    python_home = (<bytes> a.python_home).decode("utf-8", "replace")
    if python_home:
        output.install()
    params = to_runtime_params(a.params)
    log(r, COW_MLX_LOG_INFO, engine.start(params, python_home))
    if python_home:
        interpreter.collect_from_now()


cdef tuple read_media(cow_request* r):
    cdef const cow_media_args* a = <const cow_media_args*> r.args
    return a.bytes, a.channels


cdef int write_media(cow_request* r, object value) except -1:
    cdef const cow_media_args* a = <const cow_media_args*> r.args
    a.out[0] = value
    return 0


for _op in (COW_OP_MEDIA_FROM_PIXELS, COW_OP_MEDIA_FROM_FILE):
    READERS[<int> _op] = read_media
    WRITERS[<int> _op] = write_media
    METHODS[<int> _op] = "media_create"
    ALLOCATES[<int> _op] = True


cdef bint carry_out(HostCall call) except -1:
    """Carry out a request; true if it is kept, and ended later."""
    cdef cow_request* r = call.r
    if r.op == COW_OP_RUNTIME_START:
        runtime_start(r)
        call.end(COW_MLX_OK)
        return False
    if r.op == COW_OP_RUNTIME_STOP:
        engine.stop()
        call.end(COW_MLX_OK)
        return False
    method = getattr(engine, METHODS[<int> r.op])
    arguments = READERS[<int> r.op](r)
    if ends_later(method):
        method(call, *arguments)
        return True
    call.succeed(method(*arguments))
    return False


# ------------------------------------------------------------ The table

cdef cbool attach(const cow_host* services) noexcept:
    """Serve a library; there can be one."""
    global host
    if host != NULL and host != services:
        return False
    host = services
    return True


cdef cbool run(cow_request* r) noexcept:
    """Carry out one request. Every Python exception ends here, as a status."""
    cdef HostCall call = None
    bound_recursion()
    drop_objects()
    try:
        ensure_engine()
        if failures.seen:
            engine.recover()
        if repeat(r):
            end(r, COW_MLX_OK)
            return False
        if ALLOCATES[<int> r.op] and not host.can_map(RESERVE):
            resources.require_memory(RESERVE, "a call")
        call = HostCall.keep(r)
        if not carry_out(call):
            return False
        if call.r != NULL:
            kept.add(call)
        return True
    except BaseException as error:
        if call is None:
            fail(r, error)
        else:
            call.fail(error)
    return False


cdef enum:
    MAX_SHORTAGES = 1000

cdef int shortages = 0  # steps without memory, one after the other


cdef int64_t step() noexcept:
    """Do one unit of work. Units end their calls; an exception here is a bug of the library.

    A step that has no memory between the turns of units is made again.

    As everywhere here, nothing returns while it handles an exception: without memory that may have
    no traceback, and the code of Cython 3.3 would release it all the same.
    """
    global shortages
    cdef bint again = False
    bound_recursion()
    drop_objects()
    try:
        if engine is None:
            return -1
        worked = engine.step()
        shortages = 0
        if worked:
            return 0
        due = engine.due
        return -1 if due is None else <int64_t> min(max(due * 1e6, 1.0), 60e6)
    except MemoryError as error:
        shortages += 1
        again = shortages < MAX_SHORTAGES
        if not again:
            give_up(error)
    except BaseException as error:
        give_up(error)
    return 0 if again else -1


cdef void give_up(object error) noexcept:
    """End every call and free every handle: their state is unknown.

    The runtime continues as if it had just been started.
    """
    failure = error
    try:
        place = failures.place(error)
        text = f"a step that was no single call's failed, and every handle is freed: {place}"
        output.write(text + "\n")  # the next call that ends brings it to the log
        failure = CowMlxError(text)
        failures.forget_frames(error)
    except BaseException:  # its own text fails, or there is no memory
        pass
    end_all(failure)


cdef void end_all(object failure) noexcept:
    """End every call, and free every handle."""
    cdef HostCall call
    cdef cow_request* r
    try:
        engine.free_all(failure)
    except BaseException:
        pass
    while kept:  # calls that the engine no longer knows; this needs no memory
        call = kept.pop()
        r = call.give_up_request()
        if r != NULL:
            fail(r, failure)


cdef bint python_ends = False  # its exit functions run


cdef void rest() noexcept:
    """Wait until mlx's threads are idle. Errors of ended work are dropped.

    If Python ends, which no later start changes, calls end as by a stop.
    """
    drop_objects()
    if python_ends and engine is not None:
        text = "the runtime was stopped: Python has ended"
        end_all(errors.Canceled(text, reason="runtime_stopped"))
    try:
        if engine is not None:
            engine.rest()
    except BaseException:
        pass


cdef ensure_engine():
    global engine, require_declared
    if engine is None:
        resources.ask(can_start_threads, can_map, give_back, system_memory)
        json_text.ask(read_vocabulary)
        blas, problem = bring_blas()
        cuda.set_up()
        try:
            from cowmlx.accelerate import kernels
            from cowmlx.arrays.dtypes import require_declared
            from cowmlx.engine import Engine, Runtime
        except ImportError as error:
            importlib.invalidate_caches()  # it may be installed before the next try
            raise failures.of_import(error, "mlx and mlx-lm") from error
        note_kept_types()
        host.sleepers_help(<const cow_helper*> <size_t> kernels.helper())
        engine = Engine(
            Runtime(
                cancel_epoch,
                open_handle,
                close_handle,
                blas,
                problem,
                libpython(),
                HostArrays(),
                HostOutlets(),
            )
        )


def cancel_epoch(int32_t handle):
    return host.cancel_epoch(handle)


def open_handle(cow_kind kind):
    return host.open_handle(kind)


def close_handle(int32_t handle):
    host.close_handle(handle)


def can_start_threads(int count):
    return host.can_start_threads(count)


def can_map(size_t size):
    return host.can_map(size)


def give_back():
    with nogil:
        host.give_back()


def system_memory():
    cdef uint64_t most = 0
    cdef uint64_t easy = 0
    return (most, easy) if host.system_memory(&most, &easy) else None


ctypedef void (*exit_hook)() noexcept nogil


def register_exit(capsule):
    """Call a C function, given as a capsule, when the interpreter ends."""
    import atexit

    def leave():
        global python_ends
        python_ends = True
        cdef exit_hook hook = <exit_hook> PyCapsule_GetPointer(capsule, "cowmlx.at_exit")
        with nogil:
            hook()

    atexit.register(leave)


cdef cow_bridge TABLE
TABLE.abi = COW_BRIDGE_ABI
TABLE.attach = attach
TABLE.run = run
TABLE.step = step
TABLE.rest = rest
TABLE.keep_objects = keep_objects

table = PyCapsule_New(&TABLE, COW_BRIDGE_CAPSULE, NULL)
