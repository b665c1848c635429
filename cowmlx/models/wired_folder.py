"""The wiring of a model folder: read without its weights, and checked against them."""

from __future__ import annotations

import re

from cowmlx.errors import BadFormat, CowMlxError, NotFound, Unsupported
from cowmlx.folders import config as config_files
from cowmlx.folders import quantization, weights
from cowmlx.models import config_bounds
from cowmlx.networks import architectures, blocks
from cowmlx.networks.architectures import xlstm
from cowmlx.networks.wiring.declaration import BlockSpec, Wiring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import mlx.core as mx

    from cowmlx.networks.blocks import Block

_OF_BLOCK = re.compile(r"blocks\.([^.]+)\.(.+)", re.DOTALL)


def read(path: str) -> Wiring:
    """Read the wiring that a folder's ``config.json`` has or stands for.

    Nothing else needs to be in the folder.

    Raises:
        NotFound, InputOutput, BadFormat: there is no config, or a bad one.
        Unsupported: the model is of another kind.
    """
    config = _config(path)
    try:
        return _wiring(config)
    except Exception as exc:
        raise _unusable(exc, path) from exc


def problems(path: str) -> list[str]:
    """Check a folder's wiring, and names and shapes of its weights, which are not loaded.

    Returns:
        The errors of one stage: of blocks, else of widths, else of weights. Empty if the folder's
        network can be made.

    Raises:
        NotFound, InputOutput, BadFormat, Unsupported: as :func:`read`, where it is not the
            wiring that is wrong.
    """
    config = _config(path)
    errors = _of_blocks(config)
    if errors:
        return errors
    try:
        wiring = _wiring(config)
        errors = _of_graph(wiring)
        return errors or _of_weights(path, config)
    except Exception as exc:
        return [str(_unusable(exc, path))]


def _config(path: str) -> dict[str, Any]:
    with weights.loading(path):
        config_files.check_folder(path)
        config = config_files.read_config(path)
        config_bounds.check_sizes(config)
    kind = config.get("model_type")
    if kind not in architectures.WIRED or config.get("model_file"):
        known = " and ".join(architectures.WIRED)
        raise Unsupported(
            f"{path} has no wiring: its model_type is {repr(kind)[:60]}; those of {known} have one",
            file=path,
        )
    return config


def _wiring(config: dict[str, Any]) -> Wiring:
    if config["model_type"] == "xlstm":
        return xlstm.create_xlstm_wiring(config)
    wiring: Wiring = architectures.load("mad").ModelArgs.from_dict(config).wiring
    return wiring


def _unusable(exc: Exception, path: str) -> CowMlxError:
    if isinstance(exc, CowMlxError):
        return exc
    return BadFormat(
        f"{path} has no usable wiring ({type(exc).__name__}: {exc})",
        reason="invalid_wiring",
        file=path,
    )


def _of_blocks(config: dict[str, Any]) -> list[str]:
    """Describe every malformed declaration of a block."""
    declared = config.get("wiring")
    listed = declared.get("blocks") if isinstance(declared, dict) else None
    if config["model_type"] != "mad" or not isinstance(listed, list):
        return []
    errors = []
    for block in listed:
        try:
            BlockSpec.from_json(block)
        except CowMlxError as exc:
            errors.append(str(exc))
    return errors


def _of_graph(wiring: Wiring) -> list[str]:
    """Describe every block that cannot be made, errors of the graph, and widths that do not fit."""
    errors = []
    made: dict[str, Block] = {}
    for spec in wiring.blocks:
        try:
            made[spec.name] = blocks.make(spec, wiring)
        except CowMlxError as exc:
            errors.append(str(exc))
    try:
        wiring.validate()
    except CowMlxError as exc:
        errors.append(str(exc))
    return errors or _of_widths(wiring, made)


def _of_widths(wiring: Wiring, made: dict[str, Block]) -> list[str]:
    try:
        blocks.check_widths(wiring, made)
        return []
    except CowMlxError as exc:
        errors = [str(exc)]
    # The rules report one misfit, so check every edge alone.
    for (source, target), polarity in wiring.edges.items():
        names = {wiring.input: None, source: None, target: None}
        names |= dict.fromkeys(made[target].borrowed(wiring[target]))
        part = Wiring()
        for name in names:
            part.add_block(name, wiring[name].type, **wiring[name].parameters)
        part.connect(source, target, polarity)
        try:
            blocks.check_widths(part, {name: made[name] for name in names})
        except CowMlxError as exc:
            errors.append(str(exc))
    return list(dict.fromkeys(errors))


def _of_weights(path: str, config: dict[str, Any]) -> list[str]:
    """Describe every weight that is missing, left over, or of another shape."""
    architecture = architectures.name(config)
    if not quantization.is_light(config):
        architectures.require_in_mlx_lm(architecture, config)
    module = architectures.load(architecture)
    net = module.Model(module.ModelArgs.from_dict(config))
    # Both sides are lazy: only headers of files are read.
    stored = weights.read(weights.shards(path))
    if hasattr(net, "sanitize"):
        stored = net.sanitize(stored)
    quantization.apply(net, config, stored)
    expected = weights.flatten(net.parameters())
    errors = []
    for name in expected.keys() - stored.keys():
        errors.append(f"{_place(name, net.wiring)} is not among the stored weights")
    for name in stored.keys() - expected.keys():
        errors.append(f"{_place(name, net.wiring)} is stored, but has no place in the wiring")
    for name in expected.keys() & stored.keys():
        if stored[name].shape != expected[name].shape:
            errors.append(
                f"{_place(name, net.wiring)} is {_shape(stored[name])}, "
                f"not {_shape(expected[name])}"
            )
    errors.sort()
    try:
        weights.assign(net, stored, path)
    except NotFound as exc:  # a whole shard is missing: that is why
        errors.insert(0, str(exc))
    except CowMlxError as exc:
        errors = errors or [str(exc)]
    return errors


def _place(name: str, wiring: Wiring) -> str:
    """Name a weight by its block."""
    match = _OF_BLOCK.fullmatch(name)
    if match is None or match[1] not in wiring:
        return f"the weight {name}"
    return f"block {match[1]} ({wiring[match[1]].type}): {match[2]}"


def _shape(array: mx.array) -> str:
    return "x".join(map(str, array.shape)) or "a scalar"
