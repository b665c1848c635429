"""Random numbers, each from a key that is an input: the same key gives the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.programs.operations import elementary, rules
from cowmlx.programs.operations.creation import SHAPE
from cowmlx.programs.operations.half import GREATEST, widened
from cowmlx.programs.operations.indices import Check, check_that
from cowmlx.programs.operations.making import constant, example, row
from cowmlx.programs.operations.row import REQUIRED, Attribute, Attributes, Operation, Spec
from cowmlx.programs.operations.rules import FLOATS, INTEGERS, equal, mlx_dtype

DTYPE = Attribute("dtype", "dtype", "float32", "The result's dtype, a float.")


def require_key(given: Spec) -> None:
    """Check that an input is a random key."""
    rules.require_dtype("key", given, ("uint32",))
    if given.shape != (2,):
        raise rules.shapes_refused([given.shape], "a key has the shape (2,)")


def require_float(attributes: Attributes) -> None:
    """Check that the wanted dtype is a float."""
    if attributes["dtype"] not in FLOATS:
        raise rules.value_refused("dtype", attributes["dtype"], ", ".join(FLOATS))


def _drawn(
    name: str,
    function: Callable[..., mx.array],
    summary: str,
    formula: str,
    attributes: Sequence[Attribute] = (),
    *,
    options: Sequence[dict[str, Any]] = ({},),
    limits: Callable[[Attributes], None] | None = None,
    aliases: str = "",
) -> Operation:
    """Return the row of independent random floats.

    Args:
        name: the row's.
        function: takes shape, dtype and key, then attributes by name.
        summary: one sentence.
        formula: their distribution.
        attributes: beside shape and dtype.
        options: attributes of examples.
        limits: refuses attributes that do not go together.
        aliases: other names, separated by spaces.
    """

    def infer(*inputs: Any, **attributes: Any) -> Spec:
        require_key(inputs[0])
        require_float(attributes)
        if limits is not None:
            limits(attributes)
        return rules.spec(attributes["shape"], attributes["dtype"])

    def compute(*arrays: Any, **attributes: Any) -> mx.array:
        return function(**{**attributes, "dtype": mlx_dtype(attributes["dtype"])}, key=arrays[0])

    return row(
        f"{name}(key)",
        infer,
        compute,
        summary,
        formula,
        [
            example("uint32[2]", shape=[2, 3]),
            *(example("uint32[2]", shape=[5], dtype="float16", **option) for option in options),
            example("uint32[2]", shape=[0]),
        ],
        aliases=aliases,
        attributes=(SHAPE, DTYPE, *attributes),
    )


def _unit(shape: Sequence[int], key: mx.array) -> mx.array:
    """Return float64 numbers evenly between 0 and 1: odd multiples of 2^-53, so neither end."""
    pairs = _bits(key, math.prod(shape)).astype(mx.uint64)
    # Not with <<, >> and |: mlx 0.32.4 loses rows where only one operand is vectorized.
    bits = pairs[:, 0] * mx.array(2**20, mx.uint64) + pairs[:, 1] // mx.array(2**12, mx.uint64)
    return ((bits.astype(mx.float64) + 0.5) * 2.0**-52).reshape(shape)


def _standard_normal(u: mx.array) -> mx.array:
    """Return numbers of a normal distribution for some that are even between -1 and 1."""
    return math.sqrt(2) * elementary.erfinv(u)


def _drawn_in(dtype: mx.Dtype, *numbers: float) -> mx.Dtype:
    """Return float32 where a number is infinite in float16, else the dtype."""
    is_lost = dtype == mx.float16 and any(abs(number) > GREATEST for number in numbers)
    return mx.float32 if is_lost else dtype


# mlx draws float64 in float32, or not at all.
def uniform(
    low: float, high: float, shape: Sequence[int], dtype: mx.Dtype, key: mx.array
) -> mx.array:
    """Return uniform numbers from low up to high, without it."""
    wide = _drawn_in(dtype, low, high, high - low)
    scale = 2.0 if high - low > mx.finfo(wide).max else 1.0  # their distance must be finite
    first, last = low / scale, high / scale
    if dtype == mx.float64:
        result = first + (last - first) * _unit(shape, key)
    else:
        result = mx.random.uniform(first, last, shape, wide, key)
    if scale > 1:
        result = result * scale
    # A sum may be rounded up to the end.
    result = result.astype(dtype)
    return mx.minimum(result, constant(max(low, _below(high, dtype)), result))


def _below(high: float, dtype: mx.Dtype) -> float:
    """Return the greatest finite number of a dtype below another."""
    about = mx.finfo(dtype)
    _, exponent = math.frexp(math.nextafter(high, -math.inf))
    step = about.eps * max(2.0 ** (exponent - 1), about.smallest_normal)
    return min((math.ceil(high / step) - 1) * step, about.max)


def normal(
    shape: Sequence[int], dtype: mx.Dtype, loc: float, scale: float, key: mx.array
) -> mx.array:
    """Return numbers of a normal distribution."""
    if dtype != mx.float64:
        drawn_in = _drawn_in(dtype, loc, scale)
        return mx.random.normal(shape, drawn_in, loc, scale, key).astype(dtype)
    return loc + scale * _standard_normal(2 * _unit(shape, key) - 1)


def _truncated_normal(
    lower: float, upper: float, shape: Sequence[int], dtype: mx.Dtype, key: mx.array
) -> mx.array:
    if dtype != mx.float64:
        # In 16 bits mlx would take the ends of a far bound, some of which are infinite.
        wide = mx.random.truncated_normal(lower, upper, shape, mx.float32, key)
        return mx.clip(wide.astype(dtype), lower, upper)
    ends = [math.erf(bound / math.sqrt(2)) for bound in (lower, upper)]
    result = _standard_normal(ends[0] + (ends[1] - ends[0]) * _unit(shape, key))
    return mx.clip(result, lower, upper)


def _gumbel(shape: Sequence[int], dtype: mx.Dtype, key: mx.array) -> mx.array:
    if dtype != mx.float64:
        return mx.random.gumbel(shape, dtype, key)
    return -mx.log(-mx.log(_unit(shape, key)))


def _laplace(
    shape: Sequence[int], dtype: mx.Dtype, loc: float, scale: float, key: mx.array
) -> mx.array:
    if dtype != mx.float64:
        drawn_in = _drawn_in(dtype, loc, scale)
        return mx.random.laplace(shape, drawn_in, loc, scale, key).astype(dtype)
    place = 2 * _unit(shape, key) - 1
    return loc - scale * mx.sign(place) * mx.log1p(-mx.abs(place))


def _in_order(low: str, high: str, *, equal: bool = False) -> Any:
    def limits(attributes: Attributes) -> None:
        least, most = attributes[low], attributes[high]
        if not (least <= most if equal else least < most):
            raise rules.value_refused(low, least, f"below {high} ({most})")

    return limits


def _random_key(*inputs: Any, **attributes: Any) -> Spec:
    return Spec((2,), "uint32")


def _random_split(*inputs: Any, **attributes: Any) -> Spec:
    require_key(inputs[0])
    return rules.spec((attributes["num"], 2), "uint32")


def _bits(key: mx.array, count: int) -> mx.array:
    """Return (count, 2) random uint32: new keys are nothing else."""
    return mx.random.split(key, count) if count else mx.zeros((0, 2), mx.uint32)


def _wide(value: int) -> mx.array:
    """Return a uint64, which mlx takes from Python only below 2**63."""
    high = mx.array(value >> 32, dtype=mx.uint64) << mx.array(32, dtype=mx.uint64)
    return high | mx.array(value % 2**32, dtype=mx.uint64)


def _integers(*inputs: Any, **attributes: Any) -> Spec:
    require_key(inputs[0])
    if attributes["dtype"] not in INTEGERS:
        raise rules.value_refused("dtype", attributes["dtype"], ", ".join(INTEGERS))
    _in_order("low", "high")(attributes)
    rules.fits("low", attributes["low"], attributes["dtype"])
    rules.fits("high", attributes["high"] - 1, attributes["dtype"])
    return rules.spec(attributes["shape"], attributes["dtype"])


def _integers_array(*arrays: Any, **attributes: Any) -> mx.array:
    """Mlx draws floats and rounds them, so a wide range would miss numbers; bits miss none."""
    low, high = attributes["low"], attributes["high"]
    shape, dtype = attributes["shape"], mlx_dtype(attributes["dtype"])
    pairs = _bits(arrays[0], math.prod(shape)).astype(mx.uint64)
    # Not with << and |, as in _unit.
    bits = pairs[:, 0] * mx.array(2**32, mx.uint64) + pairs[:, 1]
    sampled = bits % _wide(high - low)
    return (sampled + _wide(low % 2**64)).astype(dtype).reshape(shape)


def _bernoulli(*inputs: Any, **attributes: Any) -> Spec:
    require_key(inputs[0])
    return rules.spec(attributes["shape"], "bool")


def _bernoulli_array(*arrays: Any, **attributes: Any) -> mx.array:
    return mx.random.bernoulli(attributes["p"], attributes["shape"], key=arrays[0])


def _categorical(logits: Any, key: Any, /, **attributes: Any) -> Spec:
    require_key(key)
    rules.require_dtype("logits", logits, FLOATS)
    axis = rules.axis_of(attributes["axis"], len(logits.shape))
    rules.require_elements(logits.shape, range(len(logits.shape)))
    shape = rules.without(logits.shape, axis)
    many = attributes["num_samples"]
    return rules.spec(shape if many is None else (*shape, many), "uint32")


def _categorical_array(logits: Any, key: Any, /, **attributes: Any) -> mx.array:
    """The place of the largest sum of a logit and Gumbel noise."""
    axis, many = attributes["axis"] % logits.ndim, attributes["num_samples"]
    line = mx.moveaxis(logits, axis, -1)
    if many is not None:
        line = mx.broadcast_to(line[..., None, :], (*line.shape[:-1], many, line.shape[-1]))
    if line.size == 0:
        return mx.zeros(line.shape[:-1], mx.uint32)
    noise = mx.random.gumbel(line.shape, key=key)
    return mx.argmax(widened(line) + noise, axis=-1)  # 16 bits would round the noise away


def _permutation(given: Any, key: Any, /, **attributes: Any) -> Spec:
    require_key(key)
    rules.axis_of(attributes["axis"], len(given.shape))
    return given


def _permutation_array(given: Any, key: Any, /, **attributes: Any) -> mx.array:
    axis = attributes["axis"] % given.ndim
    if given.size == 0:
        return given
    order = mx.argsort(_bits(key, given.shape[axis])[:, 0])
    return mx.take(given, order, axis)


def _multivariate(mean: Any, cov: Any, key: Any, /, **attributes: Any) -> Spec:
    require_key(key)
    for place, given in (("mean", mean), ("cov", cov)):
        rules.require_dtype(place, given, ("float32",))
    rules.require_rank("mean", mean, 1, 1)
    rules.require_rank("cov", cov, 2, 2)
    size = mean.shape[0]
    if not (equal(cov.shape[0], size) and equal(cov.shape[1], size)) or size == 0:
        raise rules.shapes_refused(
            [mean.shape, cov.shape], f"cov must be ({size}, {size}), with elements"
        )
    return rules.spec((*attributes["shape"], size), "float32")


def _factor(cov: mx.array) -> mx.array:
    good = mx.all(mx.isfinite(mx.stop_gradient(cov)))
    held = mx.where(good, cov, mx.eye(cov.shape[0], dtype=cov.dtype))
    values, vectors = mx.linalg.eigh(mx.stop_gradient(held), stream=mx.cpu)
    return vectors * mx.sqrt(mx.maximum(values, 0))


def _multivariate_array(mean: Any, cov: Any, key: Any, /, **attributes: Any) -> mx.array:
    sampled = mx.random.normal((*attributes["shape"], mean.shape[0]), key=key)
    return mean + sampled @ _factor(cov).T


def _multivariate_checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
    good = mx.all(mx.isfinite(mx.stop_gradient(arrays[1])))
    return check_that("cov", good, "is not finite")


def _key(seed: int) -> list[mx.array]:
    return [mx.array([(seed >> 32) % 2**32, seed % 2**32], dtype=mx.uint32)]


_SEED = Attribute("seed", "int", REQUIRED, "Any integer.", low=0, high=2**63 - 1)
_LOC = Attribute("loc", "float", 0.0, "The mean.")

ROWS = (
    row(
        "random_key()",
        _random_key,
        lambda *arrays, **attributes: _key(attributes["seed"]),
        "The key of a seed.",
        "out = (high bits, low bits)",
        [example(seed=7), example(seed=2**40 + 1)],
        aliases="key PRNGKey",
        attributes=(_SEED,),
    ),
    row(
        "random_split(key)",
        _random_split,
        lambda *arrays, **attributes: mx.random.split(arrays[0], attributes["num"]),
        "New keys of one.",
        "out[i] is the key of (key, i)",
        [example("uint32[2]"), example("uint32[2]", num=5)],
        attributes=(Attribute("num", "int", 2, "How many.", low=1, high=2**20),),
        source="Threefry, Salmon et al. 2011",
    ),
    _drawn(
        "random_uniform",
        uniform,
        "Numbers evenly from low up to high, without it.",
        "out ~ U(low, high)",
        (
            Attribute("low", "float", 0.0, "The least."),
            Attribute("high", "float", 1.0, "The greatest, which is not there."),
        ),
        options=({"low": -1.0, "high": 3.0},),
        limits=_in_order("low", "high"),
        aliases="uniform rand",
    ),
    _drawn(
        "random_normal",
        normal,
        "Numbers of a normal distribution.",
        "out ~ N(loc, scale^2)",
        (_LOC, Attribute("scale", "float", 1.0, "The standard deviation.", low=0)),
        options=({"loc": 3.0, "scale": 0.5},),
        aliases="normal randn",
    ),
    _drawn(
        "random_truncated_normal",
        _truncated_normal,
        "Numbers of a normal distribution between two bounds.",
        "out ~ N(0, 1), lower <= out <= upper",
        (
            Attribute("lower", "float", -2.0, "The lower bound."),
            Attribute("upper", "float", 2.0, "The upper bound."),
        ),
        limits=_in_order("lower", "upper"),
        aliases="truncated_normal",
    ),
    _drawn(
        "random_gumbel",
        _gumbel,
        "Numbers of a Gumbel distribution.",
        "out = -ln(-ln(u)), u ~ U(0, 1)",
        aliases="gumbel",
    ),
    _drawn(
        "random_laplace",
        _laplace,
        "Numbers of a Laplace distribution.",
        "out ~ e^(-|out - loc| / scale) / (2 scale)",
        (_LOC, Attribute("scale", "float", 1.0, "The mean distance from loc.", low=0)),
        aliases="laplace",
    ),
    row(
        "random_randint(key)",
        _integers,
        _integers_array,
        "Integers evenly from low up to high, without it.",
        "out = low + 64 random bits mod (high - low)",
        [
            example("uint32[2]", shape=[2, 3], low=0, high=10),
            example("uint32[2]", shape=[5], low=-(2**62), high=2**62, dtype="int64"),
            example("uint32[2]", shape=[0], low=0, high=1, dtype="uint8"),
        ],
        aliases="randint random_integers",
        attributes=(
            SHAPE,
            Attribute("low", "int", REQUIRED, "The least.", low=-(2**63), high=2**63 - 1),
            Attribute(
                "high",
                "int",
                REQUIRED,
                "The greatest, which is not there.",
                low=-(2**63),
                high=2**63 - 1,
            ),
            Attribute("dtype", "dtype", "int32", "The result's dtype, an integer."),
        ),
    ),
    row(
        "random_bernoulli(key)",
        _bernoulli,
        _bernoulli_array,
        "True with a probability.",
        "out ~ u < p, u ~ U(0, 1)",
        [example("uint32[2]", shape=[2, 3]), example("uint32[2]", shape=[4], p=1.0)],
        aliases="bernoulli",
        attributes=(SHAPE, Attribute("p", "float", 0.5, "The probability.", low=0, high=1)),
    ),
    row(
        "random_categorical(logits, key)",
        _categorical,
        _categorical_array,
        "Classes, as uint32, sampled with the probabilities softmax(logits).",
        "out = argmax(logits + Gumbel noise)",
        [
            example("[4,3]", "uint32[2]"),
            example("[3,4]", "uint32[2]", axis=0, num_samples=5),
            example("[3]", "uint32[2]"),
        ],
        aliases="categorical multinomial",
        attributes=(
            Attribute("axis", "axis", -1, "The axis of the classes."),
            Attribute("num_samples", "int", None, "How many; null is one, without an axis.", low=0),
        ),
    ),
    row(
        "random_permutation(∂x, key)",
        _permutation,
        _permutation_array,
        "The elements along an axis in a random order.",
        "out = take(x, a random order)",
        [example("[5,2]", "uint32[2]"), example("int32[2,5] 0..9", "uint32[2]", axis=1)],
        aliases="permutation shuffle",
        attributes=(Attribute("axis", "axis", 0, "The axis."),),
    ),
    row(
        "random_multivariate_normal(∂mean, cov, key)",
        _multivariate,
        _multivariate_array,
        "Vectors of a normal distribution with a covariance.",
        "out ~ N(mean, cov)",
        [example("[3]", "[3,3] definite", "uint32[2]", shape=[4])],
        aliases="multivariate_normal",
        attributes=(Attribute("shape", "shape", (), "How many vectors."),),
        checks=_multivariate_checks,
        cpu_only=True,
    ),
)
