"""What lies around a host does not reach the interpreter that the library boots."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.compiler import run

MINOR = f"python3.{sys.version_info.minor}"
POISONED = ["json", "mlx", "tokenizers", "jinja2", "cowmlx", "sitecustomize", "usercustomize"]


@pytest.fixture
def poison(tmp_path: Path) -> Path:
    """A folder of modules that end the process that imports them."""
    for name in POISONED:
        (tmp_path / f"{name}.py").write_text(f"import os; os.write(2, b'{name}'); os._exit(66)\n")
    return tmp_path


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PYTHONPATH", "{poison}"),
        ("PYTHONSTARTUP", "{poison}/json.py"),
        ("PYTHONHOME", "/nowhere"),
        ("PYTHONPLATLIBDIR", "nowhere"),
        ("PYTHONPYCACHEPREFIX", "{poison}"),
        ("PYTHONVERBOSE", "1"),
        ("PYTHONINSPECT", "1"),
        ("PYTHONDEVMODE", "1"),
        ("VIRTUAL_ENV", "{poison}"),
    ],
)
def test_variable_of_python(run_host, expected, poison, variable, value):
    env = {variable: value.format(poison=poison)}
    assert run_host("generate.c", env=env) == expected


def test_current_folder(run_host, expected, poison):
    assert run_host("generate.c", cwd=poison) == expected


def test_user_site(run_host, expected, poison):
    site = poison / "home/.local/lib" / MINOR / "site-packages"
    site.mkdir(parents=True)
    for name in POISONED:
        (poison / f"{name}.py").rename(site / f"{name}.py")
    (site / "poison.pth").write_text("import json, os; os._exit(67)\n")
    env = {"HOME": str(poison / "home"), "PYTHONUSERBASE": str(poison / "home/.local")}
    assert run_host("generate.c", env=env) == expected


def test_poison_works(poison, environment):
    """The tests above prove something: a plain Python does import it."""
    env = {**environment, "PYTHONPATH": str(poison)}
    done = run([sys.executable, "-c", "import json"], env=env)
    assert done.returncode == 66


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "no_such_LOCALE"])
def test_path_beyond_ascii(run_host, expected, model, tmp_path, locale):
    path = tmp_path / "möödel"
    path.symlink_to(model)
    assert run_host("generate.c", env={"LC_ALL": locale}, path=path) == expected


def test_relative_path(run_host, expected, model):
    assert run_host("generate.c", cwd=model.parent, path=Path(model.name)) == expected


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-"])
def test_closed_standard_streams(host, model, environment, expected, closed):
    """Service managers start programs so; mlx takes descriptor 0 for "not open"."""
    command = ["sh", "-c", f'"$0" "$1" {closed}', host("generate.c"), model]
    done = run(command, env=environment)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr
