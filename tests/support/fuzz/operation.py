"""Carries out a case of one operation: eagerly, in a program, for rows, and its slopes."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from cowmlx.programs.operations import find
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.row import OperationError
from support.fuzz import rows, slopes
from support.fuzz.compare import ROUNDING, difference, parts_differ
from support.fuzz.draw import specs
from support.fuzz.inputs import FLOATS, INEXACT, Array, laid_out, make
from support.fuzz.session import Refused, Session
from support.operation_references import reference_of
from support.programs import graph, node, value

Case = dict[str, Any]
SMALL = 1 << 18
# Several results are right, or the reference takes other inputs than the operation.
NOT_COMPARED = {
    "argsort",
    "qr", "svd", "eigh", "eig", "eigvals", "lu", "lu_factor", "quantize", "dropout",
    "argpartition", "partition", "hadamard_transform", "cross", "view",
}  # fmt: skip


def carry_out(session: Session, case: Case) -> None:
    """Do what a case says, and compare the results."""
    there = [each for each in case["inputs"] if each is not None]
    arrays = [make(each) for each in there]
    placed = [
        laid_out(array.data, each.get("layout")) for array, each in zip(arrays, there, strict=True)
    ]
    if _beyond_numpy(case):
        session.done.add("beyond numpy")
        return
    eager = _eager(session, case, placed, arrays)
    if isinstance(eager, list):
        session.done.add("accepted")
        _reference(session, case, arrays, eager)
    for check in case["checks"]:
        if check["check"] == "program":
            _program(session, case, check, placed, arrays, eager)
        elif check["check"] == "vectorized" and isinstance(eager, list):
            _vectorized(session, case, check, eager)
        elif check["check"] == "gradient" and isinstance(eager, list):
            slopes.check(session, case, check, arrays, eager)


def _beyond_numpy(case: Case) -> bool:
    """Whether a result has no numpy array: one without elements whose other sides are too long."""
    row = find(case["operation"])
    try:
        found = row.infer(row.arranged(specs(case)), attributes_of(row, case["attributes"]))
    except OperationError:
        return False
    sides = [[side for side in each.shape if side] for each in found]
    return any(
        0 in each.shape and math.prod(side) > 2**59 for each, side in zip(found, sides, strict=True)
    )


def _eager(
    session: Session, case: Case, placed: list[np.ndarray], arrays: list[Array]
) -> list[Array] | Refused:
    handles = []
    for at, (view, array) in enumerate(zip(placed, arrays, strict=True)):
        handle = session.create(f"create {at}", view, array.dtype)
        if isinstance(handle, Refused):
            session.find(f"create: layout refused: {handle.message}")
            handle = session.create("create", array.data, array.dtype)
        handles.append(handle)
    given = iter(handles)
    inputs = [0 if each is None else next(given) for each in case["inputs"]]

    def apply() -> list[Array] | Refused:
        made = session.arrays.apply(case["operation"], *inputs, capacity=4096, **case["attributes"])
        return session.read_all(made)

    found = session.tried("eager", apply)
    for handle, array in zip(handles, arrays, strict=True):
        if difference(session.read(handle), array):
            session.find("eager: an input has changed")
        session.arrays.free(handle)
    return found


def _reference(session: Session, case: Case, arrays: list[Array], eager: list[Array]) -> None:
    """Compare with numpy's function of that name, or the tests' own."""
    name = case["operation"]
    reference = reference_of(name)
    inexact = any(each.dtype in INEXACT for each in eager)
    if reference is None or not _is_comparable(case, arrays, eager, inexact):
        return
    alone = len(arrays) == 1
    values = iter(_numbers(each, inexact, alone) for each in arrays)
    given = [None if each is None else next(values) for each in case["inputs"]]
    attributes = {
        key: tuple(each) if key == "axis" and isinstance(each, list) else each
        for key, each in case["attributes"].items()
        if key != "indices"
    }
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = reference(*given, **attributes)
    except Exception:  # the reference takes less than the operation
        return
    wanted = list(wanted) if isinstance(wanted, list | tuple) else [wanted]
    if len(wanted) != len(eager):
        session.find(f"reference: {len(eager)} results for {len(wanted)}")
        return
    session.done.add("reference")
    least = [ROUNDING[array.dtype] for array in arrays if array.dtype in INEXACT]
    for found, other in zip(eager, wanted, strict=True):
        if found.shape != np.shape(other):
            session.find(f"reference: shape: {found.shape} for {np.shape(other)}")
            continue
        if np.asarray(other).dtype.kind in "US":  # a number that JSON has no other form for
            other = np.asarray(other).astype(float)
        if found.dtype == "float16" and np.max(np.abs(other), initial=0) > 1e4:
            continue  # a step on the way may be too large
        if found.dtype in INEXACT:
            rounding = max([ROUNDING[found.dtype], *least]) * 4
            if name == "gelu":
                rounding *= 4  # 1 + erf has few digits where it is nearly 0
            if found.dtype == "float32":
                with np.errstate(over="ignore"):
                    other = np.real(other).astype(np.float32)
            what = parts_differ(found.numbers, np.asarray(other), rounding)
        else:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                same = np.asarray(other).astype(found.data.dtype) == found.data
            # Small floats round to other integers and truths than the reference's.
            allowed = 0 if not least or max(least) < 1e-5 else 0.3 * found.data.size + 1
            what = "numbers: integers differ" if (~same).sum() > allowed else ""
        if what:
            session.find(f"reference: {what}")


def _is_comparable(case: Case, arrays: list[Array], eager: list[Array], inexact: bool) -> bool:
    """Whether a reference computes the same from the same."""
    name = case["operation"]
    if name in NOT_COMPARED or name.startswith("random_"):
        return False
    if name == "searchsorted" and "sorted" not in (case["inputs"][0]["values"].get("words") or []):
        return False
    if case["attributes"].get("indices") == "clamp":
        return False
    of_both_signs = ("cosine_similarity_loss", "triplet_loss")
    if name in of_both_signs and arrays[0].dtype in ("float16", "bfloat16"):
        return False  # sums of both signs lose their digits, and eps is no float16
    kinds = {each["values"]["kind"] for each in case["inputs"] if each is not None}
    if kinds - {"range", "normal", "ties", "bits", "zeros"}:
        return False
    if "bits" in kinds and (inexact or len({each.dtype for each in arrays}) > 1):
        return False
    if "zeros" in kinds and "complex64" in {each.dtype for each in arrays}:
        return False
    both = [*arrays, *eager]
    if any(math.prod(max(side, 1) for side in each.shape) > SMALL for each in both):
        return False
    numbers = [abs(each) for each in case["attributes"].values() if type(each) in (int, float)]
    is_large = max(numbers, default=0) > 1e4
    if "float16" in {each.dtype for each in both} and is_large:
        return False  # infinite where it is computed with
    if name == "triplet_loss" and is_large:
        return False  # roots of distances beside an eps that has all the digits
    if "bits" in kinds and any(type(each) is float for each in case["attributes"].values()):
        return False  # numpy computes with integers as floats then
    if name == "rope" and is_large:
        return False  # angles of which float32 has no digits behind the point
    if name == "binary_cross_entropy" and kinds != {"range"}:
        return False  # sums of losses of both signs
    if slopes.enlarges_rounding(case):
        return False
    if name in ("cummax", "cummin") and not inexact:
        return False  # the first of an exclusive one is infinite in numpy
    divides = name in ("divmod", "floor_divide", "remainder")
    return not (divides and np.any(arrays[1].numbers == 0))


def _numbers(array: Array, inexact: bool, alone: bool) -> np.ndarray:
    """Elements as a reference takes them: numpy gives small integers small floats."""
    if array.dtype in FLOATS:
        return array.numbers.astype(np.float64)
    if inexact and array.data.dtype.kind in ("iub" if alone else "iu"):
        return array.data.astype(np.int64)
    return array.data


def program_of(case: Case, arrays: list[Array], results: int, symbolic: bool) -> dict[str, Any]:
    """The operation as a program of one node."""
    sides = sorted({side for array in arrays for side in array.shape})
    names = dict(zip(sides, (f"n{at}" for at in range(len(sides))), strict=True))
    declared, taken = [], []
    at = 0
    for each in case["inputs"]:
        if each is None:
            taken.append(None)
            continue
        shape = [names[side] if symbolic else side for side in arrays[at].shape]
        declared.append(value(f"i{at}", shape, arrays[at].dtype))
        taken.append(f"i{at}")
        at += 1
    outputs = [f"o{at}" for at in range(results)]
    return graph(
        declared,
        [node(outputs, case["operation"], *taken, **case["attributes"])],
        outputs,
    )


def _program(
    session: Session,
    case: Case,
    check: dict[str, Any],
    placed: list[np.ndarray],
    arrays: list[Array],
    eager: list[Array] | Refused,
) -> None:
    count = len(eager) if isinstance(eager, list) else 1
    if not count:
        return  # a program has an output at least
    made: int | Refused = Refused("", "")
    if check.get("symbolic"):
        made = session.make("program", program_of(case, arrays, count, True))
    if isinstance(made, Refused):
        made = session.make("program", program_of(case, arrays, count, False))
    if isinstance(made, Refused):
        if isinstance(eager, list):
            session.find(f"program: refused what is done eagerly: {made.message}")
        return
    given = [(view, array.dtype) for view, array in zip(placed, arrays, strict=True)]
    params = {"submit": True} if check.get("submit") else {}
    found = session.run("program", made, given, count, **params)
    unfit = ("the dimension", "its result has the shape")
    if (
        check.get("symbolic")
        and isinstance(found, Refused)
        and any(map(found.message.__contains__, unfit))
    ):
        # A dimension such as n - 2 has no value where n is 1, and n - 3 is no start where n is 2.
        made = session.make("program", program_of(case, arrays, count, False))
        assert isinstance(made, int)
        found = session.run("program", made, given, count, **params)
    if isinstance(found, Refused) and "stride" in found.message:
        given = [(array.data, array.dtype) for array in arrays]
        found = session.run("program", made, given, count, **params)
    if isinstance(eager, Refused):
        if not isinstance(found, Refused) and eager.name != "ENOMEM" and count == len(found):
            session.find(f"eager: refused what a program does: {eager.message}")
        return
    if isinstance(found, Refused):
        if found.name != "ENOMEM":
            session.find(f"program: refused what is done eagerly: {found.message}")
        return
    session.done.add("program")
    declared_as_found(session, "program", made, found)
    compare(session, "program and eager", found, eager)
    if check.get("host"):
        again = session.run_into("program into memory", made, given, eager)
        if isinstance(again, Refused):
            session.find(f"program into memory: refused: {again.message}")
        else:
            compare(session, "program into memory", again, eager)
    if check.get("bind") is not None and arrays:
        _bound(session, made, check["bind"] % len(arrays), arrays, eager)
    if check.get("check_finite"):
        _check_finite(session, case, made, arrays, eager)


def _bound(
    session: Session, program: int, place: int, arrays: list[Array], eager: list[Array]
) -> None:
    """Give one input once and for all."""
    array = arrays[place]
    handle = session.arrays.create(array.data, array.dtype)
    made = session.derive("bound", program, bind={f"i{place}": handle})
    session.arrays.free(handle)
    if isinstance(made, Refused):
        session.find(f"bound: refused: {made.message}")
        return
    rest = [each for at, each in enumerate(arrays) if at != place]
    found = session.run("bound", made, rest, len(eager))
    if isinstance(found, Refused):
        session.find(f"bound: refused: {found.message}")
    else:
        session.done.add("bound")
        compare(session, "bound", found, eager)


def _check_finite(
    session: Session, case: Case, program: int, arrays: list[Array], eager: list[Array]
) -> None:
    if {"inf", "-inf", "nan"} & {str(each) for each in case["attributes"].values()}:
        return  # they are asked for
    found = session.run("check_finite", program, arrays, len(eager), check_finite=True)
    if not all(_finite(array) for array in arrays):
        return
    if all(_finite(each) for each in eager) and isinstance(found, Refused):
        session.find(f"check_finite: refused finite results: {found.message}")
    if not all(_finite(each) for each in eager) and not isinstance(found, Refused):
        session.find("check_finite: took results that are not finite")


def _finite(array: Array) -> bool:
    return array.dtype not in INEXACT or bool(np.isfinite(array.numbers).all())


def declared_as_found(session: Session, where: str, program: int, found: list[Array]) -> None:
    """Compare results with what the program says of them before a run."""
    told = session.programs.info(program)["outputs"]
    if len(told) != len(found):
        session.find(f"{where}: declared {len(told)} outputs, has {len(found)}")
    for each, result in zip(told, found, strict=False):
        numbers = [side if isinstance(side, int) else None for side in each["shape"]]
        same = len(numbers) == len(result.shape) and all(
            side is None or side == other for side, other in zip(numbers, result.shape, strict=True)
        )
        if not same or each["dtype"] != result.dtype:
            session.find(
                f"{where}: shape: declared {each['dtype']}{each['shape']}, "
                f"has {result.dtype}{result.shape}"
            )


def compare(
    session: Session, where: str, found: list[Array], wanted: list[Array], loose: float = 1.0
) -> None:
    if len(found) != len(wanted):
        session.find(f"{where}: {len(found)} results for {len(wanted)}")
    for at, (one, other) in enumerate(zip(found, wanted, strict=False)):
        what = difference(one, other, loose)
        if what:
            session.find(f"{where}: result {at}: {what}")


def _vectorized(session: Session, case: Case, check: dict[str, Any], eager: list[Array]) -> None:
    arrays = rows.widened(case, check["levels"])
    inner = [make(each) for each in case["inputs"] if each is not None]
    made = session.make("vectorized", program_of(case, inner, len(eager), False))
    if not isinstance(made, Refused):
        rows.check(session, case, made, arrays, check["levels"], len(eager), "vectorized")
