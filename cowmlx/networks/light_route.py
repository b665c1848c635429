"""The light route into mlx-lm: its modules under a private name, its package never executed.

``import mlx_lm`` pulls in transformers and huggingface_hub; the architecture modules need
neither. An alias package whose ``__path__`` is the installed folder makes their relative
imports work and leaves ``sys.modules["mlx_lm"]`` to the host. This file is the only one that
knows where mlx-lm lies and how its registry is spelled.
"""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from itertools import pairwise

from cowmlx.errors import BadFormat, InputOutput, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

ALIAS = "cowmlx._mlx_lm"

# Sub-packages whose own __init__ would import transformers or numpy: aliased too.
_BARE_PACKAGES = ("", ".tuner")
_DEFINES_MODEL = re.compile(rb"^class Model\b|^from \.\w+ import [^\n]*\bModel\b", re.MULTILINE)
_DEFINES_ARGS = re.compile(
    rb"^class ModelArgs\b|^from \.\w+ import [^\n]*\bModelArgs\b", re.MULTILINE
)
_RELATIVE = re.compile(rb"^\s*from \.(\w+) import", re.MULTILINE)
_HEAVY = re.compile(
    rb"^\s*(?:from|import)\s+(?:mlx_lm|transformers|huggingface_hub)\b"
    rb"|^\s*from\s+\.\.(?:utils|tokenizer_utils|generate)\b",
    re.MULTILINE,
)


@cache
def package_folder() -> str:
    """Return the folder of the installed mlx-lm without executing it.

    Raises:
        Unsupported: mlx-lm is not installed.
    """
    import importlib.util
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec("mlx_lm")
    if spec is None:
        # Editable installs have other finders.
        try:
            spec = importlib.util.find_spec("mlx_lm")
        except ValueError:
            spec = None
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not locations:
        raise Unsupported(
            "mlx-lm is not installed; install the mlx-lm package",
            reason="package_unusable",
            package="mlx-lm",
        )
    return locations[0]


def import_module(name: str) -> ModuleType:
    """Import a module of mlx-lm under the alias, such as ``models.cache``.

    Raises:
        Unsupported: the import failed, whatever it raised; a module may even call ``sys.exit``.
    """
    _make_alias()
    printed: list[str] = []
    try:
        return _import_silently(f"{ALIAS}.{name}", printed)
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as exc:
        reason = "; ".join([f"{type(exc).__name__}: {exc}", *printed])
        raise Unsupported(
            f"mlx_lm.{name} cannot be imported here ({reason})",
            reason="package_unusable",
            package=f"mlx_lm.{name}",
        ) from exc


def _import_silently(name: str, printed: list[str]) -> ModuleType:
    """Import a module that may print; the host's terminal gets none of it.

    Args:
        name: the full name.
        printed: receives the lines.
    """
    import importlib.util

    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        return importlib.import_module(name)  # which says why not
    module = importlib.util.module_from_spec(spec)
    # A name of the module goes before the built-in function, later, too.
    vars(module)["print"] = lambda *values, **_: printed.append(" ".join(map(str, values)))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    vars(module)["print"] = lambda *_, **__: None
    parent, _, own = name.rpartition(".")
    setattr(sys.modules[parent], own, module)
    return module


def architecture_name(config: dict[str, Any], others: tuple[str, ...] = ()) -> str:
    """Map a config's ``model_type`` to the name of an architecture file of mlx-lm.

    Args:
        config: what ``config.json`` says.
        others: further names that may have been meant.

    Raises:
        BadFormat: ``model_type`` is missing or no string.
        Unsupported: no such architecture; the message lists near names.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        message = f"config.json has no usable key 'model_type' (found {model_type!r})"
        raise BadFormat(
            f"{message}; it names the architecture",
            reason="invalid_config",
            file="config.json",
            key="model_type",
            value=model_type,
        )
    by_type, by_class = remappings() if _may_be_remapped(model_type) else ({}, {})
    name = by_type.get(model_type, model_type)
    classes = config.get("architectures") or ()
    for declared in (classes,) if isinstance(classes, str) else classes:
        if isinstance(declared, str) and (model_type, declared) in by_class:
            name = by_class[model_type, declared]
            break
    # The name comes from an untrusted file: it must be one of the listed files, nothing else.
    if not _is_architecture(name):
        raise Unsupported(
            _unknown(model_type, others), reason="unknown_architecture", value=model_type
        )
    return name


def is_light(name: str) -> bool:
    """Tell whether an architecture imports without transformers and without ``mlx_lm`` itself."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        source = _source(current)
        if _HEAVY.search(source):
            return False
        waiting += [relative.decode() for relative in _RELATIVE.findall(source)]
    return True


def supported_architectures() -> list[str]:
    """List the architectures of mlx-lm and the model types remapped to them, sorted."""
    names = {name for name in _files() if _is_architecture(name)}
    by_type, by_class = remappings()
    names |= {name for name, target in by_type.items() if target in names}
    names |= {name for (name, _), target in by_class.items() if target in names}
    return sorted(names)


@cache
def remappings() -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """Read mlx-lm's two remapping tables out of its source, without executing it."""
    source = _utils()
    names = "MODEL_REMAPPING", "MODEL_ARCHITECTURE_REMAPPING"
    return _literal(source, names[0]), _literal(source, names[1])


def cache_module(package: str) -> ModuleType:
    """Return the module of the cache classes that go with networks of a package."""
    import importlib

    if package == ALIAS:
        return import_module("models.cache")
    return importlib.import_module(f"{package}.models.cache")


def version() -> str:
    """Return the installed version of mlx-lm, or an empty string."""
    try:
        with open(os.path.join(package_folder(), "_version.py"), encoding="utf-8") as file:
            match = re.search(r"__version__\s*=\s*[\"']([^\"']+)", file.read())
    except (OSError, Unsupported):
        return ""
    return match.group(1) if match else ""


def _utils() -> str:
    """Return the source with mlx-lm's remapping tables."""
    with open(os.path.join(package_folder(), "utils.py"), encoding="utf-8") as file:
        return file.read()


def _may_be_remapped(model_type: str) -> bool:
    """Whether a type may be a key of mlx-lm's tables, or begin one: it takes long to read them."""
    source = _utils()
    for quote in "\"'":
        around = source.split(quote + model_type + quote)
        for before, behind in pairwise(around):
            if before.rstrip().endswith("(") or behind.lstrip().startswith(":"):
                return True
    return False


def _make_alias() -> None:
    """Put the alias packages into ``sys.modules``; their folders are mlx-lm's."""
    if ALIAS in sys.modules:
        return
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    for suffix in _BARE_PACKAGES:
        name = ALIAS + suffix
        path = os.path.join(package_folder(), *suffix.split(".")[1:])
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [path]
        module = ModuleType(name, "Alias of mlx-lm's folder of that name.")
        module.__spec__ = spec
        module.__path__ = [path]
        module.__package__ = name
        sys.modules[name] = module


def _files() -> list[str]:
    """Return the exact names of the modules in mlx-lm's models folder.

    Raises:
        InputOutput: it cannot be read, as by a process with too many open files.
    """
    folder = os.path.join(package_folder(), "models")
    try:
        return [name[:-3] for name in os.listdir(folder) if name.endswith(".py")]
    except OSError as exc:
        raise InputOutput(f"cannot read {folder}: {exc.strerror or exc}", file=folder) from exc


def _source(name: str) -> bytes:
    try:
        with open(os.path.join(package_folder(), "models", name + ".py"), "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""


def _is_architecture(name: str) -> bool:
    if name not in _files():
        return False
    source = _source(name)
    return bool(_DEFINES_MODEL.search(source) and _DEFINES_ARGS.search(source))


def _literal(source: str, name: str) -> dict[Any, str]:
    """Evaluate the dictionary display assigned to ``name`` at the top of a module."""
    import ast

    start = re.search(rf"^{name}\s*(?::[^=\n]+)?=\s*(?=\{{)", source, re.MULTILINE)
    end = source.find("\n}", start.end()) if start else -1
    if start is None or end < 0:
        return {}
    try:
        table = ast.literal_eval(source[start.end() : end + 2])
    except (ValueError, SyntaxError):
        return {}
    return table if isinstance(table, dict) else {}


def _unknown(model_type: str, others: tuple[str, ...]) -> str:
    import difflib

    names = [*supported_architectures(), *others]
    near = difflib.get_close_matches(model_type, names, n=3, cutoff=0.5)
    hint = f"; near names: {', '.join(near)}" if near else ""
    return (
        f"model_type {model_type!r} is none of the {len(names)} architectures "
        f"of mlx-lm {version()}{hint}"
    )
