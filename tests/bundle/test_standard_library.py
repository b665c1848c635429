"""Modules of the standard library that a bundle keeps need no others."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from support.compiler import run

from cowmlx.commands.bundle import python

# Imports all modules that are kept, where the others cannot be found.
SCRIPT = """
import sys
kept, extensions = (frozenset(names.split()) for names in sys.argv[1:])

class Rest:
    def find_spec(name, path=None, target=None):
        parts = name.split(".")
        heads = {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
        if name in sys.builtin_module_names or parts[0] in extensions:
            return None
        if kept & heads or name + ".__init__" in kept:
            return None
        raise ModuleNotFoundError(f"a bundle has no {name}", name=name)

sys.meta_path.insert(0, Rest)
from importlib import import_module
from importlib.machinery import PathFinder
for name in sorted(name.removesuffix(".__init__") for name in kept):
    try:
        package = name.rpartition(".")[0]
        path = import_module(package).__path__ if package else None
        if name in sys.modules or PathFinder.find_spec(name, path):
            import_module(name)
    except ImportError as exc:
        print(f"{name}: {exc}")
"""


def interpreter(version: str) -> str:
    """A Python of a version: this one, one beside it, or one on the path."""
    beside = Path(sys.base_prefix).parent.glob(f"*/bin/python{version}")
    for path in [sys.executable, *map(str, beside), shutil.which(f"python{version}")]:
        asked = run([path or "false", "-Sc", "import sys; print(*sys.version_info[:2], sep='.')"])
        if asked.stdout.strip() == version:
            return str(path)
    pytest.skip(f"there is no Python {version} here")


def test_extension_modules_of_a_python_that_was_moved(monkeypatch):
    extensions = python.find().extensions
    known = sysconfig.get_config_var
    moved = {"DESTSHARED": "/where/it/was/built"}
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: moved.get(name) or known(name))
    assert python.find().extensions.samefile(extensions)


@pytest.mark.parametrize("version", [f"3.{minor}" for minor in range(11, 16)])
def test_kept_modules_import_nothing_that_is_left_out(version):
    names = [" ".join(python.kept()), " ".join(python.EXTENSIONS)]
    done = run([interpreter(version), "-I", "-S", "-c", SCRIPT, *names])
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
