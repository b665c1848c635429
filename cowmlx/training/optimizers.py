"""Optimizers: mlx's, as JSON names them; several by the names of parameters."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import mlx.core as mx
from mlx import optimizers as mlx_optimizers
from mlx.utils import tree_map

from cowmlx.errors import BadFormat, InvalidArgument
from cowmlx.programs.failure import shown
from cowmlx.training import adam, options
from cowmlx.training.options import Flag, Number, Option, Pair, out_of_range, wrong_type
from cowmlx.training.schedules import Rate, rate_of

MAX_OPTIMIZERS = 64
MAX_PATTERNS = 1024
MAX_PATTERN = 256

_MOMENTUM = Number("a number from 0 to below 1", 0, 1, open_high=True, default=0.0)
_DECAY = Number("a number, 0 or more", 0, default=0.0)
_BETA = Number("a number from 0 to below 1", 0, 1, open_high=True)
_SMALL = Number("a number above 0", 0, open_low=True, default=1e-8)
_FLAG = Flag(False)


def _number(like: Number, default: Any) -> Number:
    return Number(
        like.accepted, like.low, like.high, like.open_low, like.open_high, like.integer, default
    )


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
            "dampening": _number(_MOMENTUM, 0.0),
            "nesterov": _FLAG,
        },
    ),
    "rmsprop": (mlx_optimizers.RMSprop, {"alpha": _number(_MOMENTUM, 0.99), "eps": _SMALL}),
    "adagrad": (mlx_optimizers.Adagrad, {"eps": _SMALL}),
    "adadelta": (
        mlx_optimizers.AdaDelta,
        {"rho": _number(_MOMENTUM, 0.9), "eps": _number(_SMALL, 1e-6)},
    ),
    "adam": (adam.Adam, {**_ADAM, "bias_correction": _FLAG}),
    "adamw": (
        adam.AdamW,
        {**_ADAM, "weight_decay": _number(_DECAY, 0.01), "bias_correction": _FLAG},
    ),
    "adamax": (mlx_optimizers.Adamax, _ADAM),
    "lion": (mlx_optimizers.Lion, {"betas": Pair(_BETA, (0.9, 0.99)), "weight_decay": _DECAY}),
    "adafactor": (
        mlx_optimizers.Adafactor,
        {
            "eps": Pair(Number("a number above 0", 0, open_low=True), (1e-30, 1e-3)),
            "clip_threshold": _number(_SMALL, 1.0),
            "decay_rate": Number("a number below 0", high=0, open_high=True, default=-0.8),
            "beta_1": _number(_MOMENTUM, None),
            "weight_decay": _DECAY,
            "scale_parameter": Flag(True),
            "relative_step": Flag(True),
            "warmup_init": _FLAG,
        },
    ),
    "muon": (
        mlx_optimizers.Muon,
        {
            "momentum": _number(_MOMENTUM, 0.95),
            "weight_decay": _number(_DECAY, 0.01),
            "nesterov": Flag(True),
            "ns_steps": Number("1 to 64", 1, 64, integer=True, default=5),
        },
    ),
}
# Where the parameters are in a tree: beside "step" and "learning_rate", which are names too.
_OWN = "parameters"
_COMMON = ("name", "learning_rate", "parameters")
DEFAULT = '{"name": "adam", "learning_rate": 0.001}'


class Part:
    """One optimizer, and the parameters that are its.

    Args:
        value: the JSON object.
        place: what it is, for messages.

    Attributes:
        patterns: of names of parameters; None: all that no other has.
        described: its options, all of them, as JSON has them.
    """

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
        self.patterns = _patterns(value, place)
        rate = {"learning_rate": value["learning_rate"]} if self._rate is not None else {}
        self.described = {"name": name, **rate, **self._arguments, "parameters": self.patterns}

    def make(self) -> Any:
        """Return a new optimizer."""
        return self._kind(learning_rate=self._rate, **self._arguments)


class Optimizer:
    """One or more optimizers, each with parameters of its own.

    Args:
        text: an object with "name", "learning_rate" and mlx's arguments, or a list of such
            objects. "parameters", a list of patterns in which ``*`` stands for any characters,
            ``?`` for one and ``[ab]`` for one of some, says whose parameters each has: the first
            that fits has it.
        parameters: what is trained.

    Raises:
        InvalidArgument: it is no such text, a parameter has no optimizer, or an optimizer no
            parameter.
    """

    def __init__(self, text: str, parameters: Mapping[str, mx.array]) -> None:
        value = options.parse(text, "optimizer")
        if isinstance(value, list):
            if not 1 <= len(value) <= MAX_OPTIMIZERS:
                raise wrong_type("optimizer", value, f"a list of 1 to {MAX_OPTIMIZERS} objects")
            parts = [Part(each, f"optimizer[{at}]") for at, each in enumerate(value)]
        else:
            parts = [Part(value, "optimizer")]
        self.described = [part.described for part in parts]
        self._names = _shared_out(parts, list(parameters))
        self._optimizers = [part.make() for part in parts]
        for optimizer, names in zip(self._optimizers, self._names, strict=True):
            optimizer.init({_OWN: {name: parameters[name] for name in names}})

    @property
    def learning_rate(self) -> float:
        """That of the first; of Adafactor with its own steps NaN."""
        rate = self._optimizers[0].state.get("learning_rate")
        return float("nan") if rate is None else float(rate.item())

    def updated(
        self, gradients: Mapping[str, mx.array], parameters: Mapping[str, mx.array]
    ) -> dict[str, mx.array]:
        """Return the parameters after a step, lazily; the state goes on."""
        found: dict[str, mx.array] = {}
        for optimizer, names in zip(self._optimizers, self._names, strict=True):
            given = {_OWN: {name: gradients[name] for name in names}}
            now = {_OWN: {name: parameters[name] for name in names}}
            found |= optimizer.apply_gradients(given, now)[_OWN]
        return {name: found[name] for name in parameters}

    def state(self) -> dict[str, mx.array]:
        """Return all that is remembered, by names that say whose it is."""
        found: dict[str, mx.array] = {}
        for at, optimizer in enumerate(self._optimizers):
            for key, value in optimizer.state.items():
                if key != _OWN:
                    found[f"{at}.{key}"] = value
                    continue
                for name, own in value.items():
                    found |= {f"{at}.{part}:{name}": array for part, array in own.items()}
        return found

    def set_state(self, state: Mapping[str, mx.array]) -> None:
        """Take over what :meth:`state` has told.

        Raises:
            BadFormat: it is of other optimizers or parameters; nothing is changed.
        """
        own = self.state()
        for name, array in own.items():
            given = state.get(name)
            if given is None or given.shape != array.shape or given.dtype != array.dtype:
                raise BadFormat(f"the optimizer's state lacks {name!r}, or has it otherwise")
        if len(state) != len(own):
            raise BadFormat("the optimizer's state has what no optimizer here remembers")
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
        """Return the state of now, which no later step changes: arrays are values."""
        return [tree_map(lambda leaf: leaf, optimizer.state) for optimizer in self._optimizers]

    def restore(self, copied: list[Any]) -> None:
        """Go back to a state of :meth:`copy_of_state`."""
        for optimizer, state in zip(self._optimizers, copied, strict=True):
            optimizer.state = state
            optimizer._initialized = True


def _rate(
    value: dict[str, Any], name: str, arguments: Mapping[str, Any], place: str
) -> Rate | None:
    given = value.get("learning_rate")
    is_own = name == "adafactor" and arguments["relative_step"]
    if given is None:
        if is_own:
            return None
        raise InvalidArgument(
            f"{place}.learning_rate is missing", reason="missing", argument=f"{place}.learning_rate"
        )
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
    """Check what options demand of each other.

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
    for at, each in enumerate(given):
        if not isinstance(each, str) or not 1 <= len(each) <= MAX_PATTERN:
            raise wrong_type(f"{place}[{at}]", each, accepted)
    return given


def matches(name: str, patterns: list[str]) -> bool:
    """Whether a parameter's name fits one of some patterns."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _shared_out(parts: list[Part], names: list[str]) -> list[list[str]]:
    """Return the names of each part's parameters.

    Raises:
        InvalidArgument: a parameter has no optimizer, or an optimizer no parameter.
    """
    found: list[list[str]] = [[] for _ in parts]
    for name in names:
        for part, own in zip(parts, found, strict=True):
            if part.patterns is None or matches(name, part.patterns):
                own.append(name)
                break
        else:
            raise InvalidArgument(
                f"the parameter {shown(name)} has no optimizer: let the last one have no "
                '"parameters", which means all others',
                reason="missing",
                argument="optimizer",
            )
    for at, own in enumerate(found):
        if not own:
            raise InvalidArgument(
                f"optimizer[{at}] has no parameter: none fits, or an optimizer before it has all",
                reason="missing",
                argument=f"optimizer[{at}].parameters",
            )
    return found
