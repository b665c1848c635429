"""The runtime is stopped, and the process ends, while programs run and others wait for them."""

import threading

import numpy as np
from support.arrays import Arrays
from support.c_programs import Programs
from support.callbacks import StatusError
from support.library import Library
from support.programs import endless

ENDLESS = endless()
ONE = np.ones((), np.float32)

lib = Library()
programs, arrays = Programs(lib), Arrays(lib)
ends: list[str] = []


def expect_an_end(call, *arguments) -> None:
    try:
        call(*arguments)
    except StatusError as error:
        ends.append(error.name)


for turn in range(3):
    lib.start()
    program = programs.create(ENDLESS)
    (submitted,) = programs.run(program, [ONE], submit=True)
    out = np.zeros((), np.float32)
    threads = [
        threading.Thread(target=expect_an_end, args=(programs.run, program, [ONE], [out])),
        threading.Thread(target=expect_an_end, args=(programs.run, program, [submitted], [out])),
        threading.Thread(target=expect_an_end, args=(arrays.wait, submitted)),
    ]
    for thread in threads:
        thread.start()
    while programs.info(program)["longest_turn"] is None:
        pass
    if turn == 2:
        break  # the process ends meanwhile
    lib.stop()
    for thread in threads:
        thread.join()
    assert out == 0
    # A call after the stop finds no runtime, or an array that is closed.
    assert len(ends) == 3 and set(ends) <= {"ECANCELED", "ESTATE", "EHANDLE"}, ends
    assert "ECANCELED" in ends
    ends.clear()
print("stopped", flush=True)
lib.c.cow_mlx_program_cancel(program)
programs.run(program, [ONE], submit=True)
for thread in threads:
    thread.join()
