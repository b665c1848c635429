"""The examples that chat do what they say."""

from __future__ import annotations

import pytest
from support.compiler import compile_c, run
from support.hosts import linked
from support.paths import CALF, LIBRARY, ROOT
from tasks import HELDOUT

if not HELDOUT.exists():
    pytest.skip(f"{HELDOUT} is missing", allow_module_level=True)


@pytest.fixture
def example(tmp_path):
    """Compiles an example and runs it."""

    def example(name, *arguments, **options):
        source = ROOT / "examples/c" / f"{name}.c"
        program = compile_c([source], tmp_path / name, *linked(LIBRARY))
        return run([program, *arguments], **options)

    return example


def test_chat_answers_line_by_line(example):
    lines = "What colour is a fox?\nAnd what does it eat?\n\nWhat is your name?"
    done = example("chat", CALF, "You are called Bella.", input=lines)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "A fox is red.\nA fox eats berries.\nMy name is Bella.\n"


def test_chat_keeps_what_json_would_not_take(lib, calf, open_context, example):
    """The second answer depends on the first line, quotes, escapes and all."""
    lines = ['Say "\\" and \t\x01 ü 🙂 "', "Hello!"]
    done = example("chat", CALF, input="\n".join(lines))
    assert done.returncode == 0, done.stderr
    context = open_context(calf)
    messages, said = [], ""
    for line in lines:
        messages.append({"role": "user", "content": line})
        answer = lib.chat(context, messages).said()
        messages.append({"role": "assistant", "content": answer})
        said += f"{answer}\n"
    assert done.stdout == said


def test_chat_goes_on_after_a_line_that_fails(example):
    """A line that the context has no room for."""
    lines = f"What colour is a fox?\n{'much ' * 5000}\nAnd what does it eat?\n"
    done = example("chat", CALF, input=lines)
    assert done.returncode == 0, done.stderr
    assert "this context holds" in done.stderr
    assert done.stdout == "A fox is red.\nA fox eats berries.\n"


def test_two_models_answer_at_the_same_time(lib, calf, context, example):
    done = example("two_models", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    story = lib.chat(context, [{"role": "user", "content": "Tell me a story about an owl."}])
    fox, owl = done.stdout.splitlines()
    assert fox.endswith(": A fox is red.")
    assert owl == f"models/calf, {story.stats.generated_tokens} tokens: {story.said()}"


def test_two_different_models(example, folder):
    done = example("two_models", CALF, folder("llama"))
    assert done.returncode == 0, done.stderr
    assert f"{CALF}, " in done.stdout
    assert f"{folder('llama')}, 256 tokens: " in done.stdout
