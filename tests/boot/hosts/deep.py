"""Deeply nested texts, in an interpreter whose recursion limit is beyond what a stack holds.

Arguments: the model, the recursion limit, a folder to write to. Prints a status for each text.
"""

import shutil
import sys
from pathlib import Path

from support.callbacks import StatusError
from support.library import Library
from support.signatures import GRAMMAR_GBNF, GRAMMAR_JSON_SCHEMA, GRAMMAR_LARK, GRAMMAR_REGEX

model_path, limit, folder = sys.argv[1:]
sys.setrecursionlimit(int(limit))
DEPTH = 100_000
DEEP = "[" * DEPTH + "]" * DEPTH
SOME = 5_000
FOX = [{"role": "user", "content": "Hello!"}]
NESTED = (
    "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}"
)
TEMPLATES = {
    "parentheses": "{{ " + "(" * SOME + "1" + ")" * SOME + " }}",
    "not": "{{ " + "not " * SOME + "1 }}",
    "sum": "{{ 1" + "+1" * SOME + " }}",
    "attributes": "{{ a" + ".b" * SOME + " }}",
    "filters": "{{ 1" + "|abs" * SOME + " }}",
    "blocks": "{% if 1 %}" * 500 + "{% endif %}" * 500,
    "macro": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "loop": "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
    "tojson": NESTED + "{{ ns.x|tojson }}",
    "string": NESTED + "{{ ns.x|string }}",
}
GRAMMARS = {
    GRAMMAR_REGEX: "(" * 30_000 + "a" + ")" * 30_000,
    GRAMMAR_JSON_SCHEMA: '{"items":' * 20_000 + "{}" + "}" * 20_000,
    GRAMMAR_LARK: "start: %json " + '{"items":' * 5000 + "{}" + "}" * 5000,
    GRAMMAR_GBNF: "root ::= " + "(" * 2100 + '"a"' + ")" * 2100,
}

lib = Library()
lib.start()
model = lib.load(model_path)
context = lib.context(model)


def tell(name: str, function, *arguments, **options) -> None:
    """Print how a call ends."""
    try:
        function(*arguments, **options)
        print(name, "OK")
    except StatusError as error:
        print(name, error.name)


def edited(file: str, text: str) -> Path:
    """Return a copy of the model with another file."""
    copy = Path(folder) / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(model_path, copy)
    (copy / file).write_text(text)
    return copy


for depth in (350, 990, DEPTH):
    nested = "[" * depth + "]" * depth
    tell("messages", lib.chat_prompt, model, f'[{{"role": "user", "content": "a", "b": {nested}}}]')
tell(
    "shallow",
    lib.chat_prompt,
    model,
    f'[{{"role": "user", "content": "a", "name": {"[" * 200 + "]" * 200}}}]',
)
for kind, grammar in GRAMMARS.items():
    tell("grammar", lib.generate, context, [1], grammar=grammar, grammar_kind=kind, max_tokens=1)
for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
    tell(file, lib.load, edited(file, f'{{"deep": {DEEP}}}'))
for name, template in TEMPLATES.items():
    templated = lib.load(edited("chat_template.jinja", template))
    tell(name, lib.chat_prompt, templated, FOX)
    lib.free_model(templated)
