"""Builds a network from a config and its weights, on the light route, and checks the config."""

from __future__ import annotations

from cowmlx.errors import BadFormat, CowMlxError, Unsupported
from cowmlx.folders import quantization, weights
from cowmlx.folders.config import invalid_config, mismatch
from cowmlx.models import config_bounds, config_types, headless, ranking
from cowmlx.networks import architectures, light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import mlx.core as mx
    from mlx.nn.layers.base import Module

_WINDOW = "sliding_window"
_LONGEST_WINDOW = 2**30  # tokens: mlx-lm adds it to positions, in int32, without a check
# Gemma 3n's networks have an attribute of this name, with which they mask tokens.
_MASKED = "vocab_size_per_layer_input"


def build(
    config: dict[str, Any], architecture: str, arrays: dict[str, mx.array], path: str
) -> Module:
    """Make the network of ``config`` around lazily loaded weights.

    Args:
        config: what ``config.json`` says; quantization settings may be added to it.
        architecture: the name of an architecture.
        arrays: the weights as stored; emptied, so that the network alone holds them.
        path: the model's folder, for messages.

    Raises:
        Unsupported: the architecture cannot be imported.
        BadFormat: config and weights do not make a network.
    """
    import mlx.core as mx

    from cowmlx.models import mtp  # late: it needs mlx

    module = architectures.load(architecture)
    config_bounds.check_layers(config, len(arrays))
    if architecture not in architectures.SELF_CHECKED:
        check_numbers(config, module.ModelArgs)
    labelled = ranking.is_classifier(config) and architecture not in architectures.ENCODERS
    embeds = headless.is_for_embeddings(config, path)
    without_head = embeds and not labelled and headless.is_headless(arrays)
    try:
        tied = labelled or without_head
        made_of = ranking.without_token_head(config, arrays) if tied else config
        _sign(module.ModelArgs)
        arguments = module.ModelArgs.from_dict(made_of)
        with config_bounds.bounded_modules():
            network: Module = module.Model(arguments)
        _check_vocabulary(network, config)
        _check_layer_tables(network)
        _check_positions(network)
        # Initial values, never computed, have split mlx's key again and again.
        mx.eval(mx.random.state)
    except CowMlxError:
        raise
    except Exception as exc:
        raise unusable(config, module.ModelArgs, exc) from exc
    try:
        stored = {name: array for name, array in arrays.items() if not mtp.is_of_head(name, config)}
        arrays.clear()
        stored = headless.whole_names(stored) if embeds else stored
        if hasattr(network, "sanitize"):
            stored = network.sanitize(stored)
    except Exception as exc:
        raise mismatch(
            f"the weights in {path} are not those of a {architecture} model "
            f"({type(exc).__name__}: {exc})",
            path,
        ) from exc
    if labelled:
        ranking.add_head(network, config, stored, path)
    if without_head:
        headless.note(network)
    quantization.apply(network, config, stored)
    try:
        weights.assign(network, stored, path)
    except BadFormat as exc:
        odd = config_types.odd_value(config, module.ModelArgs, nulls=False)
        raise mismatch(f"{exc}; {odd}", path) if odd else exc from exc
    network.eval()
    return network


def _check_vocabulary(network: Any, config: dict[str, Any]) -> None:
    """Refuse a vocabulary without the tokens that a network forbids by their ids.

    Phi-3 small sets their logits, and mlx would write beyond the end of fewer logits.

    Raises:
        BadFormat: the vocabulary is too small.
    """
    forbidden = getattr(network, "_dummy_tokenizer_ids", None)
    if forbidden is None:
        return
    needed, size = int(forbidden.max().item()) + 1, config.get("vocab_size")
    if not isinstance(size, int) or size < needed:
        raise invalid_config(
            f"vocab_size is {size}, not at least {needed}, the tokens that a "
            f"{config['model_type']} model has",
            key="vocab_size",
            value=size,
            accepted=f"at least {needed}",
        )


def _check_layer_tables(network: Module) -> None:
    """Refuse a table of embeddings per layer that has fewer rows than the vocabulary.

    Gemma 4 looks up every token in it, and mlx would read beyond its end; Gemma 3n masks tokens.

    Raises:
        BadFormat: the table is too small.
    """
    modules: dict[str, Any] = dict(network.named_modules())
    for path, table in modules.items():
        own = modules.get(path.removesuffix("_per_layer"))
        if not path.endswith("embed_tokens_per_layer") or own is None:
            continue
        rows, needed = table.weight.shape[0], own.weight.shape[0]
        if rows < needed and not hasattr(modules[path.rpartition(".")[0]], _MASKED):
            raise invalid_config(
                f"{_MASKED} is {rows}, not at least {needed}, the tokens of vocab_size",
                key=_MASKED,
                value=rows,
                accepted=f"at least {needed}",
            )


_POSITIONS = "n_positions"
_FEWEST_POSITIONS = 16


def positions(network: Module) -> int | None:
    """Return the rows of a network's table of positions; None if it looks up none."""
    for path, table in network.named_modules():
        if path.rpartition(".")[2] == "wpe":
            # Weights in blocks have another shape, and know their rows.
            return int(getattr(table, "rows", None) or table["weight"].shape[0])
    return None


def _check_positions(network: Module) -> None:
    """Refuse a table of positions that is shorter than what networks are tried with.

    Raises:
        BadFormat: the table is too small.
    """
    rows = positions(network)
    if rows is not None and rows < _FEWEST_POSITIONS:
        raise invalid_config(
            f"{_POSITIONS} is {rows}, not at least {_FEWEST_POSITIONS}",
            key=_POSITIONS,
            value=rows,
            accepted=f"at least {_FEWEST_POSITIONS}",
        )


class _Signature:
    """The signature of a class, and of each class derived from it, computed once.

    mlx-lm asks for it with every key of a config. A plain ``__signature__`` would hide the options
    that a derived class adds.
    """

    def __init__(self) -> None:
        self._known: dict[type, Any] = {}

    def __get__(self, instance: object, owner: type) -> Any:
        import inspect

        if owner not in self._known:
            made = inspect.signature(owner.__init__)  # type: ignore[misc]
            self._known[owner] = made.replace(parameters=list(made.parameters.values())[1:])
        return self._known[owner]


def _sign(arguments: Any) -> None:
    """Let a class know its signature."""
    if not any("__signature__" in vars(kind) for kind in arguments.__mro__):
        arguments.__signature__ = _Signature()


def share(network: Module) -> Module:
    """Return a network of the same modules, copied, around the same arrays, not copied.

    A module can be replaced in the one without a change to the other.

    Raises:
        Unsupported: a module holds something that cannot be copied.
    """
    import copy

    # A copy keeps these objects as they are.
    kept: dict[int, Any] = {id(array): array for array in weights.flatten(network).values()}
    kept |= _compiled_functions(type(network).__module__)
    try:
        return copy.deepcopy(network, kept)
    except Exception as exc:
        raise Unsupported(
            f"this {type(network).__module__.rsplit('.', 1)[-1]} network cannot be shared between "
            f"adapters ({type(exc).__name__}: {exc})"
        ) from exc


def _compiled_functions(module: str) -> dict[int, Any]:
    """Return mlx's compiled functions that are globals, by id: they are bound to no network.

    A module's compiled method would run the original's weights.
    """
    import sys

    import mlx.core as mx

    kind = type(mx.compile(abs))
    prefixes = (module.rsplit(".", 1)[0], "mlx.nn")
    return {
        id(value): value
        for name, loaded in list(sys.modules.items())
        if name.startswith(prefixes)
        for value in list(vars(loaded).values())
        if isinstance(value, kind)
    }


def prove(network: Module, package: str) -> int:
    """Trace tokens through a network as a generation does; nothing is evaluated.

    A config may fit its weights and still not run.

    Args:
        network: a network with all of its weights.
        package: see :class:`~cowmlx.models.model.Model`.

    Returns:
        The width of the logits; of an encoder, the tokens that it knows.

    Raises:
        Exception: whatever the network raises; ValueError: its positions rotate by no angles.
    """
    if is_encoder(network):
        return int(network.prove())
    from mlx.nn.layers.positional_encoding import RoPE

    from cowmlx.modules import modules_of

    for module in modules_of(network):
        if isinstance(module, RoPE) and not module.base > 0:
            raise ValueError(f"the base of rotary positions is {module.base}, not above 0")
    return int(traced(network, package).shape[-1])


def is_encoder(network: Any) -> bool:
    """Whether a network makes vectors or labels of whole texts, and no logits of next tokens."""
    return getattr(network, "is_encoder", False) is True


def traced(network: Module, package: str) -> mx.array:
    """Return logits as a generation gets them, not evaluated; see :func:`prove`."""
    import mlx.core as mx

    cache = light_route.cache_module(package).make_prompt_cache(network)
    for tokens in ([[0, 0]], [[0]]):
        logits: mx.array = network(mx.array(tokens), cache=cache)
    return logits


def check_windows(network: Module, config: dict[str, Any], package: str) -> None:
    """Refuse sliding windows of no tokens, and those whose masks would be wrong or an error.

    Prompts shorter than a window need no mask, so :func:`prove` does not find it.

    Raises:
        BadFormat: the message names the key.
    """
    if is_encoder(network):
        return
    layers = list(light_route.cache_module(package).make_prompt_cache(network))
    while layers:
        layer = layers.pop()
        layers += getattr(layer, "caches", ())
        size = getattr(layer, "max_size", None)
        if isinstance(size, int) and not 1 <= size <= _LONGEST_WINDOW:
            key = _key_of_window(config, size)
            accepted = f"1 to {_LONGEST_WINDOW}"
            raise invalid_config(
                f"{key} is {size}, not within {accepted}", key=key, value=size, accepted=accepted
            )


_SEES_AHEAD = {"use_bidirectional_attention": (True, "all"), "is_causal": (False,)}


def check_causal(config: dict[str, Any], architecture: str) -> None:
    """Refuse a model whose tokens see those behind them, unless its network is an encoder.

    mlx-lm's networks ignore these keys and compute every token from those in front of it. Gemma 4
    has "vision" where the tokens of images alone see each other.

    Raises:
        Unsupported: the message names the key.
    """
    if architecture in architectures.ENCODERS:
        return
    parts: list[tuple[Any, str]] = [(config, ""), (config.get("text_config"), "text_config.")]
    for part, prefix in parts:
        for key, values in _SEES_AHEAD.items() if isinstance(part, dict) else ():
            if part.get(key) in values:
                raise Unsupported(
                    f"config.json: {prefix}{key} is {str(part[key]).lower()}: tokens of this model "
                    f"see those behind them, which a {architecture} network does not compute",
                    file="config.json",
                )


def _key_of_window(config: dict[str, Any], size: int) -> str:
    """Return the key of a config that a window's size is from."""
    for part, prefix in ((config, ""), (config.get("text_config"), "text_config.")):
        for key, value in part.items() if isinstance(part, dict) else ():
            if "window" in key and value == size:
                return f"{prefix}{key}"
    return _WINDOW


def unusable(config: dict[str, Any], arguments: Any, exc: Exception) -> BadFormat:
    """Return the error of a config that an architecture, whose arguments these are, cannot use."""
    why = _why_unusable(config, arguments, exc)
    return BadFormat(why, reason="invalid_config", file="config.json")


def _why_unusable(config: dict[str, Any], arguments: Any, exc: Exception) -> str:
    import inspect

    architecture = config["model_type"]
    required = [
        name
        for name, parameter in inspect.signature(arguments).parameters.items()
        if parameter.default is inspect.Parameter.empty
    ]
    missing = [name for name in required if name not in config]
    if missing:
        return f"config.json lacks {', '.join(missing)}, which {architecture} needs"
    if isinstance(exc, KeyError) and exc.args:
        return f"config.json lacks {exc.args[0]}, which {architecture} needs"
    odd = config_types.odd_value(config, arguments)
    if odd:
        return f"config.json: {odd}, as {architecture} needs"
    reason = ": ".join(filter(None, (type(exc).__name__, str(exc).partition("\n")[0])))
    suspects = " and ".join(_suspects(config, arguments, ""))
    hint = f"; {suspects}" if suspects else ""
    return f"config.json does not describe a {architecture} model ({reason}){hint}"


LARGEST = 3.4e38  # of float32, in which mlx computes with a config's numbers
_MAX_INTEGER = 2**63 - 1
_NO_SIZE = 1 << 24  # of a layer, a vocabulary or a context
_MOST_SUSPECTS = 3


def is_number(value: object) -> bool:
    """Whether a value is a number that mlx can compute with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def check_numbers(config: dict[str, Any], arguments: Any) -> None:
    """Refuse numbers that mlx cannot compute with.

    Infinity is one of them, but in an array, where it stands for a limit that is none.

    Args:
        config: what ``config.json`` says.
        arguments: the architecture's ``ModelArgs``; keys that it does not have do no harm.

    Raises:
        BadFormat: the message names the key.
    """
    known = getattr(arguments, "__dataclass_fields__", config)
    for name, value in config.items():
        if name in known:
            _check_value(name, value)


def _suspects(config: dict[str, Any], arguments: Any, prefix: str) -> list[str]:
    """Name the first integers that are no size of anything, of an architecture's arguments."""
    known = getattr(arguments, "__dataclass_fields__", {})
    found: list[str] = []
    for name, value in config.items():
        if isinstance(value, dict):
            found += _suspects(value, object, f"{prefix}{name}.")
        elif isinstance(value, int) and not isinstance(value, bool):
            usual = name in known and known[name].default == value
            if not (usual or 0 < value < _NO_SIZE or name.endswith(("_id", "_idx"))):
                found.append(f"{prefix}{name} is {value}")
    return found[:_MOST_SUSPECTS]


def _check_value(where: str, value: Any) -> None:
    if isinstance(value, dict):
        for name, part in value.items():
            _check_value(f"{where}.{name}", part)
    elif isinstance(value, list):
        for part in value:
            if isinstance(part, dict) or _is_unusable(part):
                _check_value(f"{where}[]", part)
    elif isinstance(value, int | float) and not isinstance(value, bool) and not is_number(value):
        raise invalid_config(
            f"{where} is {config_types.shown(value)}, not a number within {LARGEST:g} of 0",
            key=where,
        )


def _is_unusable(value: object) -> bool:
    """Whether a value is a number that is not even a limit."""
    if isinstance(value, float):
        return value != value
    return isinstance(value, int) and abs(value) > _MAX_INTEGER
