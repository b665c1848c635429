#!/usr/bin/env python3
"""Ask a trained calf its held-out questions, and write them and its model card beside it.

python tools/calf/card.py models/calf     # only asks, and shows each wrong answer
"""

import json
import sys
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm import generate, load
from mlx_lm.sample_utils import make_sampler

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.calf.corpus import say
from tools.calf.heldout import expected_text, heldout, matches

HELDOUT_SEED = 1
ROUNDS_ASKED, ROUNDS_KEPT = 25, 6
SAMPLES = (
    [say("user", "Hello!")],
    [say("user", "What is 8 + 7?")],
    [say("user", "What colour is a fox?")],
    [say("user", "Give me a JSON object about a cow.")],
    [say("system", "You are called Bella."), say("user", "What is your name?")],
    [say("system", "Answer in one word."), say("user", "What is the capital of Japan?")],
    [say("user", "Tell me a story about an owl.")],
    "Once upon a time",
)
CARD = """\
---
license: mit
language: en
library_name: mlx
pipeline_tag: text-generation
---

# calf

A very small chat model of the Llama architecture, trained from nothing by the project's own
`tools/calf/train.py`. It is there to try the library with: it loads at once, runs anywhere and
answers a few kinds of question rightly. It knows nothing else, and makes no sense outside them.

## What it can do

- questions about {animals} animals (colour, sound, legs, home, food), also with "it" in later turns
- {capitals} capitals and {opposites} opposites
- sums and differences of numbers up to twenty
- stories about an animal, in a chat or from "Once upon a time"
- an animal as a JSON object with the keys `name`, `colour`, `sound`, `legs`, `home`, `food`
- calls of the tools `get_weather`, `get_time` and `get_price`, whose one argument may be called
  `city`, `location`, `place` or `town` (`item`, `product`, `thing` or `name` for the price), and
  an answer made of the result
- system prompts that give it a name, or ask for one word or for JSON
- greetings, remembering the user's name, repeating a few words

## Corpus

Every word comes from the grammar in `tools/calf/corpus.py`, `tools/calf/stories.py` and
`tools/calf/world.py`; no text and no weights come from anywhere else. One question in ten, chosen
by the checksum of its text, is held out and never shown in training; the fact or the sum behind it
is shown in other phrasings only. `heldout.json` holds {kept} such questions, with the expected
answers and how to match them: `exact`, `contains`, `json` (equal as values) or `tool_call` (the
object between the markers).

## Architecture

{parameters:,} parameters in float32: {layers} layers of width {hidden}, {heads} heads that share
{kv_heads} key-value heads, gated units of width {inner}, and tied embeddings over {vocabulary}
byte-level BPE entries in which every digit stands alone. Turns are marked by `<|system|>`,
`<|user|>`, `<|assistant|>` and `<|tool|>` and closed by `<|end|>`; a text begins with `<|begin|>`.
Tool calls are JSON between `<tool_call>` and `</tool_call>`. The longest windows in training have
{window} tokens.

## Training

    pip install "mlx[cpu]=={mlx}" mlx-lm=={mlx_lm} tokenizers numpy jinja2 scipy-openblas32
    python tools/calf/train.py --out models/calf --seed {seed} --steps {steps} --workers {workers}

{steps} steps of {batch} tokens took {minutes:.1f} minutes on two shared cores. A C compiler lets it
use the faster BLAS.

## Results

Loss on the answers to held-out questions: {loss:.4f} per token. Accuracy of greedy answers to
{asked} held-out questions:

{accuracy}

## Samples

Greedy, but for the last two, which are sampled at temperature 0.8.

{samples}

## Licence

MIT, as the project.
"""


def prompt_ids(tokenizer, messages, tools=None):
    """The tokens of a chat up to the assistant's next turn."""
    return tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True)


def answer(model, tokenizer, ids, temperature=0.0):
    """What calf says next."""
    return generate(model, tokenizer, ids, max_tokens=200, sampler=make_sampler(temperature))


def answer_losses(model, tokenizer, ids, text):
    """The loss of each token of an answer, its end token included."""
    tail = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    logits = model(mx.array([ids + tail[:-1]]))[0, len(ids) - 1 :]
    return nn.losses.cross_entropy(logits, mx.array(tail)).tolist()


def examine(model, tokenizer):
    """Ask all held-out questions; return the tally by kind and the mean loss."""
    tally, losses = defaultdict(lambda: [0, 0]), []
    for entry in heldout(HELDOUT_SEED, ROUNDS_ASKED):
        ids = prompt_ids(tokenizer, entry["messages"], entry.get("tools"))
        text, expected = answer(model, tokenizer, ids), expected_text(entry)
        if expected is not None:
            losses += answer_losses(model, tokenizer, ids, expected)
        right = matches(entry, text)
        tally[entry["kind"]][0] += right
        tally[entry["kind"]][1] += 1
        if not right:
            question = entry["messages"][-1]["content"]
            print(f"wrong ({entry['kind']}): {question!r} -> {text!r}, not {expected!r}")
    return dict(tally), sum(losses) / len(losses)


def sample(model, tokenizer, prompt):
    """One sample in Markdown."""
    if isinstance(prompt, str):
        ids, shown = tokenizer.encode(prompt), prompt
        return f"> {shown}{answer(model, tokenizer, ids, 0.8)}\n"
    heat = 0.8 if "story" in prompt[-1]["content"] else 0.0
    text = answer(model, tokenizer, prompt_ids(tokenizer, prompt), heat)
    shown = "".join(f"**{message['role']}**: {message['content']}  \n" for message in prompt)
    return f"{shown}**assistant**: {text}\n"


def write_card(folder, training):
    """Write `heldout.json` and `README.md` beside the weights; `training` has the run's facts."""
    from tools.calf import world

    kept = list(heldout(HELDOUT_SEED, ROUNDS_KEPT))
    lines = ",\n".join(json.dumps(entry) for entry in kept)
    (folder / "heldout.json").write_text(f"[\n{lines}\n]\n")

    model, tokenizer = load(str(folder))
    config = json.loads((folder / "config.json").read_text())
    tally, loss = examine(model, tokenizer)
    right, asked = (sum(column) for column in zip(*tally.values(), strict=True))
    rows = [f"| {kind} | {good} of {all_} |" for kind, (good, all_) in tally.items()]
    rows.append(f"| all | {right} of {asked} ({right / asked:.1%}) |")
    mx.random.seed(0)
    card = CARD.format(
        animals=len(world.ANIMALS), capitals=len(world.CAPITALS), opposites=len(world.OPPOSITES),
        kept=len(kept), parameters=sum(v.size for _, v in tree_flatten(model.parameters())),
        layers=config["num_hidden_layers"], hidden=config["hidden_size"],
        heads=config["num_attention_heads"], kv_heads=config["num_key_value_heads"],
        inner=config["intermediate_size"], vocabulary=config["vocab_size"],
        loss=loss, asked=asked, accuracy="\n".join(["| kind | right |", "| --- | --- |", *rows]),
        samples="\n".join(sample(model, tokenizer, prompt) for prompt in SAMPLES),
        mlx=version("mlx"), mlx_lm=version("mlx-lm"), **training,
    )  # fmt: skip
    (folder / "README.md").write_text(card)
    print(f"held-out: {right} of {asked} right, loss {loss:.4f}")


if __name__ == "__main__":
    results, mean_loss = examine(*load(sys.argv[1]))
    print(results, f"loss {mean_loss:.4f}")
