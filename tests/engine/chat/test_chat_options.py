"""No option of a chat is ignored: what nobody reads is refused."""

from __future__ import annotations

import pytest
from support import scripted
from support.callbacks import StatusError
from support.scripted import CHATML, THINKING
from support.signatures import EINVAL, EUNSUPPORTED

USER = [{"role": "user", "content": "What colour is a fox?"}]
THINK = ["<think>", "</think>"]
TOOLS = [{"type": "function", "function": {"name": "look"}}]
# Reads variables in a macro, in a branch and behind a test; sets others.
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
        ({"enable_thinkin": True}, "did you mean 'enable_thinking'?"),
        ({"thinking_token": 4}, "did you mean 'thinking_tokens'?"),
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


def test_what_is_accepted_is_listed_once(lib, calf):
    """Not the special tokens, nor documents, which calf's template does not read."""
    listed = refused(lib, calf, temperature=2).split("(accepted: ")[1].rstrip(")").split(", ")
    assert sorted(listed) == sorted(
        (
            "add_generation_prompt",
            "continue_final_message",
            "enable_thinking",
            "parse_special",
            "thinking_end_text",
            "thinking_tokens",
            "tool_choice",
            "tools",
        )
    )


# Each sets v before it reads it, on every path.
SETS = [
    "{% if messages[0].role %}{% set v = 1 %}{% else %}{% set v = 2 %}{% endif %}{{ v }}",
    "{% if a %}{% set v = 1 %}{% elif b %}{% set v = 2 %}{% else %}{% set v = 3 %}{% endif %}{{v}}",
    "{% macro m() %}{{ v }}{% endmacro %}{% set v = 1 %}{{ m() }}",
    "{% for m in messages %}{% set v = 1 %}{{ v }}{% endfor %}",
    "{% for v in messages if v %}{{ v }}{% else %}{% set v = 1 %}{{ v }}{% endfor %}",
    "{% set v %}text{% endset %}{{ v }}",
    "{% set w, v = 1, 2 %}{{ v }}",
    "{% with v = 1 %}{{ v }}{% endwith %}",
]
# Each reads the host's v on some path.
OPEN = [
    "{% if a %}{% set v = 1 %}{% endif %}{{ v }}",
    "{% if a %}{% set v = 1 %}{% elif v %}{% else %}{% set v = 1 %}{% endif %}",
    "{% if v is not defined %}{% set v = 1 %}{% endif %}{{ v }}",
    "{% set v = v or 1 %}{{ v }}",
    "{% for m in messages %}{% set v = 1 %}{% endfor %}{{ v }}",
    "{% with v = v %}{{ v }}{% endwith %}",
    "{{ v }}{% set v = 1 %}",
]


@pytest.mark.parametrize("template", SETS)
def test_a_variable_that_the_template_sets_first_is_no_option(lib, loaded, template):
    assert "is no option" in refused(lib, loaded(template + CHATML), v="a")


@pytest.mark.parametrize("template", OPEN)
def test_a_variable_that_is_read_on_some_path_is_an_option(lib, loaded, template):
    assert lib.chat_prompt(loaded(template + CHATML), USER, v="a")


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
            {"name": "tool_use", "template": CHATML + "{{ fancy }}{{ tools }}"},
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


def test_tools_may_have_keys_of_any_name(lib, calf):
    """The template of calf writes tools as JSON."""
    plain = lib.chat_prompt(calf, USER, tools=TOOLS)
    function = {**TOOLS[0]["function"], "strict": True}
    assert lib.chat_prompt(calf, USER, tools=[{**TOOLS[0], "function": function}]) != plain


@pytest.mark.parametrize(
    ("tool", "named"),
    [
        ({}, "tools[0] is no function"),
        ({"name": "x"}, "tools[0] is no function"),
        ({"function": 3}, "tools[0] is no function"),
        ({"name": "x", "inputSchema": {}}, "tools[0] is no function"),
        ({"type": "function", "function": {}}, "tools[0].function.name must be"),
        ({"parameters": {}}, "tools[0].name must be"),
        ({"function": {"name": 3}}, "tools[0].function.name must be"),
        ({"function": {"name": "x", "parameters": 3}}, "tools[0].function.parameters must be"),
        ({"function": {"name": "x", "parameters": {"type": "string"}}}, "the JSON schema of an"),
        ({"function": {"name": "x", "description": 3}}, "tools[0].function.description must be"),
        ({"type": "web_search"}, "tools[0].type is 'web_search'"),
    ],
)
@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_a_tool_is_a_function_with_a_name(lib, calf, context, tool, named, choice):
    assert named in refused(lib, calf, context, tools=[tool], tool_choice=choice)


def refused_messages(lib, model, messages):
    """Status and message with which both calls refuse messages."""
    context = lib.context(model)
    with pytest.raises(StatusError) as prompt:
        lib.chat_prompt(model, messages)
    with pytest.raises(StatusError) as chat:
        lib.chat(context, messages)
    lib.free(context)
    message = prompt.value.message.removeprefix("model_chat_prompt: ")
    assert chat.value.message == f"context_chat: {message}"
    return prompt.value.status, message


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ({"contnet": "x"}, "messages[1].contnet: this model's chat template does not read it"),
        ({"contnet": "x"}, "did you mean 'content'?"),
        ({"custom": [1]}, "messages[1].custom"),
        ({"content": [{"type": "text", "text": "a", "odd": 1}]}, "messages[1].content[0].odd"),
        ({"content": ["a", {"type": "text", "text": "b"}]}, "messages[1].content[0] (a string)"),
        ({"content": [{"type": "refusal", "refusal": "a"}]}, "messages[1].content[0] (refusal)"),
    ],
)
def test_what_the_template_leaves_out_of_a_message_is_refused(lib, calf, message, named):
    status, told = refused_messages(lib, calf, [*USER, {**USER[0], **message}])
    assert status == EINVAL
    assert named in told


CALL = {"name": "look", "arguments": {}}
CALLS = "messages[0].tool_calls"


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ({"role": "user", "content": {"text": "a"}}, "messages[0].content must be a string or"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text must be"),
        ({"role": "user", "content": [{"type": "text", "text": 5}]}, "[0].text must be a string"),
        ({"role": "tool", "content": {"a": 1}}, "messages[0].content (an object): this model's"),
        ({"role": "tool", "content": [1, 2]}, "messages[0].content (an array): this model's"),
        ({"tool_calls": "look"}, f"{CALLS} must be an array, not a string"),
        ({"tool_calls": [5]}, f"{CALLS}[0] must be an object, not a number"),
        ({"tool_calls": [{}]}, f"{CALLS}[0].name must be a non-empty string; a tool call is"),
        ({"tool_calls": [{"function": "a"}]}, f"{CALLS}[0].function must be an object, not a str"),
        ({"tool_calls": [CALL, {"function": {**CALL, "name": 5}}]}, "[1].function.name must be"),
        ({"tool_calls": [{"name": "a"}]}, f"{CALLS}[0].arguments must be an object, or its JSON"),
        ({"tool_calls": [{**CALL, "arguments": 5}]}, f"{CALLS}[0].arguments must be"),
    ],
)
def test_contents_and_calls_of_another_form_are_refused(lib, calf, message, named):
    status, told = refused_messages(lib, calf, [{"role": "assistant", **message}, *USER])
    assert status == EINVAL
    assert named in told


@pytest.mark.parametrize("value", [5, True, {"a": 1}])
def test_a_field_that_holds_no_text_cannot_be_continued(lib, loaded, value):
    model = loaded("{% for m in messages %}{{ m.content }}{{ m.note }}{% endfor %}")
    messages = [*USER, {"role": "assistant", "content": "a", "note": value}]
    with pytest.raises(StatusError) as error:
        lib.chat_prompt(model, messages, continue_final_message="note")
    assert (error.value.status, error.value.reason) == (EINVAL, "wrong_type")
    assert "messages[1].note must be a string or an array of parts, not" in str(error.value)


@pytest.mark.parametrize("bound", [{}, {"thinking_tokens": 1}])
def test_a_lone_surrogate_cannot_end_thinking(lib, loaded, bound):
    model = loaded(CHATML, ["<think>", "</think>"])
    context = lib.context(model)
    with pytest.raises(StatusError) as error:
        lib.chat(context, USER, options={"thinking_end_text": "\ud800", **bound})
    lib.free(context)
    assert (error.value.status, error.value.reason) == (EINVAL, "invalid_utf8")
    assert error.value.details["argument"] == "thinking_end_text"


def test_results_that_a_template_reads_may_be_objects_and_arrays(lib, calf, loaded):
    text = [{"type": "text", "text": "sunny"}]
    tokens = lib.chat_prompt(calf, [*USER, {"role": "tool", "content": text}])
    assert "sunny" in lib.detokenize(calf, tokens)
    _, told = refused_messages(lib, calf, [*USER, {"role": "tool", "content": ["sunny"]}])
    assert "messages[1].content (an array)" in told
    results = [{"role": "tool", "content": content} for content in (text, text, ["sunny"])]
    _, told = refused_messages(lib, calf, [*USER, *results])
    assert "messages[3].content (an array)" in told
    model = loaded("{% for m in messages %}{{ m.content | tojson }}{% endfor %}")
    for result in ({"weather": "sunny"}, ["sunny"]):
        tokens = lib.chat_prompt(model, [*USER, {"role": "tool", "content": result}])
        assert "sunny" in lib.detokenize(model, tokens)


@pytest.mark.parametrize("key", ["images", "image", "audio", "videos"])
def test_images_and_sound_beside_the_text_are_refused(lib, calf, key):
    """The form of Ollama."""
    status, told = refused_messages(lib, calf, [{**USER[0], key: ["aGk="]}])
    assert status == EUNSUPPORTED
    assert f"messages[0].{key}" in told


def test_what_says_nothing_is_not_missed(lib, calf):
    """Clients write all members that their messages can have."""
    plain = lib.chat_prompt(calf, USER)
    blank = {"images": [], "refusal": None, "annotations": [], "custom": {}, "thought": ""}
    assert lib.chat_prompt(calf, [{**USER[0], **blank, "name": "Anna"}]) == plain


def test_a_role_that_the_template_leaves_out_is_refused(lib, loaded):
    model = loaded("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
    _, told = refused_messages(lib, model, [{"role": "developer", "content": "a"}, *USER])
    assert "messages[0].role 'developer'" in told


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m | tojson }}{% endfor %}",
        "{% for m in messages %}{% for key in m %}{{ key }}={{ m[key] }}{% endfor %}{% endfor %}",
        "{{ messages }}",
    ],
)
def test_a_template_may_read_messages_as_a_whole(lib, loaded, template):
    model = loaded(template)
    text = lib.detokenize(model, lib.chat_prompt(model, [{**USER[0], "custom": "seen"}]))
    assert "seen" in text


def test_a_key_that_stands_in_the_template_is_read(lib, loaded):
    """Even where this conversation does not get there."""
    model = loaded("{% if false %}{{ messages[0].weight }}{% endif %}" + CHATML)
    assert lib.chat_prompt(model, [{**USER[0], "weight": 1}])


def test_many_keys_that_nobody_reads_are_refused_in_bounded_time(lib, loaded):
    model = loaded("{% for m in messages %}{{ m.content }}{{ m.k0 }}{% endfor %}")
    odd = {f"odd{number}": "x" for number in range(20_000)}
    _, told = refused_messages(lib, model, [{**USER[0], **odd}])
    assert "messages[0].odd0" in told


def test_tools_that_neither_template_nor_parser_reads_are_refused(lib, loaded):
    model = loaded(CHATML)
    assert "tools: this model's chat template does not read them" in refused(
        lib, model, tools=TOOLS
    )
    assert lib.chat_prompt(model, USER, tools=TOOLS, tool_choice="none")
