"""What calf with eyes is asked about pictures, and what it answers.

`conversations` yields an endless, seeded stream of scenes with questions and their answers.  It
never has a scene that `held_out` sets aside; `heldout` asks about those.
"""

import random
import zlib
from collections import Counter
from typing import NamedTuple

from tools.calf.pictures import (
    COLOURS,
    COUNTS,
    DIGITS,
    KINDS,
    PLACES,
    ROW,
    some_kind,
    some_scene,
)  # fmt: skip

TURNS = 5
IMAGE = {"type": "image"}
ASK_COUNT = ("How many {} are there?", "How many {} do you see?", "Count the {}.")
ASK_COLOUR = ("What colour is the {}?", "Which colour has the {}?")
ASK_DIGIT = ("Which digit is this?", "Which digit do you see?", "What number is in the picture?")
ASK_EXISTS = ("Is there {}?", "Do you see {}?")
ASK_BOTH = ("Where are the {} and the {}?", "Where do you see the {} and the {}?")
ASK_DESCRIBE = ("Describe the picture.", "What do you see?", "What is in the picture?")
SIDES = {"left of": (0, -1), "right of": (0, 1), "above": (1, -1), "below": (1, 1)}
BLIND = (
    ("Hello!", "Hello! Show me a picture."),
    ("Who are you?", "I am calf, and I can see."),
    ("What can you do?", "I look at pictures of shapes and digits."),
    *((question, "I see no picture yet.") for question in (*ASK_DESCRIBE, *ASK_DIGIT)),
)


class Question(NamedTuple):
    """A question about a picture, with its answer."""

    kind: str
    text: str
    answer: str


def with_article(look):
    """A colour and a kind as a noun, such as "an orange circle"."""
    return f"{'an' if look[0] in 'aeio8' else 'a'} {look}"


def look_of(thing):
    """The colour and the kind of a thing."""
    return f"{thing.colour} {thing.kind}"


def describe(scene):
    """The sentence that lists all of a scene."""
    parts = [f"{with_article(look_of(thing))} {PLACES[thing.place]}" for thing in scene.things]
    text = ", ".join(parts[:-1]) + (" and " if parts[1:] else "") + parts[-1]
    return f"I see {text}."


def held_out(scene):
    """Whether a scene belongs to the tenth that training never shows, whatever is drawn of it.

    Scenes of one thing are too few for that: training shows all of them.
    """
    return bool(scene.things[1:]) and zlib.crc32(describe(scene).encode()) % 10 == 0


def unique(scene, name):
    """The things whose name, a function of them, no other thing has."""
    times = Counter(map(name, scene.things))
    return [thing for thing in scene.things if times[name(thing)] == 1]


def ask_count(rng, scene):
    """How many things there are of a kind, a colour, both, or at all."""
    if rng.random() < 0.75:
        thing = rng.choice(scene.things)
        kind, colour = thing.kind, thing.colour
    else:
        kind, colour = some_kind(rng), rng.choice(list(COLOURS))
    names = [
        (f"{colour} {kind}", lambda thing: (thing.colour, thing.kind) == (colour, kind)),
        (kind, lambda thing: thing.kind == kind),
        ("digit", lambda thing: thing.kind in DIGITS),
        (f"{colour} thing", lambda thing: thing.colour == colour),
        ("thing", lambda thing: True),
    ]
    if kind in DIGITS:
        names[:2] = [(f"{colour} digit", lambda t: t.colour == colour and t.kind in DIGITS)] * 2
    name, counted = rng.choices(names, (5, 4, 1, 2, 1))[0]
    number = sum(map(counted, scene.things))
    found = f"is one {name}" if number == 1 else f"are {COUNTS[number]} {name}s"
    text = rng.choice(ASK_COUNT).format(f"{name}s")
    return Question("count", text, f"There {found}.")


def ask_colour(rng, scene):
    """The colour of the one thing of its kind."""
    things = unique(scene, lambda thing: thing.kind)
    if not things:
        return None
    thing = rng.choice(things)
    text = rng.choice(ASK_COLOUR).format(thing.kind)
    return Question("colour", text, f"The {thing.kind} is {thing.colour}.")


def ask_digit(rng, scene):
    """The one digit."""
    digits = [thing.kind for thing in scene.things if thing.kind in DIGITS]
    if len(digits) != 1:
        return None
    return Question("digit", rng.choice(ASK_DIGIT), f"It is {with_article(digits[0])}.")


def ask_exists(rng, scene):
    """Whether something is there: often it is nearly what is."""
    thing = rng.choice(scene.things)
    colour, kind = thing.colour, thing.kind
    chance = rng.random()
    if chance < 0.3:
        colour = rng.choice(list(COLOURS))
    elif chance < 0.5:
        kind = rng.choice(KINDS)
    look = f"{colour} {kind}"
    found = any(look_of(other) == look for other in scene.things)
    told = f"Yes, there is {with_article(look)}." if found else f"No, there is no {look}."
    return Question("exists", rng.choice(ASK_EXISTS).format(with_article(look)), told)


def ask_where(rng, scene):
    """The place of a thing that is there once."""
    things = unique(scene, look_of)
    if not things:
        return None
    thing = rng.choice(things)
    return Question("where", f"Where is the {look_of(thing)}?", f"It is {PLACES[thing.place]}.")


def ask_place(rng, scene):
    """What is in a place."""
    places = {thing.place: thing for thing in scene.things}
    place = rng.choice(list(places) if rng.random() < 0.8 else range(len(PLACES)))
    seen = with_article(look_of(places[place])) if place in places else "nothing"
    return Question("place", f"What is {PLACES[place]}?", f"There is {seen}.")


def ask_side(rng, scene):
    """How two things lie to each other."""
    things = unique(scene, look_of)
    if len(things) < 2:
        return None
    one, other = rng.sample(things, 2)
    name, (axis, sign) = rng.choice(list(SIDES.items()))
    where, beside = (divmod(thing.place, ROW)[1 - axis] for thing in (one, other))
    right = (where - beside) * sign > 0
    text = f"Is the {look_of(one)} {name} the {look_of(other)}?"
    told = f"{'Yes, it is' if right else 'No, it is not'} {name} the {look_of(other)}."
    return Question("side", text, told)


def ask_both(rng, scene):
    """The places of two things that are there once."""
    things = unique(scene, look_of)
    if len(things) < 2:
        return None
    one, other = rng.sample(things, 2)
    text = rng.choice(ASK_BOTH).format(look_of(one), look_of(other))
    told = f"The {look_of(one)} is {PLACES[one.place]}, the {look_of(other)} {PLACES[other.place]}."
    return Question("both", text, told)


def ask_all(rng, scene):
    """Everything."""
    return Question("describe", rng.choice(ASK_DESCRIBE), describe(scene))


# How often each kind is asked, at first and later. The network did not learn to tell how two things
# lie to each other, but with these questions it learned early where things are.
ASKERS = {
    "count": (ask_count, 4, 5), "colour": (ask_colour, 4, 3), "digit": (ask_digit, 2, 2),
    "exists": (ask_exists, 4, 4), "where": (ask_where, 5, 3), "place": (ask_place, 2, 3),
    "side": (ask_side, 5, 0), "both": (ask_both, 0, 5), "describe": (ask_all, 3, 4),
}  # fmt: skip
ASKED = [kind for kind, (_, _, later) in ASKERS.items() if later]


def ask(rng, scene, early):
    """A question about a scene."""
    weights = [first if early else later for _, first, later in ASKERS.values()]
    while True:
        asker = ASKERS[rng.choices(list(ASKERS), weights)[0]][0]
        if question := asker(rng, scene):
            return question


def messages_of(questions, pictured=True, first=True):
    """A conversation; the first message has the picture before its text, or behind it."""
    made = []
    for at, question in enumerate(questions):
        content = [{"type": "text", "text": question.text}]
        if pictured and not at:
            content = [IMAGE, *content] if first else [*content, IMAGE]
        made.append({"role": "user", "content": content})
        made.append({"role": "assistant", "content": question.answer})
    return made


def conversations(seed, turns=TURNS, early=False):
    """Scenes and conversations about them, for training: those of early or of later steps."""
    rng = random.Random(seed)
    while True:
        scene = some_scene(rng)
        if held_out(scene):
            continue
        questions = [ask(rng, scene, early) for _ in range(turns)]
        yield scene, messages_of(questions, first=rng.random() < 0.75)


def blind_conversations(seed):
    """Conversations without pictures."""
    rng = random.Random(seed)
    while True:
        questions = [Question("blind", *rng.choice(BLIND)) for _ in range(TURNS)]
        yield messages_of(questions, pictured=False)


def heldout(seed, count):
    """Held-out scenes, each with a question, of every kind in turn; some scenes have one thing."""
    rng = random.Random(f"held out {seed}")
    for number in range(count):
        kind, question = ASKED[number % len(ASKED)], None
        while question is None:
            scene = some_scene(rng)
            if held_out(scene) or (not scene.things[1:] and number // len(ASKED) % 5 == 0):
                question = ASKERS[kind][0](rng, scene)
        yield scene, question
