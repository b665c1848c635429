"""The blocks of the page on installing, from local packages and as if they were published.

Each runs in a view of the system that forgets what was installed there, with an empty home. A
registry on this machine stands for one that has the packages; what they require comes from the
network.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from published import made
from support.archives import extract
from support.code_blocks import Block, blocks_of
from support.compiler import require, run
from support.outside import UNREACHABLE, needs
from support.paths import CALF, ROOT

from benchmarks.first_answer import overlaid
from tools.packaging.registry import serving

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("packages")]
PAGES = ROOT / "docs/getting-started"
ANSWER = "3 + 4 = 7."
# The file that the first program of a language's page goes into.
PROGRAMS = {
    "C": ("c.md", "c", "hello.c"),
    "C++": ("cpp.md", "cpp", "hello.cpp"),
    "Rust": ("rust.md", "rust", "src/main.rs"),
    "Node.js": ("node.md", "js", "hello.mjs"),
    "Go": ("go.md", "go", "main.go"),
    "Java": ("java.md", "java", "src/main/java/Hello.java"),
}
TOOLS = {
    "C": ["cc", "pkg-config"],
    "C++": ["c++", "pkg-config"],
    "Rust": ["cargo"],
    "Java": ["mvn"],
}
DEBIAN = "Debian and Ubuntu"

# apt's own user may not read what pytest has written.
APT = """Dir::Etc::SourceList "{sources}";
Dir::Etc::SourceParts "-";
APT::Sandbox::User "root";
"""
# Where Maven finds what is published.
SETTINGS = """<settings>
  <profiles><profile><id>published</id><repositories><repository>
    <id>published</id><url>file://{dist}/maven</url>
  </repository></repositories></profile></profiles>
  <activeProfiles><activeProfile>published</activeProfile></activeProfiles>
</settings>
"""


def sections() -> dict[str, list[Block]]:
    """The blocks that are run of each section: from local packages, and published."""
    text = (PAGES / "install.md").read_text()
    parts = re.split(r"^## (.+)$", text, flags=re.M)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    return {
        name: [block for block in blocks_of(part, name) if "test_install_page" in block.note]
        for name, part in found.items()
    }


@pytest.fixture(scope="module")
def dist(tmp_path_factory, bundle) -> Path:
    """All packages but the wheel."""
    for tool in ("dpkg-deb", "npm", "cargo", "mvn"):
        require(tool)
    if os.geteuid() != 0:
        pytest.skip("apt-get installs as root alone")
    folder = tmp_path_factory.mktemp("dist")
    for target in ("npm", "crates", "deb", "go", "java"):
        made(target, folder, f"COWMLX_BUNDLE={bundle}", "DEB_OPTIONS=-Zgzip -z1")
    indexed(folder)
    return folder


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    """The wheel beside them, whose kernels are compiled the first time."""
    return made("wheel", dist)


def indexed(folder: Path) -> None:
    """Write what makes a folder a repository for apt."""
    entries = []
    for path in sorted(folder.glob("*.deb")):
        about = run(["dpkg-deb", "--field", path]).stdout
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        size = path.stat().st_size
        entries.append(f"{about}Filename: ./{path.name}\nSize: {size}\nSHA256: {digest}\n")
    (folder / "Packages").write_text("\n".join(entries))


@pytest.fixture
def user(dist, tmp_path) -> Iterator[dict[str, str]]:
    """The environment of a user, whose home is empty but for registries that have the packages."""
    home = tmp_path / "home"
    (home / ".cargo").mkdir(parents=True)
    tools = {str(Path(found).parent) for tool in ("go", "cargo") if (found := shutil.which(tool))}
    names = ("GOPROXY", "PIP_CERT", "PIP_INDEX_URL", "NODE_EXTRA_CA_CERTS")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    kept |= {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    caches = run(["go", "env", "GOMODCACHE", "GOCACHE"]).stdout.split() if tools else ["", ""]
    yield {
        **kept,
        "RUSTUP_HOME": os.environ.get("RUSTUP_HOME") or str(Path.home() / ".rustup"),
        "DIST": str(dist),
        "HOME": str(home),
        "CARGO_HOME": str(home / ".cargo"),
        "PATH": os.pathsep.join(
            [*tools, "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        ),
        "DEBIAN_FRONTEND": "noninteractive",
        "LANG": "C.UTF-8",
        "GOTOOLCHAIN": "local",
        "GOCACHE": caches[1],
        # What the wheel requires is large, and tests/packaging/test_wheel.py installs it.
        "PIP_NO_DEPS": "1",
        "MAVEN_OPTS": f"-Duser.home={home} -Dmaven.repo.local={Path.home() / '.m2/repository'}",
        "npm_config_audit": "false",
    }


def published(dist: Path, user: dict[str, str], scratch: Path, registry: str) -> dict[str, str]:
    """The same where registries have the packages."""
    home = Path(user["HOME"])
    lines = ["[patch.crates-io]"]
    for path in sorted(dist.glob("*.crate")):
        extract(path, home)
        name = path.stem.rsplit("-", 1)[0]
        lines.append(f'{name} = {{ path = "{home / path.stem}" }}')
    (home / ".cargo/config.toml").write_text("\n".join([*lines, ""]))
    sources = scratch / "sources.list"
    sources.write_text(f"deb [trusted=yes] file:{dist} ./\n")
    settings = scratch / "apt.conf"
    settings.write_text(APT.format(sources=sources))
    (home / ".m2").mkdir()
    (home / ".m2/settings.xml").write_text(SETTINGS.format(dist=dist))
    proxies = run(["go", "env", "GOPROXY"]).stdout.strip() if shutil.which("go") else ""
    return {
        **user,
        "APT_CONFIG": str(settings),
        "GOPROXY": f"file://{dist}/go,{proxies}",
        "GONOSUMDB": "cowmlx.internal",
        "PIP_FIND_LINKS": str(dist),
        "npm_config_registry": registry,
    }


def laid_out(name: str, folder: Path) -> None:
    """Put into a folder what a user has written: the first program of the language's page."""
    folder.mkdir()
    (folder / "models").mkdir()
    shutil.copytree(CALF, folder / "models/calf")
    if name in PROGRAMS:
        page, language, file = PROGRAMS[name]
        blocks = blocks_of((PAGES / page).read_text(), page)
        programs = [block for block in blocks if block.language == language]
        program = next(block.code for block in programs if block.title != "build.rs")
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(program)
    if name == "Java":
        blocks = blocks_of((PAGES / "install.md").read_text(), "install.md")
        [pom] = [block.code for block in blocks if block.title == "pom.xml"]
        (folder / "pom.xml").write_text(pom)


def answered(commands: list[str], folder: Path, env: dict[str, str], scratch: Path) -> str:
    """What commands print in a view of the system that forgets what they install."""
    script = scratch / "commands"
    script.write_text("set -e\n" + "\n".join(commands))
    words = [*overlaid(scratch / "system"), "bash", str(script)]
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    if done.returncode and (reason := re.search(UNREACHABLE, done.stdout + done.stderr)):
        pytest.skip(f"packages cannot be fetched here: {reason[0]}")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def blocks(name: str, is_published: bool) -> list[str]:
    """The commands of a section; those of programs that need the library begin with Debian's."""
    found = sections()
    commands = [found[name][-1 if is_published else 0].code]
    if name not in (DEBIAN, "Node.js", "Python"):
        commands.insert(0, found[DEBIAN][1 if is_published else 0].code)
    if is_published and name not in ("Node.js", "Python"):
        commands.insert(0, "apt-get update")
    if name == "Python":  # what PIP_NO_DEPS has left out
        lines = commands[0].splitlines()
        environment = ROOT / ".venv/lib" / f"python3.{sys.version_info.minor}/site-packages"
        places = "env/lib/python*/site-packages"
        lines.insert(2, f"for path in {places}; do echo {environment} > $path/others.pth; done")
        commands[0] = "\n".join(lines)
    if name == "Java":  # Maven keeps what it has had, and would take it again
        keeps = Path.home() / ".m2"
        upper, work = "$HOME/upper", "$HOME/work"
        options = f"lowerdir={keeps},upperdir={upper},workdir={work}"
        commands.insert(0, f"mkdir -p {keeps} {upper} {work}")
        commands.insert(1, f"mount -t overlay overlay -o {options} {keeps}")
        if is_published:
            commands.insert(0, "sed -i '/<repositories>/,/<\\/repositories>/d' pom.xml")
    return commands


# C and C++ have one block, behind either of Debian's.
CASES = [(name, False) for name in (DEBIAN, *PROGRAMS, "Python")]
CASES += [(name, True) for name in (DEBIAN, "Rust", "Node.js", "Go", "Java", "Python")]


@pytest.mark.parametrize(("name", "is_published"), CASES)
def test_what_the_page_says_works(name, is_published, dist, user, tmp_path, request):
    if name == "Python":
        request.getfixturevalue("wheel")
    for tool in TOOLS.get(name, []):
        require(tool)
    if name == "Go":
        needs("go", (1, 25), "version")
    folder = tmp_path / "user"
    laid_out(name, folder)
    with serving(dist) as registry:
        env = published(dist, user, tmp_path, registry) if is_published else user
        said = answered(blocks(name, is_published), folder, env, tmp_path)
    assert name == DEBIAN or ANSWER in said


def test_every_language_has_a_block_for_both():
    found = sections()
    assert set(found) == {DEBIAN, *PROGRAMS, "Python", "To the first answer"}
    for name in (DEBIAN, "Rust", "Node.js", "Go", "Java", "Python"):
        assert len(found[name]) == 2, name
    assert len(found["C"]) == len(found["C++"]) == 1  # with Debian's packages, whichever they are
