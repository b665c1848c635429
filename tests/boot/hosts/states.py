"""Every function before a start, in a forked child, and after a stop."""

import os

from support.library import SILENT, TELLING, Library
from support.signatures import COMPAT, EFORK, ESTATE, FUNCTIONS, cow_mlx_status

WITHOUT_STATE = {TELLING, "cow_mlx_error_message", "cow_mlx_status_name", "cow_mlx_version"}
STARTS = {"cow_mlx_runtime_start", "cow_mlx_init"}

lib = Library()


def expect(status: int, name: str, *, but: set[str]) -> None:
    """Every call is refused with this status, whatever its arguments."""
    for function, (result, params) in FUNCTIONS.items():
        if function in but | WITHOUT_STATE or (result is None and function not in COMPAT):
            continue
        if result is not cow_mlx_status and function not in COMPAT:
            continue
        given = getattr(lib.c, function)(*(kind() for _, kind in params))
        if function == "cow_mlx_get_error":
            continue
        message = lib.message()
        assert message or function in SILENT, function
        if function in COMPAT:
            assert given in (None, False, -1), function
        else:
            assert given == status, f"{function}: {lib.name(given)}, not {name}"


expect(ESTATE, "ESTATE", but=STARTS)
lib.start()
child = os.fork()
if child == 0:
    expect(EFORK, "EFORK", but=set())
    raise SystemExit(0)
assert os.waitpid(child, 0)[1] == 0
assert set(lib.info()["handles"].values()) == {0}
lib.stop()
expect(ESTATE, "ESTATE", but=STARTS)
print("refused everywhere")
