"""Trainings of language models: made, given data, published, exported."""

from __future__ import annotations

from cowmlx.errors import InvalidArgument, Unsupported
from cowmlx.services.training_runs import Trainee
from cowmlx.training import options
from cowmlx.training.language.data import DataOptions, read_lines
from cowmlx.training.language.objective import LanguageObjective
from cowmlx.training.language.options import LanguageOptions
from cowmlx.training.language.token_inputs import TokenInputs
from cowmlx.training.options import Flag, out_of_range, wrong_type
from cowmlx.training.training import Settings, Training

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.memory import RequireRoom
    from cowmlx.models.model import Model
    from cowmlx.training.language.data import LanguageData

_BATCH_SIZE = 4
_MAX_SEED = 2**63 - 1
# Members of params that are the training's own, and keys of the options that they stand for.
_OWN = {"seed": "seed", "batch_size": "batch_size", "shuffle": "shuffle"}
_OF_PROGRAMS = ("train", "initial_names", "initial_arrays")
_LINES = ("lines", "lines_file", "validation_lines", "validation_file", "lines_options")


def make(
    model: Model,
    params: dict[str, Any],
    settings: Settings,
    require_room: RequireRoom,
) -> Generator[None, None, Trainee]:
    """Make a training of a model, in bounded steps.

    Args:
        model: the model.
        params: the fields of ``cow_mlx_training_params``.
        settings: of all steps.
        require_room: raises where so many bytes may not be taken for a named purpose.

    Raises:
        InvalidArgument: an option is none of models, or has a value that is not accepted.
        Unsupported: the model cannot be trained so.
    """
    for name in _OF_PROGRAMS:
        if params[name]:
            raise InvalidArgument(
                f"{name} is set, but it is an option of programs; fine_tune chooses the layers "
                "that are trained of a model",
                reason="conflict",
                argument=name,
                other="fine_tune",
            )
    if settings.seed > _MAX_SEED:
        raise out_of_range("seed", settings.seed, f"at most {_MAX_SEED}")
    given = options.parse(params["fine_tune"], "fine_tune") if params["fine_tune"] else {}
    wanted = LanguageOptions(_with_own(given, "fine_tune", {"seed": settings.seed}), "fine_tune")
    return _made(model, wanted, settings, params, require_room)


def _made(
    model: Model,
    wanted: LanguageOptions,
    settings: Settings,
    params: dict[str, Any],
    require_room: RequireRoom,
) -> Generator[None, None, Trainee]:
    model.require_one_machine("training_create_for_model")
    model.require_generation("training_create_for_model")
    yield from model.read_steps()
    objective = yield from LanguageObjective.steps(model, wanted, require_room)
    inputs = TokenInputs(model)
    training = Training(objective, settings)
    state = training.optimizer.state().values()
    require_room(sum(array.nbytes for array in state), "the optimizer's state")
    return Trainee.of(training, inputs, params, takes_lines=True)


def _with_own(given: object, place: str, own: dict[str, Any]) -> dict[str, Any]:
    """Return options with those that are members of params.

    Raises:
        InvalidArgument: they are no object, or have them themselves.
    """
    if not isinstance(given, dict):
        raise wrong_type(place, given, "an object")
    for name in own:
        if name in given:
            raise InvalidArgument(
                f"{place}.{name} is given, but {name} is a member of params",
                reason="unknown_option",
                argument=f"{place}.{name}",
                value=name,
            )
    return {**given, **own}


def require_lines(params: dict[str, Any]) -> None:
    """Check that data are lines.

    Raises:
        InvalidArgument: there are arrays to evaluate on, no lines, or twice.
    """
    if params["validation"]:
        raise InvalidArgument(
            "validation are arrays, but there are none as inputs: use validation_lines",
            reason="conflict",
            argument="validation",
            other="validation_lines",
        )
    for one, other in (("lines", "lines_file"), ("validation_lines", "validation_file")):
        if params[one] is not None and params[other] is not None:
            raise InvalidArgument(
                f"{one} and {other} exclude each other",
                reason="conflict",
                argument=one,
                other=other,
            )
    if params["lines"] is None and params["lines_file"] is None:
        raise InvalidArgument(
            "there are no data: lines and lines_file are NULL, and so are inputs and next_batch",
            reason="missing",
            argument="lines",
        )


def require_no_lines(params: dict[str, Any]) -> None:
    """Check that data that are arrays are no lines as well.

    Raises:
        InvalidArgument: there are lines.
    """
    for name in _LINES:
        if params[name] is not None:
            raise InvalidArgument(
                f"{name} is set, but the data are arrays: of inputs or next_batch, as a program's",
                reason="conflict",
                argument=name,
                other="inputs",
            )


def data_options(trainee: Trainee, params: dict[str, Any], is_validation: bool) -> DataOptions:
    """Return how lines become batches.

    Raises:
        InvalidArgument: lines_options are none.
    """
    text = params["lines_options"]
    given = options.parse(text, "lines_options") if text else {}
    own = {
        "seed": trainee.training.settings.seed,
        "shuffle": params["shuffle"] and not is_validation,
        "batch_size": params["batch_size"] or _BATCH_SIZE,
        "micro_batch": trainee.options["micro_batch"],
    }
    return DataOptions(_with_own(given, "lines_options", own), "lines_options")


def read(
    trainee: Trainee,
    params: dict[str, Any],
    require_room: RequireRoom,
    is_validation: bool = False,
) -> Generator[None, None, LanguageData | None]:
    """Read lines in bounded steps; None if there are none to evaluate on."""
    names = ("validation_lines", "validation_file") if is_validation else ("lines", "lines_file")
    lines, path = params[names[0]], params[names[1]]
    if lines is None and path is None:
        return None
    source = path if lines is None else lines.encode()
    wanted = data_options(trainee, params, is_validation)
    objective = objective_of(trainee)
    name = names[0] if lines is not None else ""
    return (yield from read_lines(objective.model, source, wanted, name, require_room))


def objective_of(trainee: Trainee) -> LanguageObjective:
    """Return the objective of a training of a model.

    Raises:
        Unsupported: it is of a program.
    """
    objective = trainee.training.objective
    if isinstance(objective, LanguageObjective):
        return objective
    raise Unsupported(
        "the training is of a program; only a language model's trained layers can be an adapter "
        "or be exported",
        argument="training",
    )


def export_options(text: str | None) -> dict[str, bool]:
    """Return what an export writes.

    Raises:
        InvalidArgument: the text is no such object.
    """
    known: dict[str, options.Option] = {"fuse": Flag(False), "dequantize": Flag(False)}
    chosen = options.read(options.parse(text or "{}", "options_json"), "options_json", known)
    if chosen["dequantize"] and not chosen["fuse"]:
        raise InvalidArgument(
            "options_json.dequantize needs options_json.fuse: an adapter has no quantized weights",
            reason="conflict",
            argument="options_json.dequantize",
            other="options_json.fuse",
        )
    return chosen
