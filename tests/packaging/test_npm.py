"""make npm: npm installs it where there is no compiler, and a model answers."""

from __future__ import annotations

import json
import os
import re
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from published import made
from support.archives import extract
from support.compiler import require, run
from support.paths import LIBRARY

from tools.packaging import npm
from tools.packaging.registry import serving

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("packages")]
TOOLS = ["node", "npm", "sh"]
UNREACHABLE = r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH"
HOST = """
import { CowMlxError, Model, Runtime, libraryPath, version } from "cowmlx";

const runtime = new Runtime();
const model = await Model.load(process.argv[2]);
const context = model.context();
const prompt = model.chatPrompt([{ role: "user", content: "What is 3 + 4?" }]);
let answer = "";
for await (const piece of context.generate(prompt)) answer += piece.text;
const missing = await Model.load("no/such/model").catch((error) => error);
const failed = missing instanceof CowMlxError ? missing.status : "not an error of the package";
console.log(JSON.stringify([answer, context.finish, libraryPath(), version(), failed]));
runtime.close();
"""
TYPED = """
import { Model, Runtime } from "cowmlx";

const runtime: Runtime = new Runtime();
const model: Model = await Model.load("models/calf");
for await (const piece of model.context().generate(model.tokenize("Once", { addSpecial: true }))) {
  const text: string = piece.text;
}
runtime.close();
"""
MISTAKES = {"await Model.load(7);": "TS2345", "new Runtime().open();": "TS2339"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory, bundle) -> Path:
    """The packages."""
    for tool in ("node", "npm"):
        require(tool)
    return made("npm", tmp_path_factory.mktemp("dist"), f"COWMLX_BUNDLE={bundle}")


@pytest.fixture(scope="module")
def project(dist, tmp_path_factory) -> Iterator[Path]:
    """A project with the package, in a home that has seen no other, without a compiler."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "bin").mkdir()
    for tool in TOOLS:
        (folder / "bin" / tool).symlink_to(require(tool) if tool != "sh" else shutil.which(tool))
    env = {"PATH": str(folder / "bin"), "HOME": str(folder)}
    kept = ("NODE_EXTRA_CA_CERTS", "npm_config_cafile", "HTTPS_PROXY", "https_proxy")
    env |= {name: os.environ[name] for name in kept if name in os.environ}
    with serving(dist) as address:
        options = [f"--registry={address}", "--no-audit", "--no-fund", "--fetch-retries=0"]
        done = run(["npm", "install", *options, "cowmlx"], cwd=folder, env=env)
    if done.returncode and (reason := re.search(UNREACHABLE, done.stderr)):
        pytest.skip(f"npm cannot fetch koffi here: {reason[0]}")
    assert done.returncode == 0, done.stderr
    yield folder
    shutil.rmtree(folder)  # it is large


def test_npm_chooses_this_platform_and_compiles_nothing(project):
    installed = {path.name for path in (project / "node_modules").iterdir()}
    assert installed >= {"cowmlx", "koffi", f"cowmlx-{npm.here()}"}
    others = {f"cowmlx-{name}" for name in npm.PLATFORMS} - {f"cowmlx-{npm.here()}"}
    assert installed & others == set()
    assert not (project / "node_modules/koffi/build").exists()


def test_a_model_answers(project, model):
    (project / "host.mjs").write_text(HOST)
    done = run([project / "bin/node", "host.mjs", model], cwd=project, env={})
    assert (done.returncode, done.stderr) == (0, "")
    answer, finish, library, version, failed = json.loads(done.stdout)
    assert (answer, finish, failed) == ("3 + 4 = 7.", "stop", "ENOENT")
    home = project / f"node_modules/cowmlx-{npm.here()}"
    assert library == str(home / "lib" / LIBRARY.name)
    assert version == json.loads((home / "package.json").read_text())["version"]


def test_the_declarations_know_what_is_right_and_what_is_not(project):
    options = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--types", ""]
    head = 'import { Model, Runtime } from "cowmlx";\n'
    (project / "right.mts").write_text(TYPED)
    for at, line in enumerate(MISTAKES):
        (project / f"wrong{at}.mts").write_text(head + line)
    files = sorted(path.name for path in project.glob("*.mts"))
    done = run([npm.compiler(), *options, *files], cwd=project)
    said = dict(re.findall(r"^(\w+)\.mts.*?error (TS\d+)", done.stdout, re.M))
    assert said == {f"wrong{at}": code for at, code in enumerate(MISTAKES.values())}, done.stdout


def test_the_library_s_package_is_the_bundle(dist):
    [path] = dist.glob(f"cowmlx-{npm.here()}-*.tgz")
    with tarfile.open(path) as archive:
        found = {info.name.removeprefix("package/") for info in archive if info.isfile()}
        told = json.load(archive.extractfile("package/MANIFEST.json"))["files"]
    assert found == {*told, "MANIFEST.json"} > {"package.json", "index.cjs", "LICENSE"}


def test_another_platform_is_told_what_to_do(dist, tmp_path):
    """As on one for which there is no package: the binding alone, and nothing beside it."""
    [path] = dist.glob("cowmlx-1*.tgz")
    extract(path, tmp_path)
    (tmp_path / "node_modules/koffi").mkdir(parents=True)  # in place of the real one
    (tmp_path / "node_modules/koffi/index.js").write_text("module.exports = {};\n")
    script = 'import("./package/lib/native.js").then((m) => console.log(m.bundledLibrary()))'
    done = run([require("node"), "-e", script], cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("undefined\n", "")
