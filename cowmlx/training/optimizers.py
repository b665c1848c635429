"""Optimizers: mlx's, named by JSON; several for the names of parameters.

Adam and AdamW are computed by a kernel in one pass where it can: with the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import mlx.core as mx
from mlx import optimizers as mlx_optimizers

from cowmlx.accelerate import kernels, trained
from cowmlx.errors import BadFormat, InvalidArgument
from cowmlx.programs.failure import shown
from cowmlx.training import options
from cowmlx.training.options import Flag, Number, Option, Pair, missing, out_of_range, wrong_type
from cowmlx.training.schedules import Rate, rate_of

# The key of the parameters' state, beside "step" and "learning_rate".
_OWN = "parameters"


class _AtOnce(mlx_optimizers.Adam):
    """Adam over many parameters in one operation; those of other types one by one, as mlx does."""

    def apply_gradients(
        self, gradients: dict[str, Any], parameters: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the parameters under :data:`_OWN` after a step, and update the state."""
        super().apply_gradients({}, {})  # a new number of the step, and its rate of learning
        states = self.state[_OWN]
        after: dict[str, mx.array] = {}
        taken: list[_Taken] = []
        for name, gradient in gradients[_OWN].items():
            parameter, state = parameters[_OWN][name], states[name]
            if parameter.size and trained.takes(gradient, parameter, state["m"], state["v"]):
                taken.append((name, parameter, gradient, state))
            else:
                after[name] = self.apply_single(gradient, parameter, state)
        if taken:
            factors = _factors(self, getattr(self, "weight_decay", 0.0))
            for group in _groups(taken):
                after |= self._after(group, factors)
        return {_OWN: after}

    def _after(self, taken: list[_Taken], factors: list[mx.array]) -> dict[str, mx.array]:
        names, parameters, gradients, states = zip(*taken, strict=True)
        firsts, seconds = ([state[part] for state in states] for part in ("m", "v"))
        after, firsts, seconds = kernels.module().adam(
            parameters, gradients, firsts, seconds, factors, betas=self.betas, eps=self.eps
        )
        for state, first, second in zip(states, firsts, seconds, strict=True):
            state |= {"m": first, "v": second}
        return dict(zip(names, after, strict=True))


# A parameter's name, the parameter, its gradient and its state.
_Taken = tuple[str, mx.array, mx.array, dict[str, mx.array]]
# Numbers of all parameters of one operation: their gradients are freed together.
_AT_ONCE = 1 << 22


def _groups(taken: list[_Taken]) -> Iterator[list[_Taken]]:
    """Yield the parameters of each operation: :data:`_AT_ONCE` numbers at most, or just one."""
    most = kernels.module().ADAM_MOST
    group: list[_Taken] = []
    size = 0
    for one in taken:
        size += one[1].size
        if len(group) == most or (group and size > _AT_ONCE):
            yield group
            group, size = [], one[1].size
        group.append(one)
    yield group


class Adam(_AtOnce):
    """mlx's Adam."""


class AdamW(_AtOnce, mlx_optimizers.AdamW):
    """mlx's AdamW."""


def _factors(optimizer: mlx_optimizers.Adam, decay: float) -> list[mx.array]:
    """Return what the kernel calls a step's factors."""
    rate, one = optimizer.learning_rate.astype(mx.float32), mx.array(1.0)
    keep, root = 1 - rate * decay if decay else one, one
    b1, b2 = optimizer.betas
    if optimizer.bias_correction:
        rate = (rate / (1 - b1**optimizer.step)).astype(mx.float32)
        root = mx.rsqrt(1 - b2**optimizer.step).astype(mx.float32)
    return [rate, root, keep]


MAX_OPTIMIZERS = 64
MAX_PATTERNS = 1024
MAX_PATTERN = 256

_MOMENTUM = Number("a number from 0 to below 1", 0, 1, open_high=True, default=0.0)
_DECAY = Number("a number, 0 or more", 0, default=0.0)
_BETA = Number("a number from 0 to below 1", 0, 1, open_high=True)
_SMALL = Number("a number above 0", 0, open_low=True, default=1e-8)
_FLAG = Flag(False)

_ADAM: Mapping[str, Option] = {
    "betas": Pair(_BETA, (0.9, 0.999)),
    "eps": Number("a number, 0 or more", 0, default=1e-8),
}
# mlx's optimizers with the names and defaults of their arguments.
OPTIMIZERS: Mapping[str, tuple[type[Any], Mapping[str, Option]]] = {
    "sgd": (
        mlx_optimizers.SGD,
        {
            "momentum": _MOMENTUM,
            "weight_decay": _DECAY,
            "dampening": replace(_MOMENTUM, default=0.0),
            "nesterov": _FLAG,
        },
    ),
    "rmsprop": (mlx_optimizers.RMSprop, {"alpha": replace(_MOMENTUM, default=0.99), "eps": _SMALL}),
    "adagrad": (mlx_optimizers.Adagrad, {"eps": _SMALL}),
    "adadelta": (
        mlx_optimizers.AdaDelta,
        {"rho": replace(_MOMENTUM, default=0.9), "eps": replace(_SMALL, default=1e-6)},
    ),
    "adam": (Adam, {**_ADAM, "bias_correction": _FLAG}),
    "adamw": (
        AdamW,
        {**_ADAM, "weight_decay": replace(_DECAY, default=0.01), "bias_correction": _FLAG},
    ),
    "adamax": (mlx_optimizers.Adamax, _ADAM),
    "lion": (mlx_optimizers.Lion, {"betas": Pair(_BETA, (0.9, 0.99)), "weight_decay": _DECAY}),
    "adafactor": (
        mlx_optimizers.Adafactor,
        {
            "eps": Pair(Number("a number above 0", 0, open_low=True), (1e-30, 1e-3)),
            "clip_threshold": replace(_SMALL, default=1.0),
            "decay_rate": Number("a number below 0", high=0, open_high=True, default=-0.8),
            "beta_1": replace(_MOMENTUM, default=None),
            "weight_decay": _DECAY,
            "scale_parameter": Flag(True),
            "relative_step": Flag(True),
            "warmup_init": _FLAG,
        },
    ),
    "muon": (
        mlx_optimizers.Muon,
        {
            "momentum": replace(_MOMENTUM, default=0.95),
            "weight_decay": replace(_DECAY, default=0.01),
            "nesterov": Flag(True),
            "ns_steps": Number("1 to 64", 1, 64, integer=True, default=5),
        },
    ),
}
_COMMON = ("name", "learning_rate", "parameters")
DEFAULT = '{"name": "adam", "learning_rate": 0.001}'


class Part:
    """One optimizer, and the patterns of its parameters."""

    def __init__(self, value: object, place: str) -> None:
        name = value.get("name") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(name, str):
            accepted = f'an object with "name", one of {", ".join(OPTIMIZERS)}'
            raise wrong_type(place, value, accepted)
        if name not in OPTIMIZERS:
            raise out_of_range(f"{place}.name", name, f"one of {', '.join(OPTIMIZERS)}")
        self._kind, known = OPTIMIZERS[name]
        self._arguments = options.read(value, place, known, _COMMON)
        self._rate = _rate(value, name, self._arguments, place)
        _require_fit(name, self._arguments, place)
        # Of names of parameters; None: all other parameters.
        self.patterns = _patterns(value, place)
        rate = {"learning_rate": value["learning_rate"]} if self._rate is not None else {}
        # All its options, as JSON.
        self.described = {"name": name, **rate, **self._arguments, "parameters": self.patterns}

    def make(self) -> Any:
        """Return a new optimizer."""
        return self._kind(learning_rate=self._rate, **self._arguments)


class Optimizer:
    """One or more optimizers, each with its parameters.

    Args:
        text: an object with "name", "learning_rate" and mlx's arguments, or a list of such
            objects. "parameters", a list of patterns in which ``*`` stands for any characters and
            ``?`` for one, selects the parameters of each: the first optimizer that fits gets a
            parameter.
        parameters: the trained ones.

    Raises:
        InvalidArgument: the text is malformed, a parameter has no optimizer, or an optimizer has
            no parameter.
    """

    def __init__(self, text: str, parameters: Mapping[str, mx.array]) -> None:
        value = options.parse(text, "optimizer")
        if isinstance(value, list):
            if not 1 <= len(value) <= MAX_OPTIMIZERS:
                raise wrong_type("optimizer", value, f"a list of 1 to {MAX_OPTIMIZERS} objects")
            parts = [Part(item, f"optimizer[{at}]") for at, item in enumerate(value)]
        else:
            parts = [Part(value, "optimizer")]
        self.described = [part.described for part in parts]
        self._names = _shared_out(parts, list(parameters))
        self._optimizers = [part.make() for part in parts]
        for optimizer, names in zip(self._optimizers, self._names, strict=True):
            optimizer.init({_OWN: {name: _wide(parameters[name]) for name in names}})

    @property
    def learning_rate(self) -> float:
        """The rate of the first optimizer; NaN for Adafactor with relative steps."""
        rate = self._optimizers[0].state.get("learning_rate")
        return float("nan") if rate is None else float(rate.item())

    def updated(
        self, gradients: Mapping[str, mx.array], parameters: Mapping[str, mx.array]
    ) -> dict[str, mx.array]:
        """Return the parameters after a step, lazily, and update the state.

        Steps of float16 are computed in float32, and so is their state.
        """
        states: dict[str, mx.array] = {}
        for optimizer, names in zip(self._optimizers, self._names, strict=True):
            given = {_OWN: {name: _wide(gradients[name]) for name in names}}
            now = {_OWN: {name: _wide(parameters[name]) for name in names}}
            states |= optimizer.apply_gradients(given, now)[_OWN]
        return {name: states[name].astype(array.dtype) for name, array in parameters.items()}

    def arrays(self) -> list[mx.array]:
        """Return all arrays of the state, in the order of :meth:`state`."""
        arrays: list[mx.array] = []
        for optimizer in self._optimizers:
            for key, value in optimizer.state.items():
                if key == _OWN:
                    for own in value.values():
                        arrays += own.values()
                else:
                    arrays.append(value)
        return arrays

    def set_arrays(self, arrays: Sequence[mx.array]) -> None:
        """Set all arrays of the state, in the order of :meth:`arrays`."""
        after = iter(arrays)
        self.restore(
            [
                {
                    key: {name: {part: next(after) for part in own} for name, own in value.items()}
                    if key == _OWN
                    else next(after)
                    for key, value in optimizer.state.items()
                }
                for optimizer in self._optimizers
            ]
        )

    def counts(self) -> list[int]:
        """Return which of the arrays count steps."""
        found: list[int] = []
        at = 0
        for optimizer in self._optimizers:
            for key, value in optimizer.state.items():
                if key == "step":
                    found.append(at)
                at += sum(map(len, value.values())) if key == _OWN else 1
        return found

    def state(self) -> dict[str, mx.array]:
        """Return the state by names of an optimizer, a parameter and an array of it."""
        arrays: dict[str, mx.array] = {}
        for at, optimizer in enumerate(self._optimizers):
            for key, value in optimizer.state.items():
                if key != _OWN:
                    arrays[f"{at}.{key}"] = value
                    continue
                for name, own in value.items():
                    arrays |= {f"{at}.{part}:{name}": array for part, array in own.items()}
        return arrays

    def set_state(self, state: Mapping[str, mx.array]) -> None:
        """Set a state of :meth:`state`.

        Raises:
            BadFormat: it is of other optimizers or parameters; nothing is changed.
        """
        own = self.state()
        for name, array in own.items():
            given = state.get(name)
            if given is None or given.shape != array.shape or given.dtype != array.dtype:
                raise BadFormat(f"the optimizer's state lacks {name!r}, or has it otherwise")
        if len(state) != len(own):
            raise BadFormat("the optimizer's state has arrays of no optimizer here")
        restored = [
            {
                key: (
                    {
                        name: {part: state[f"{at}.{part}:{name}"] for part in parts}
                        for name, parts in value.items()
                    }
                    if key == _OWN
                    else state[f"{at}.{key}"]
                )
                for key, value in optimizer.state.items()
            }
            for at, optimizer in enumerate(self._optimizers)
        ]
        self.restore(restored)

    def copy_of_state(self) -> list[Any]:
        """Return the current state, which no later step changes: arrays are values."""
        return [
            optimizer.state
            | {_OWN: {name: dict(own) for name, own in optimizer.state[_OWN].items()}}
            for optimizer in self._optimizers
        ]

    def restore(self, copied: list[Any]) -> None:
        """Go back to a state of :meth:`copy_of_state`."""
        for optimizer, state in zip(self._optimizers, copied, strict=True):
            optimizer.state = state
            optimizer._initialized = True


def _wide(array: mx.array) -> mx.array:
    """Return float16, in which squares of small gradients and most ``eps`` are 0, in float32."""
    return array.astype(mx.float32) if array.dtype == mx.float16 else array


def _rate(
    value: dict[str, Any], name: str, arguments: Mapping[str, Any], place: str
) -> Rate | None:
    given = value.get("learning_rate")
    is_own = name == "adafactor" and arguments["relative_step"]
    if given is None:
        if is_own:
            return None
        raise missing(f"{place}.learning_rate")
    if is_own:
        raise InvalidArgument(
            f"{place}.learning_rate is given, but adafactor makes its own where relative_step is "
            "true",
            reason="conflict",
            argument=f"{place}.learning_rate",
            other=f"{place}.relative_step",
        )
    return rate_of(given, f"{place}.learning_rate")


def _require_fit(name: str, arguments: Mapping[str, Any], place: str) -> None:
    """Check options against each other.

    Raises:
        InvalidArgument: Nesterov's momentum without momentum, or with dampening.
    """
    if name == "sgd" and arguments["nesterov"]:
        if arguments["momentum"] <= 0:
            raise out_of_range(f"{place}.momentum", arguments["momentum"], "above 0 with nesterov")
        if arguments["dampening"] != 0:
            raise out_of_range(f"{place}.dampening", arguments["dampening"], "0 with nesterov")


def _patterns(value: dict[str, Any], place: str) -> list[str] | None:
    given = value.get("parameters")
    if given is None:
        return None
    place = f"{place}.parameters"
    accepted = f"a list of 1 to {MAX_PATTERNS} patterns of names, each a text of 1 to {MAX_PATTERN}"
    if not isinstance(given, list) or not 1 <= len(given) <= MAX_PATTERNS:
        raise wrong_type(place, given, accepted)
    for at, pattern in enumerate(given):
        if not isinstance(pattern, str) or not 1 <= len(pattern) <= MAX_PATTERN:
            raise wrong_type(f"{place}[{at}]", pattern, accepted)
    return given


def matches(name: str, patterns: list[str]) -> bool:
    """Whether a parameter's name fits one of some patterns: "*" is any characters, "?" is one."""
    return any(fnmatchcase(name, pattern.replace("[", "[[]")) for pattern in patterns)


def _shared_out(parts: list[Part], names: list[str]) -> list[list[str]]:
    """Return the names of each part's parameters.

    Raises:
        InvalidArgument: a parameter has no optimizer, or an optimizer no parameter.
    """
    shares: list[list[str]] = [[] for _ in parts]
    for name in names:
        for part, own in zip(parts, shares, strict=True):
            if part.patterns is None or matches(name, part.patterns):
                own.append(name)
                break
        else:
            text = f"the parameter {shown(name)} has no optimizer: let the last one have no"
            text += ' "parameters", which means all others'
            raise InvalidArgument(text, reason="missing", argument="optimizer")
    for at, own in enumerate(shares):
        if not own:
            name = f"optimizer[{at}]"
            text = f"{name} has no parameter: none fits, or an optimizer before it has all"
            raise InvalidArgument(text, reason="missing", argument=f"{name}.parameters")
    return shares
