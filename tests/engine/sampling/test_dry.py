"""DRY: tokens that continue a repeated run are the less probable, the longer the run is."""

from __future__ import annotations

import pytest
from driver import delivered, generate_at_once, opened, prompt
from support import draws

START = prompt(30)
FEW = dict.fromkeys(range(101, 106), 100.0)  # a bias, so that there is something to repeat
STRONG = {"dry_multiplier": 8.0, "temperature": 0.0, "bias": FEW}
NONE = {"dry_sequence_breakers": []}


def generated(lib, context, tokens=START, count=40, **options):
    lib.begin(context, tokens, max_tokens=count, **options)
    return delivered(lib.drain(context))


def reference(lib, model, count, breakers, **options):
    """What greedy tokens should be, from the logits of one more token at a time."""
    sequence = list(START)
    allowed, base = options.get("dry_allowed_length", 2), options.get("dry_base", 1.75)
    with opened(lib, model) as context:
        for _ in range(count):
            lib.begin(context, sequence, max_tokens=0)
            values = draws.adjusted(lib.logits(context), [], bias=FEW)
            cut = max(0, len(sequence) - options.get("dry_penalty_last_n", len(sequence)))
            broken = [place - cut + 1 for place, t in enumerate(sequence) if t in breakers]
            begin = max([0, *broken])
            for token, length in draws.repeats(sequence[cut:], allowed, breakers, begin).items():
                values[token] -= options["dry_multiplier"] * base ** (length - allowed)
            sequence.append(int(values.argmax()))
    return sequence[len(START) :]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dry_multiplier": 0.5, "dry_base": 1.2},
        {"dry_allowed_length": 1},
        {"dry_allowed_length": 4, "dry_base": 1.0},
        {"dry_penalty_last_n": 12},
    ],
    ids=str,
)
def test_tokens_are_those_of_a_comparison_of_everything(lib, tiny, open_context, options):
    model = tiny("soft")
    options = {**STRONG, **options}
    got = generated(lib, open_context(model), count=30, **NONE, **options)
    assert got == reference(lib, model, 30, set(), **options)
    assert got != generated(lib, open_context(model), count=30, temperature=0.0, bias=FEW)


def test_it_ends_a_loop_that_a_model_is_in(lib, tiny, open_context):
    """Greedy, a tiny model says the same again and again."""
    context = open_context(tiny("soft"))
    plain = generated(lib, context, temperature=0.0, bias=FEW)
    assert draws.repeats(plain, 8), "it does not repeat itself, so this shows nothing"
    got = generated(lib, context, **NONE, **STRONG)
    assert not any(draws.repeats(got[:end], 8) for end in range(8, 41))


def test_no_run_goes_beyond_a_breaker(lib, tiny, open_context):
    """What is repeated begins behind it, and it is itself never made less probable."""
    model = tiny("soft")
    context = open_context(model)
    got = generated(lib, context, **NONE, **STRONG)
    texts = {token: lib.detokenize(model, [token]) for token in {*START, *got}}
    for text in sorted({texts[token] for token in got if texts[token].isascii()})[:3]:
        broken = {token for token, own in texts.items() if text in own}
        found = generated(lib, context, count=12, dry_sequence_breakers=[text], **STRONG)
        assert found == reference(lib, model, 12, broken, **STRONG)
        assert found != got[:12], text


def test_the_usual_breakers_are_those_of_llama_cpp(lib, tiny, open_context):
    """Behind one of them two tokens are no run of three."""
    model = tiny("soft")
    context = open_context(model)
    first, second, wanted = 111, 112, 101
    options = {**STRONG, "max_tokens": 1, "dry_allowed_length": 3, "dry_multiplier": 1e9}
    options["bias"] = {wanted: 100.0}
    for text in ("\n", ":", '"', "*", ";"):
        run = [first, *lib.tokenize(model, text), second]
        lib.begin(context, [*run, wanted, *run], **options)
        assert (lib.next(context).token == wanted) == (text != ";"), text


def test_a_context_in_a_batch_and_a_fork_give_what_one_gives_alone(lib, tiny, open_context):
    model = tiny("soft")
    options = {**STRONG, "seed": 5, "temperature": 1.0, **NONE}
    prompts = [prompt(length, seed) for seed, length in enumerate((3, 40, 17))]
    alone = [generated(lib, open_context(model), tokens, 24, **options) for tokens in prompts]
    contexts = [open_context(model) for _ in prompts]
    assert generate_at_once(lib, contexts, prompts, max_tokens=24, **options) == alone
    assert lib.info(contexts[0])["batched"] > 0

    greedily = {**STRONG, **NONE}
    whole = generated(lib, contexts[0], START, 30, **greedily)
    first = generated(lib, contexts[1], START, 12, **greedily)
    fork = lib.fork(contexts[1])
    assert first + generated(lib, fork, START + first, 18, **greedily) == whole
    lib.free(fork)


@pytest.mark.parametrize("options", [{"dry_multiplier": 0.05}, {"temperature": 0.7}], ids=str)
def test_guesses_change_nothing(lib, tiny, open_context, options):
    options = {"seed": 4, **NONE, **STRONG, **options}
    plain = generated(lib, open_context(tiny("llama")), **options)
    accepted = {}
    for draft in ({"draft_tokens": 6}, {"draft": tiny("llama"), "draft_tokens": 3}):
        context = open_context(tiny("llama"))
        assert generated(lib, context, START, 40, **draft, **options) == plain
        accepted[len(draft)] = lib.stats(context).accepted_tokens
    assert min(accepted.values()) > 0
