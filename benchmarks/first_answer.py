"""From nothing to the first answer: ``python -m benchmarks.first_answer DIST``.

DIST is where ``make packages`` has put them. Each language's user has what its ecosystem brings,
the packages in the folder, as if they were published, and the model's folder. Every command runs in
a new folder with an empty HOME, so that nothing has been downloaded or built before, and in a view
of the system that forgets what it installs: this needs Linux, root and overlayfs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.cases import Row, publish
from benchmarks.support.paths import CALF, ROOT
from benchmarks.support.tables import write_tables
from tools.packaging.registry import serving

LIBRARY = f"/usr/lib/{platform.machine()}-linux-gnu/libcowmlx.so.1"
SYSTEM = ("/usr", "/etc", "/var")


@dataclass(frozen=True)
class User:
    """A user of a language.

    Attributes:
        language: its name.
        folder: where the user works, as in the tree.
        sources: what the user has written, and what is not published for the language; patterns.
        commands: what the user types.
        answer: what is printed then.
    """

    language: str
    folder: str
    sources: tuple[str, ...]
    commands: tuple[str, ...]
    answer: str = "3 + 4 = 7."


INSTALL = "apt-get install -y ./libcowmlx1_*.deb"
DEVELOPMENT = f"{INSTALL} ./libcowmlx-dev_*.deb"
QUESTION = '"What is 3 + 4?"'
# The beginning that the examples continue, and the end of their story.
BEGINNING, STORY = '"Once upon a time"', "[canceled]"
USERS = (
    User(
        "C",
        "examples/c",
        ("examples/c/generate.c",),
        (
            DEVELOPMENT,
            "cc generate.c $(pkg-config --cflags --libs cowmlx) -o generate"
            f" && ./generate calf {QUESTION}",
        ),
    ),
    User(
        "Python",
        "examples/python",
        (),
        (
            "python3 -m venv env && env/bin/pip install cowmlx",
            f"echo {QUESTION} | env/bin/python -m cowmlx chat calf",
        ),
    ),
    User(
        "Node.js",
        "bindings/node/examples",
        ("bindings/node/examples/answer.mjs",),
        ("npm install cowmlx", "node answer.mjs calf"),
    ),
    User(
        "Rust",
        "examples/rust",
        ("examples/rust/Cargo.toml", "examples/rust/build.rs", "examples/rust/src/*"),
        (DEVELOPMENT, "cargo run -- calf"),
    ),
    User(
        "Go",
        "examples/go",
        ("examples/go/*", "bindings/go/**/*"),
        (INSTALL, f"go run . {LIBRARY} calf {BEGINNING}"),
        STORY,
    ),
    User(
        "Java",
        "examples/java",
        ("examples/java/pom.xml", "examples/java/src/**/*", "bindings/java/src/**/*"),
        (INSTALL, f"mvn compile exec:java -Dexec.args='{LIBRARY} calf {BEGINNING}'"),
        STORY,
    ),
)


def lay_out(user: User, packages: Path, folder: Path) -> Path:
    """Put into a folder what the user has; return where the user works."""
    for pattern in user.sources:
        for source in ROOT.glob(pattern):
            if source.is_file():
                copy = folder / source.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, copy)
    here = folder / user.folder
    here.mkdir(parents=True, exist_ok=True)
    for path in (*packages.glob("*.deb"), *packages.glob("*linux*.whl")):
        (here / path.name).symlink_to(path)
    shutil.copytree(CALF, here / "calf")
    return here


def published_crates(packages: Path, home: Path) -> None:
    """Let cargo find the crates, as if their registry had them."""
    lines = ["[patch.crates-io]"]
    for path in sorted(packages.glob("*.crate")):
        with tarfile.open(path) as archive:
            # Python 3.11.4 is the first with filters.
            archive.extraction_filter = getattr(tarfile, "data_filter", None)
            archive.extractall(home)
        name = path.stem.rsplit("-", 1)[0]
        lines.append(f'{name} = {{ path = "{home / path.stem}" }}')
    (home / ".cargo").mkdir()
    (home / ".cargo/config.toml").write_text("\n".join([*lines, ""]))


@contextlib.contextmanager
def environment(packages: Path, home: Path) -> Iterator[dict[str, str]]:
    """What the user's programs see: an empty home, and registries that have the packages."""
    published_crates(packages, home)
    tools = [
        Path(tool_path).parent for tool in ("go", "cargo") if (tool_path := shutil.which(tool))
    ]
    path = os.pathsep.join([*map(str, tools), "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"])
    rustup = os.environ.get("RUSTUP_HOME") or str(Path.home() / ".rustup")
    kept = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    kept |= {name: os.environ[name] for name in ("PIP_CERT", "GOPROXY") if name in os.environ}
    with serving(packages) as registry:
        yield {
            **kept,
            "PATH": path,
            "HOME": str(home),
            "CARGO_HOME": str(home / ".cargo"),
            "RUSTUP_HOME": rustup,
            "DEBIAN_FRONTEND": "noninteractive",
            "GOTOOLCHAIN": "local",
            "LANG": "C.UTF-8",
            "PIP_FIND_LINKS": str(packages),
            "npm_config_registry": registry,
        }


def overlaid(folder: Path) -> list[str]:
    """Return a command that runs another where changes of the system go into a folder."""
    mounts = []
    for at, lower in enumerate(SYSTEM):
        upper, work = folder / f"upper{at}", folder / f"work{at}"
        upper.mkdir(parents=True)
        work.mkdir()
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        mounts.append(f"mount -t overlay overlay -o {options} {lower}")
    return ["unshare", "--mount", "sh", "-c", f'{" && ".join(mounts)} && exec "$@"', "sh"]


def measured(user: User, packages: Path) -> Row:
    """Measure one user's commands; all of them run in the same view of the system."""
    seconds = []
    with tempfile.TemporaryDirectory() as scratch:
        folder, home = lay_out(user, packages, Path(scratch, "tree")), Path(scratch, "home")
        home.mkdir()
        marks = [f"{command} && date +%s.%N >>{scratch}/times" for command in user.commands]
        script = " && ".join(f"{{ {mark}; }}" for mark in marks)
        with environment(packages, home) as env:
            command = [*overlaid(Path(scratch, "system")), "bash", "-c", script]
            begun = time.time()
            done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        if done.returncode or user.answer not in done.stdout:
            sys.exit(f"{user.language}: {script}\n{done.stdout}{done.stderr}")
        for line in Path(scratch, "times").read_text().split():
            seconds.append(float(line) - begun)
            begun = float(line)
    return {
        "language": user.language,
        "commands": list(user.commands),
        "seconds": [round(value, 1) for value in seconds],
        "all, s": round(sum(seconds), 1),
    }


def main() -> None:
    """Measure, and write the page's table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", type=Path, help="the folder that make packages has filled")
    parser.add_argument("languages", nargs="*", help="those to measure; all if there is none")
    given = parser.parse_args()
    chosen = [u for u in USERS if not given.languages or u.language in given.languages]
    rows = [measured(user, given.packages.resolve()) for user in chosen]
    if given.languages:
        print(*rows, sep="\n")
        return
    publish("first_answer", "from nothing to the first answer", rows)
    write_tables()


if __name__ == "__main__":
    main()
