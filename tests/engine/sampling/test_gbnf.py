"""GBNF means what it means to llama.cpp: each text here is one that its grammar matches."""

from __future__ import annotations

import pytest
from driver import text_of
from support.callbacks import StatusError
from support.signatures import EINVAL, FINISH_STOP, GRAMMAR_GBNF

PROMPT = [20, 21]
# The grammar, a text that matches, and one that does not.
EXACT = {
    "an end behind any text": (
        'root ::= text "</answer>"\ntext ::= [^\\n]*',
        "x < y</answer>",
        "x\n</answer>",
    ),
    "an end that the rule before matches": ('root ::= x "b"\nx ::= [a-z]*', "aab", "aac"),
    "a rule twice": ('root ::= s " is " s\ns ::= [a-z ]+', "the fox is red", "the fox"),
    "recursion": ('root ::= "(" root ")" | [a-c]*', "((ab))", "((ab)"),
    "any character": ('root ::= . "." .', "\n.\U0001f642", "aba"),
    "signs of set operations": ("root ::= [a&&b] [+--] [~~x] [a-]", "&,~-", "b;x-"),
    "a range behind a range": ("root ::= [a-c--/]{4}", "b-./", "b-,/"),
    "escaped brackets": (r'root ::= "\[a\]" [^\]\[\\]', "[a]b", "[a]]"),
    "names that differ in signs": (
        'root ::= a-b a_b Foo foo start\na-b ::= "1"\na_b ::= "2"\nFoo ::= "3"\nfoo ::= "4"\n'
        'start ::= "5"',
        "12345",
        "11445",
    ),
    "signs of Lark": ('root ::= "a & b ~ //" [#"] # [ ( "\n', 'a & b ~ //"', "a & b ~ /"),
    "nothing": ('root ::= "" | "\\t"', "", "t"),
}
# As one automaton it passes a bound behind some characters; as one of each rule it does not.
LARGE = "root ::= " + " | ".join(f"a{n}" for n in range(400)) + "\n"
LARGE += "".join(f'a{n} ::= [a-z]{{0,{n + 100}}} "-{n}"\n' for n in range(400))


@pytest.fixture
def matches(lib, calf, context):
    """Whether a model that wants to say a text, and to end, can do so."""

    def matches(grammar: str, text: str) -> bool:
        end = lib.info(calf)["end_tokens"][0]["id"]
        wanted = [*lib.tokenize(calf, text), end]

        def want(tokens, count, logits, vocabulary):
            for token in range(vocabulary):
                logits[token] = 0.0
            logits[wanted[min(count - len(PROMPT), len(wanted) - 1)]] = 100.0

        lib.begin(
            context,
            PROMPT,
            grammar=grammar,
            grammar_kind=GRAMMAR_GBNF,
            logits_fn=want,
            max_tokens=len(wanted) + 3,
        )
        pieces = lib.drain(context)
        return text_of(pieces) == text and pieces[-1].finish == FINISH_STOP

    return matches


@pytest.mark.parametrize("name", EXACT)
def test_a_grammar_matches_what_it_says(matches, name):
    grammar, matching, other = EXACT[name]
    assert matches(grammar, matching)
    assert not matches(grammar, other)


def test_a_grammar_that_is_too_large_as_a_whole_is_followed_by_rules(matches):
    text = "answerupamproar" * 5
    assert matches(LARGE, f"{text}-7")
    assert not matches(LARGE, f"{text}-400")


@pytest.mark.parametrize(
    ("grammar", "said"),
    [
        ('root ::= first\nfirst ::= "\\u0041" missing', "'missing'"),
        ('root ::= first\nfirst ::= "a" )', "line 2, "),
        ('root ::= first\nfirst ::= "a" (', "line 2, "),
        ('first ::= "a"', "'root'"),
    ],
)
def test_an_error_names_what_the_host_wrote(lib, context, grammar, said):
    with pytest.raises(StatusError) as error:
        lib.begin(context, PROMPT, grammar=grammar, grammar_kind=GRAMMAR_GBNF)
    assert (error.value.status, error.value.reason) == (EINVAL, "invalid_grammar")
    assert said in str(error.value)
