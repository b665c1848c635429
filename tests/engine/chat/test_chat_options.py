"""No option of a chat is ignored: what nobody reads is refused."""

from __future__ import annotations

import pytest
from support import scripted
from support.callbacks import StatusError
from support.scripted import CHATML, THINKING
from support.signatures import EINVAL

USER = [{"role": "user", "content": "What colour is a fox?"}]
THINK = ["<think>", "</think>"]
TOOLS = [{"type": "function", "function": {"name": "look"}}]
# Reads variables in a macro, in a branch and behind a test; sets some of its own.
READS = (
    "{% macro say(x) %}{{ x }}{{ in_macro }}{% endmacro %}"
    "{% set own = 1 %}{% if tested is defined %}{{ tested }}{% endif %}"
    "{% if own == 2 %}{% set half = 1 %}{% endif %}{{ half }}"
    "{% for local in range(1) %}{{ say(local) }}{% endfor %}"
    "{% for document in documents or [] %}{{ document.text }}{% endfor %}" + CHATML
)


@pytest.fixture
def loaded(lib, tmp_path):
    """Loads a scripted model by its template."""
    models = []

    def loaded(template, markers=(), **settings):
        folder = scripted.make(tmp_path / str(len(models)), template, markers, **settings)
        models.append(lib.load(folder))
        return models[-1]

    yield loaded
    for model in models:
        lib.free_model(model)


def refused(lib, model, context=None, **options):
    """The message with which both calls that take options refuse some."""
    with pytest.raises(StatusError) as prompt:
        lib.chat_prompt(model, USER, **options)
    assert prompt.value.status == EINVAL
    message = prompt.value.message.removeprefix("model_chat_prompt: ")
    if context is not None:
        with pytest.raises(StatusError) as chat:
            lib.chat(context, USER, options=options)
        assert chat.value.status == EINVAL
        assert chat.value.message == f"context_chat: {message}"
    return message


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"add_generation_promt": False}, "did you mean 'add_generation_prompt'?"),
        ({"add_generation_promt": None}, "did you mean 'add_generation_prompt'?"),
        ({"tool": TOOLS}, "did you mean 'tools'?"),
        ({"toolchoice": "none"}, "did you mean 'tool_choice'?"),
        ({"temperature": 2}, "'temperature' is no option"),
        ({"chat_template_kwargs": {"a": 1}}, "'chat_template_kwargs' is no option"),
        ({"thinking": True}, "did you mean 'enable_thinking'?"),
        ({"": 1}, "'' is no option"),
        ({"range": 1}, "'range' is no option"),
        ({"raise_exception": 1}, "'raise_exception' is no option"),
        ({"message": 1}, "'message' is no option"),
        ({"documents": [{"text": "a"}]}, "documents: this model's chat template does not read"),
        ({"enable_thinking": True}, "this model does not think"),
        ({"tools": 3}, "tools must be an array, not a number"),
        ({"documents": "a"}, "documents"),
        ({"add_generation_prompt": "no"}, "add_generation_prompt is 'no'"),
        ({"parse_special": 1}, "parse_special is 1"),
        ({"enable_thinking": "no"}, "enable_thinking is 'no'"),
        ({"continue_final_message": 0}, "continue_final_message is 0"),
    ],
)
def test_an_option_that_calf_does_not_have_is_named(lib, calf, context, options, named):
    held = lib.tokens(context)
    message = refused(lib, calf, context, **options)
    assert named in message
    assert lib.tokens(context) == held


def test_what_is_accepted_is_listed(lib, calf):
    message = refused(lib, calf, temperature=2)
    for name in ("tools", "tool_choice", "add_generation_prompt", "parse_special", "bos_token"):
        assert name in message


@pytest.mark.parametrize("name", ["in_macro", "tested", "half", "documents"])
def test_a_variable_that_the_template_reads_is_an_option(lib, loaded, name):
    model = loaded(READS)
    value = [{"text": "seen"}] if name == "documents" else "seen"
    text = lib.detokenize(model, lib.chat_prompt(model, USER, **{name: value}))
    assert text.split("<|im_start|>")[0].replace("0", "") == "seen"


@pytest.mark.parametrize("name", ["own", "local", "x", "say", "document", "loop", "namespace"])
def test_a_name_of_the_template_s_own_is_none(lib, loaded, name):
    assert "is no option" in refused(lib, loaded(READS), **{name: "a"})


def test_the_template_that_is_used_decides(lib, loaded):
    """With tools it is another one."""
    model = loaded(
        [
            {"name": "default", "template": CHATML + "{{ plain }}"},
            {"name": "tool_use", "template": CHATML + "{{ fancy }}"},
        ]
    )
    assert lib.chat_prompt(model, USER, plain="a")
    assert lib.chat_prompt(model, USER, fancy="a", tools=TOOLS)
    assert "is no option" in refused(lib, model, plain="a", tools=TOOLS)
    assert "is no option" in refused(lib, model, fancy="a")
    assert "is no option" in refused(lib, model, fancy="a", tools=TOOLS, tool_choice="none")


def test_a_switch_of_thinking_is_for_models_that_think(lib, loaded, calf):
    """Not to think is what the others do anyway."""
    plain = lib.chat_prompt(calf, USER)
    assert lib.chat_prompt(calf, USER, enable_thinking=False) == plain
    assert lib.chat_prompt(calf, USER, enable_thinking=None) == plain
    thinks = loaded(THINKING, THINK)
    opened = lib.chat_prompt(thinks, USER)
    assert lib.chat_prompt(thinks, USER, enable_thinking=True) == opened
    assert lib.chat_prompt(thinks, USER, enable_thinking=False) != opened


def test_messages_and_tools_may_have_keys_of_any_name(lib, calf):
    """Templates look into them as they go, so there is no telling what is read."""
    plain = lib.chat_prompt(calf, USER)
    assert lib.chat_prompt(calf, [{**USER[0], "custom": [1], "contnet": "x"}]) == plain
    assert lib.chat_prompt(calf, USER, tools=[{**TOOLS[0], "custom": 1}])
