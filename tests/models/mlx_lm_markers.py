"""What mlx-lm makes of vocabularies and templates, as JSON; run in a separate process.

The texts to try are those that its own functions name, alone and in pairs, in vocabularies too.
"""

import itertools
import json

from mlx_lm import tokenizer_utils as rules

RULES = (
    rules._infer_thinking,
    rules._infer_tool_parser,
    rules._infer_structural_markers,
    rules._is_xtml_vocab,
)
TAGS = ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>")


def texts(value):
    """Every text in a function's constants."""
    if isinstance(value, str):
        yield value
    for inner in getattr(value, "co_consts", value if isinstance(value, tuple) else ()):
        yield from texts(inner)


class Tokenizer:
    """As the rules ask for it."""

    def __init__(self, vocabulary, template):
        self.chat_template = template
        self._vocabulary = {text: index for index, text in enumerate(vocabulary)}

    def get_vocab(self):
        return self._vocabulary

    def encode(self, text, add_special_tokens):
        return [len(text)]


def answer(vocabulary, template):
    tokenizer = Tokenizer(vocabulary, template)
    start, end, *_ = rules._infer_thinking(tokenizer)
    return {
        "vocabulary": vocabulary,
        "template": template,
        "thinking": [start, end] if start else None,
        "parser": rules._infer_tool_parser(tokenizer),
        "structural": list(rules._infer_structural_markers(tokenizer)),
    }


def main():
    named = {text for rule in RULES for text in texts(rule.__code__)}
    marks = sorted(named - {rule.__doc__ for rule in RULES})
    pairs = [list(pair) for count in (0, 1, 2) for pair in itertools.combinations(marks, count)]
    vocabularies = [*pairs, TAGS, TAGS[:3], [*TAGS, "<think>", "</think>"], marks]
    answers = [answer(list(vocabulary), None) for vocabulary in vocabularies]
    answers += [answer([], " ".join(pair)) for pair in pairs]
    answers += [answer(list(TAGS), text) for text in ("", "[TOOL_CALLS]", "nothing")]
    print(json.dumps({"marks": marks, "answers": answers}))


main()
