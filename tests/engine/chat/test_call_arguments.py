"""The arguments of tool calls in messages are an object, or its JSON, for every template."""

from __future__ import annotations

import json

import pytest
from support import scripted
from support.chats import USER
from support.library import StatusError
from support.signatures import EINVAL

ARGUMENTS = {"q": 'Größe "x"', "n": 3, "deep": {"a": [None, True]}}
JSON = json.dumps(ARGUMENTS, ensure_ascii=False)
FORMS = {"an object": ARGUMENTS, "text": JSON}
START = "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
END = "{% endfor %}{% endfor %}"
# Ways of templates to write arguments, and what they make of them.
TEMPLATES = {
    "as JSON": ("{{ c.function.arguments | tojson }}", JSON),
    "item by item": (
        "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v | tojson }};{% endfor %}",
        'q="Größe \\"x\\"";n=3;deep={"a": [null, true]};',
    ),
    "by filter": (
        "{% for k, v in c.function.arguments | items %}{{ k }},{% endfor %}",
        "q,n,deep,",
    ),
    "by kind": (
        "{{ c.function.arguments if c.function.arguments is string "
        "else c.function.arguments | tojson }}",
        JSON,
    ),
    "joined": ("{{ 'json ' + c['function']['arguments'] + '!' }}", f"json {JSON}!"),
    "printed": ("{{ c.function.arguments }}", JSON),
    "printed by filters": ("{{ c.function.arguments | string | trim }}", JSON),
    "formatted": (
        "{{ '%s' % c.function.arguments }}{{ '{}'.format(c.function.arguments) }}",
        JSON * 2,
    ),
    "trimmed": ("{{ c.function.arguments.strip() }}", JSON),
    "as text alone": (
        "{% if c.function.arguments is not string %}{{ raise_exception('no text') }}{% endif %}"
        "{{ c.function.arguments }}",
        JSON,
    ),
    "by name": (
        "{{ c.function.arguments.n }}{{ c.function.arguments['n'] }}"
        "{{ c.function.arguments.get('n') }}{{ c.function.arguments['text'] is defined }}",
        "333False",
    ),
    "joined as text": ("{{ 'json ' ~ c.function.arguments }}", f"json {JSON}"),
    "with the call": ("{{ c.function | tojson }}", f'{{"name": "look", "arguments": {JSON}}}'),
}


def prompt(lib, model, arguments, inside="function", said=USER["content"]):
    call = {"name": "look", "arguments": arguments}
    calls = [{"type": "function", "function": call} if inside else call]
    messages = [
        {"role": "user", "content": said},
        {"role": "assistant", "content": None, "tool_calls": calls},
    ]
    text = lib.detokenize(model, lib.chat_prompt(model, messages))
    assert text.startswith(said)
    return text.removeprefix(said)


@pytest.fixture
def loaded(lib, tmp_path):
    models = []

    def loaded(template):
        models.append(lib.load(scripted.make(tmp_path / "model", template)))
        return models[-1]

    yield loaded
    for model in models:
        lib.free_model(model)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_both_forms_make_the_same_prompt(lib, loaded, name, form):
    written, expected = TEMPLATES[name]
    assert prompt(lib, loaded(START + written + END), FORMS[form]) == expected


@pytest.mark.parametrize("form", FORMS)
def test_a_call_without_function_around_it(lib, loaded, form):
    model = loaded(START + "{{ c.arguments | tojson }}" + END)
    assert prompt(lib, model, FORMS[form], inside="") == JSON


@pytest.mark.parametrize("text", ["look at x", "[1]", '{"q": ', "{" * 5000])
def test_text_that_is_no_object_stays_text(lib, loaded, text):
    model = loaded(START + "{{ c.function.arguments | tojson }}" + END)
    assert prompt(lib, model, text) == json.dumps(text)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_message_may_show_the_arguments_as_python_does(lib, loaded, name, form):
    written, expected = TEMPLATES[name]
    model = loaded(START + written + END)
    assert prompt(lib, model, FORMS[form], said=f"called with {ARGUMENTS}") == expected


@pytest.mark.parametrize("name", ["printed", "joined", "trimmed"])
def test_text_is_printed_as_it_was_given(lib, loaded, name):
    written, expected = TEMPLATES[name]
    text = json.dumps(ARGUMENTS, ensure_ascii=False, indent=1)
    model = loaded(START + written + END)
    assert prompt(lib, model, text) == expected.replace(JSON, text)


@pytest.mark.parametrize("form", FORMS)
def test_a_template_that_takes_neither_is_refused_for_the_object(lib, loaded, form):
    model = loaded(START + "{{ raise_exception(c.function.arguments is string) }}" + END)
    with pytest.raises(StatusError, match="says: False") as failed:
        prompt(lib, model, FORMS[form])
    assert failed.value.status == EINVAL
