"""A text stream and a cancel from Node.js, Go and Java."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from support.compiler import run
from support.outside import command
from support.paths import ROOT
from support.streamed import check_streamed

from cowmlx.generated.constants import VERSION

HOSTS = ROOT / "tests/runtimes/hosts"

pytestmark = pytest.mark.xdist_group("runtimes")


def test_node_with_koffi(node_folder, arguments, story):
    done = command("node", "stream.mjs", *arguments, cwd=node_folder)
    assert done.stderr == ""
    check_streamed(done.stdout, story)


def test_go_with_purego(go_programs, arguments, story):
    done = run([go_programs / "go", *arguments])
    assert (done.returncode, done.stderr) == (0, "")
    check_streamed(done.stdout, story)


def test_java_with_jna(java_said, story):
    check_streamed(java_said[2], story)


def test_node_tells_why_a_call_failed_that_had_returned(node_folder, arguments, narrow):
    done = run(["node", "stream.mjs", arguments[0], narrow, "long " * 40], cwd=node_folder)
    assert done.returncode == 1
    assert re.search(r"Error: Context\.generate: the prompt.* holds 16\b", done.stderr)


def test_node_chats_with_a_tool(node_folder, arguments):
    asked = ["What is 3 + 4?", "What is the weather in Paris?"]
    done = command("node", "chat.mjs", *arguments[:2], *asked, cwd=node_folder)
    assert done.stdout.splitlines() == [
        "3 + 4 = 7.",
        '[get_weather {"city": "Paris"}]',
        "It is sunny and 21 degrees in Paris.",
    ]


def test_node_s_loop_is_free_while_eight_contexts_generate(node_folder, arguments):
    """The processor time of its thread between two timers: what others do does not count."""
    done = command("node", "loop.mjs", *arguments[:2], "8", "1", cwd=node_folder)
    told = json.loads(done.stdout)
    assert told["contexts"] == 8
    assert told["pieces_per_second"] > 8
    assert told["generating"]["work"]["count"] > 0
    assert told["generating"]["pool"]["count"] > 0


def test_electron_s_processes(node_folder, arguments):
    """Under Node, with stand-ins for Electron's own modules alone."""
    shutil.copytree(HOSTS / "electron", node_folder / "node_modules/electron", dirs_exist_ok=True)
    asked = ["What is 3 + 4?", "Tell me a story about an owl.!", "What colour is a fox?"]
    questions = json.dumps(asked)
    done = command(
        "node", "electron/main.mjs", *arguments[:2], cwd=node_folder, QUESTIONS=questions
    )
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "user: What is 3 + 4?",
        "assistant: 3 + 4 = 7.",
        "user: Tell me a story about an owl.",
    ]
    assert lines[3].startswith("assistant: ")
    assert lines[4:6] == ["note: canceled", "user: What colour is a fox?"]
    assert lines[6].startswith("assistant: ")  # what it says depends on where the story was stopped


# Refuses the first context, and prints how many messages each question has.
REFUSES = """
import { Context, Model } from "cowmlx";
const { contextAsync } = Model.prototype, { chat } = Context.prototype;
let asked = 0;
Model.prototype.contextAsync = async function (...given) {
  if (!asked++) throw new Error("no memory");
  return contextAsync.apply(this, given);
};
Context.prototype.chat = function (messages, ...given) {
  console.log(`messages: ${messages.length}`);
  return chat.call(this, messages, ...given);
};
"""


def test_an_electron_window_asks_again_for_a_refused_context(node_folder, arguments):
    shutil.copytree(HOSTS / "electron", node_folder / "node_modules/electron", dirs_exist_ok=True)
    (node_folder / "refuses.mjs").write_text(REFUSES)
    started = ["node", "--import", "./refuses.mjs", "electron/main.mjs", *arguments[:2]]
    questions = json.dumps(["What colour is a fox?", "What is 3 + 4?"])
    done = command(*started, cwd=node_folder, QUESTIONS=questions)
    assert done.stdout.splitlines() == [
        "messages: 1",
        "user: What colour is a fox?",
        "assistant: ",
        "note: no memory",
        "user: What is 3 + 4?",
        "assistant: 3 + 4 = 7.",
    ]


def test_packages_are_pinned_and_name_no_registry():
    lock = json.loads((ROOT / "examples/node/package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    ours = [package for package in packages if package.get("resolved", "").startswith("file:")]
    others = [package for package in packages if package not in ours]
    assert [package["version"] for package in ours] == [VERSION]
    assert all("integrity" in package and "resolved" not in package for package in others)
    pom = (ROOT / "examples/java/pom.xml").read_text()
    assert "<repositor" not in pom
    assert re.findall(r"<version>(.*)</version>", pom)
