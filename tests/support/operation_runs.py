"""Runs of single operations as their rows compute them, and what numpy gives instead."""

from __future__ import annotations

import warnings

import mlx.core as mx
import numpy as np

from cowmlx.programs.operations import ROWS
from cowmlx.programs.operations.row import Spec
from support.operation_references import reference_of

# Without a reference: several results are right, so properties are tested below.
BY_PROPERTY = {
    "qr",
    "svd",
    "eigh",
    "eig",
    "eigvals",
    "lu",
    "lu_factor",
    "quantize",
    "dropout",
    "argpartition",
    "partition",
    "hadamard_transform",
    *(row.name for row in ROWS if row.name.startswith("random_") and row.name != "random_key"),
}


def numpy_of(array):
    if array is None:
        return None
    if array.dtype == mx.bfloat16:
        array = array.astype(mx.float32)
    found = np.array(array)
    return found.astype(np.float64) if found.dtype in (np.float16, np.float32) else found


def run(row, inputs, attributes):
    """The results, after the row's own rule has taken the inputs."""
    given = row.arranged(inputs)
    specs = [
        None if each is None else Spec(tuple(each.shape), str(each.dtype).split(".")[-1])
        for each in given
    ]
    row.infer(specs, attributes)
    found = row.compute(given, attributes)
    mx.eval(found)
    for check in row.checks(given, attributes) if row.checks else []:
        assert check.look() is None
    return found


def expected(row, inputs, given):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of the mean of nothing
        arrays = [numpy_of(each) for each in inputs]
        found = reference_of(row.name)(*arrays, **given)
    return list(found) if isinstance(found, list | tuple) else [found]


def plain(attributes):
    return {
        key: tuple(value) if key == "axis" and isinstance(value, list) else value
        for key, value in attributes.items()
        if key != "indices"
    }
