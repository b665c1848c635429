"""The tokenizer and the chat template of calf, in plain Hugging Face files."""

import json
import re

import numpy as np
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.processors import TemplateProcessing

BEGIN, END, PAD = "<|begin|>", "<|end|>", "<|pad|>"
SPECIAL = (PAD, BEGIN, END, "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
MARKERS = ("<tool_call>", "</tool_call>")

TEMPLATE = """\
{%- macro text(content) -%}
    {%- if content is string -%}
        {{- content -}}
    {%- elif content -%}
        {%- for part in content -%}
            {{- part.text -}}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{{- bos_token -}}
{%- if messages and messages[0].role == 'system' -%}
    {%- set system = text(messages[0].content) -%}
{%- else -%}
    {%- set system = '' -%}
{%- endif -%}
{%- if system or tools -%}
    {{- '<|system|>' + system -}}
    {%- if tools -%}
        {{- '\\n' if system else '' -}}
        {{- 'Tools:' -}}
        {%- for tool in tools -%}
            {%- if tool.function -%}
                {%- set tool = tool.function -%}
            {%- endif -%}
            {{- '\\n' -}}
            {{- tool | tojson -}}
        {%- endfor -%}
    {%- endif -%}
    {{- '<|end|>' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {%- if not loop.first -%}
            {{- raise_exception('The system message must come first.') -}}
        {%- endif -%}
    {%- elif message.role == 'user' or message.role == 'tool' -%}
        {{- '<|' + message.role + '|>' + text(message.content) + '<|end|>' -}}
    {%- elif message.role == 'assistant' -%}
        {{- '<|assistant|>' + text(message.content) -}}
        {%- for tool_call in message.tool_calls or [] -%}
            {%- if tool_call.function -%}
                {%- set tool_call = tool_call.function -%}
            {%- endif -%}
            {{- '\\n' if message.content or not loop.first else '' -}}
            {{- '<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' -}}
            {%- if tool_call.arguments is string -%}
                {{- tool_call.arguments -}}
            {%- else -%}
                {{- tool_call.arguments | tojson -}}
            {%- endif -%}
            {{- '}\\n</tool_call>' -}}
        {%- endfor -%}
        {{- '<|end|>' -}}
    {%- else -%}
        {{- raise_exception('Unknown role: ' + message.role) -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- '<|assistant|>' -}}
{%- endif -%}
"""


def template(text=TEMPLATE):
    """A chat template, compiled in a sandbox with the helpers that transformers offers."""

    def refuse(message):
        raise ValueError(message)

    sandbox = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    sandbox.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    sandbox.globals.update(raise_exception=refuse, bos_token=BEGIN, eos_token=END, pad_token=PAD)
    return sandbox.from_string(text)


def render(documents):
    """The training text of each document, marked up and closed by the end token."""
    chat = template()
    for document in documents:
        yield f"{BEGIN}{document}{END}" if isinstance(document, str) else chat.render(document)


def train_tokenizer(texts, size, markers=MARKERS, special=()):
    """A byte-level BPE tokenizer of `size` entries that takes every digit for itself.

    The last entries are the markers and further special tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(markers) - len(special),
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    marks = re.compile("|".join(map(re.escape, (*SPECIAL, *markers, *special))))
    tokenizer.train_from_iterator((marks.split(text) for text in texts), trainer)
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens([AddedToken(marker, normalized=False) for marker in markers])
    tokenizer.add_special_tokens(list(special))
    tokenizer.post_processor = TemplateProcessing(
        single=f"{BEGIN} $A", pair=f"{BEGIN} $A $B",
        special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))],
    )  # fmt: skip
    return tokenizer


def tokenizer_config():
    """What `tokenizer_config.json` holds."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BEGIN,
        "eos_token": END,
        "pad_token": PAD,
        "additional_special_tokens": list(SPECIAL[3:]),
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
        "chat_template": TEMPLATE,
    }


def targets(tokenizer, ids):
    """Which of the tokens to learn: whole plain texts, and what the assistant says in chats.

    Works on one flat stream of documents.  A token is trained if the closest special token at
    or before its predecessor opens a text or an assistant turn, its own end included.
    """
    opens = np.isin(ids, [tokenizer.token_to_id(token) for token in SPECIAL])
    trained = [tokenizer.token_to_id(token) for token in (BEGIN, "<|assistant|>")]
    places = np.maximum.accumulate(np.where(opens, np.arange(len(ids)), 0))
    inside = np.isin(ids[places], trained)
    roles = [tokenizer.token_to_id(token) for token in SPECIAL[3:]]
    return np.append(False, inside[:-1]) & ~np.isin(ids, roles)
