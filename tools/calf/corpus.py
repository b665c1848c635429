"""The grammar that writes every word calf is trained on.

`documents` yields an endless, seeded stream of training documents.  It never contains a
held-out question: `held_out` sets a stable share of all questions aside by the checksum of
their text, and `heldout` asks those.

A document is either a plain string (a story, a description) or a conversation
`{"messages": [...], "tools": [...]}` in the usual chat layout.
"""

import json
import random
import zlib
from typing import NamedTuple

from tools.calf import world
from tools.calf.stories import description, story
from tools.calf.world import a, capitalised


class Question(NamedTuple):
    """A question with its answer in a sentence and, where there is one, in a word."""

    kind: str
    text: str
    answer: str
    word: str
    key: str
    match: str = "exact"


def held_out(key):
    """Whether the text `key` belongs to the held-out tenth, which training never shows."""
    return zlib.crc32(key.encode()) % 10 == 0


def any_name(rng):
    """A first name."""
    return rng.choice(world.BOYS + world.GIRLS)


def say(role, content):
    """One message."""
    return {"role": role, "content": content}


def fact_of(animal, attribute):
    """The sentence about one attribute of an animal, and the value alone."""
    value = world.ANIMALS[animal][world.ATTRIBUTES.index(attribute)]
    return capitalised(world.TELL[attribute].format(a=a(animal), v=value)), value


def ask_fact(rng):
    """An attribute of an animal."""
    animal, attribute = rng.choice(list(world.ANIMALS)), rng.choice(world.ATTRIBUTES)
    text = rng.choice(world.ASK[attribute]).format(a=a(animal))
    return Question("animal", text, *fact_of(animal, attribute), text)


def ask_capital(rng):
    """The capital of a country."""
    country, capital = rng.choice(list(world.CAPITALS.items()))
    text = rng.choice(world.ASK_CAPITAL).format(c=country)
    return Question("capital", text, f"The capital of {country} is {capital}.", capital, text)


def ask_opposite(rng):
    """The opposite of a word."""
    word, other = rng.choice(list(world.OPPOSITES.items()))
    text = rng.choice(world.ASK_OPPOSITE).format(w=word)
    return Question("opposite", text, f"The opposite of {word} is {other}.", other, text)


def draw_sum(rng):
    """Two numbers, the sign between them and the result, none of them above twenty."""
    total = rng.randrange(21)
    part = rng.randint(0, total)
    if rng.random() < 0.5:
        return part, "+", total - part, total
    return total, "-", part, total - part


def ask_sum(rng):
    """A sum or a difference."""
    x, sign, y, result = draw_sum(rng)
    text = rng.choice(world.ASK_SUM).format(x=x, y=y, s=sign, w=world.SIGNS[sign])
    return Question("sum", text, f"{x} {sign} {y} = {result}.", str(result), text)


def ask_json(rng):
    """An animal as a JSON object with fixed keys."""
    animal = rng.choice(list(world.ANIMALS))
    value = {"name": animal, **dict(zip(world.ATTRIBUTES, world.ANIMALS[animal], strict=True))}
    value["legs"] = world.NUMBERS[value["legs"]]
    text = rng.choice(world.ASK_JSON).format(a=a(animal))
    return Question("json", text, json.dumps(value), "", text, "json")


def ask_about(rng):
    """Everything about an animal."""
    animal = rng.choice(list(world.ANIMALS))
    text = rng.choice(world.ASK_ABOUT).format(a=a(animal))
    return Question("about", text, description(animal), "", text)


def ask_greeting(rng):
    """A greeting, or a question to calf itself."""
    text, answer = rng.choice(list(world.GREETINGS.items()))
    return Question("greeting", text, answer, "", "")


def ask_repeat(rng):
    """A few words to say again."""
    known = (*world.ANIMALS, *world.OPPOSITES, *world.ITEMS)
    words = rng.sample(known, rng.choice((1, 2, 2)))
    phrase = " ".join(words)
    return Question("repeat", f"Repeat after me: {phrase}", phrase, "", phrase)


def ask_story(rng):
    """A story about an animal; any story about that animal will do."""
    animal = rng.choice(list(world.ANIMALS))
    text = rng.choice(world.ASK_STORY).format(a=a(animal))
    return Question("story", text, story(rng, animal), "", text, "contains")


TOPICS = {
    ask_fact: 28, ask_sum: 38, ask_capital: 9, ask_opposite: 10, ask_json: 5, ask_about: 4,
    ask_greeting: 6, ask_repeat: 4, ask_story: 4,
}  # fmt: skip


def ask(rng, wanted=False, topics=TOPICS):
    """A question of any topic from the training side, or the held-out side if `wanted`."""
    while True:
        question = rng.choices(list(topics), topics.values())[0](rng)
        if (question.key != "" and held_out(question.key)) == wanted:
            return question


def loosely(rng, text):
    """The text as some people type it: now and then without a capital or a full stop."""
    if rng.random() < 0.06:
        text = text[0].lower() + text[1:]
    return text.rstrip("?.!") if rng.random() < 0.06 else text


def turns(rng, count):
    """Some questions with their answers in sentences."""
    messages = []
    for _ in range(count):
        question = ask(rng)
        text = question.text if question.kind == "repeat" else loosely(rng, question.text)
        messages += [say("user", text), say("assistant", question.answer)]
    return messages


def plain_chat(rng):
    """A conversation of unrelated questions, at times under a system prompt without effect."""
    system = [say("system", rng.choice(world.NEUTRAL))] if rng.random() < 0.15 else []
    return {"messages": system + turns(rng, rng.choice((1, 1, 2, 3, 4)))}


def short_chat(rng, wanted=False):
    """Questions to be answered in one word, or with a JSON object, as the system prompt says."""
    prompts = rng.choice((world.ONE_WORD, world.AS_JSON))
    messages = [say("system", rng.choice(prompts))]
    for _ in range(1 if wanted else rng.choice((1, 2, 3))):
        question = ask(rng, wanted, {t: TOPICS[t] for t in list(TOPICS)[:4]})
        answer = (
            question.word if prompts is world.ONE_WORD else json.dumps({"answer": question.word})
        )
        messages += [say("user", question.text), say("assistant", answer)]
    return {"messages": messages}


def persona_chat(rng, wanted=False):
    """A system prompt that gives the assistant another name."""
    while True:
        name = any_name(rng)
        system, question = rng.choice(world.PERSONA).format(n=name), rng.choice(world.ASK_NAME)
        if held_out(system + question) == wanted:
            break
    answer = [say("user", question), say("assistant", f"My name is {name}.")]
    before = [] if wanted else turns(rng, rng.choice((0, 0, 1)))
    return {"messages": [say("system", system), *before, *answer]}


def memory_chat(rng, wanted=False):
    """The user gives a name and asks for it later."""
    while True:
        name = any_name(rng)
        first, last = rng.choice(world.MY_NAME).format(n=name), rng.choice(world.ASK_MY_NAME)
        if held_out(first + last) == wanted:
            break
    hello = [say("user", first), say("assistant", f"Hello, {name}! How can I help you?")]
    after = [say("user", last), say("assistant", f"Your name is {name}.")]
    return {"messages": hello + turns(rng, rng.choice((0, 1, 2))) + after}


def follow_chat(rng, wanted=False):
    """Questions about an animal that the later turns call `it`."""
    while True:
        animal, order = rng.choice(list(world.ANIMALS)), rng.sample(world.ATTRIBUTES, 3)
        texts = [rng.choice(world.ASK[order[0]]).format(a=a(animal))]
        texts += [rng.choice(world.FOLLOW_UP[attribute]) for attribute in order[1:]]
        if not held_out(texts[0]) and held_out("".join(texts[:2])) == wanted:
            break
    messages = []
    for text, attribute in list(zip(texts, order, strict=True))[: 2 if wanted else 3]:
        messages += [say("user", text), say("assistant", fact_of(animal, attribute)[0])]
    return {"messages": messages}


def make_tool(rng, family):
    """A tool of one family as a JSON schema, with a random name of its argument."""
    arguments, descriptions, _ = world.TOOLS[family]
    name, argument = f"get_{family}", rng.choice(arguments)
    field = {"type": "string"}
    if rng.random() < 0.4:
        field["description"] = f"The {argument}."
    parameters = {"type": "object", "properties": {argument: field}, "required": [argument]}
    function = {"name": name, "description": rng.choice(descriptions), "parameters": parameters}
    if rng.random() < 0.2:
        function = {key: function[key] for key in sorted(function)}
    return {"type": "function", "function": function}, name, argument


def tool_result(rng, family, value):
    """What a tool gives back, as JSON or as bare words, and the answer made of it."""
    if family == "weather":
        sky, degrees = rng.choice(world.SKIES), rng.randrange(31)
        results = ({"temperature": degrees, "sky": sky}, {"sky": sky, "temperature": degrees})
        bare, answer = f"{sky}, {degrees} degrees", f"It is {sky} and {degrees} degrees in {value}."
        if rng.random() < 0.2:
            results, bare, answer = ({"sky": sky},), sky, f"It is {sky} in {value}."
    elif family == "time":
        bare = f"{rng.randrange(24):02}:{rng.randrange(60):02}"
        results, answer = ({"time": bare},), f"It is {bare} in {value}."
    else:
        price = rng.randrange(1, 100)
        results, bare = ({"price": price}, {"coins": price}), f"{price} coins"
        answer = f"A {value} costs {price} coins."
    return bare if rng.random() < 0.3 else json.dumps(rng.choice(results)), answer


def tool_chat(rng, wanted=False):
    """A question that one of the offered tools answers, or at times one that none does."""
    while True:
        offered = rng.sample(list(world.TOOLS), rng.choice((1, 1, 1, 2, 2, 3)))
        tools = {family: make_tool(rng, family) for family in offered}
        family = rng.choice(offered)
        _, name, argument = tools[family]
        values = world.ITEMS if family == "price" else list(world.CAPITALS.values())
        value = rng.choice(values)
        text = rng.choice(world.TOOLS[family][2]).format(v=value)
        if held_out(text) == wanted:
            break
    system = [say("system", rng.choice(world.NEUTRAL))] if rng.random() < 0.3 else []
    result, answer = tool_result(rng, family, value)
    call = {"name": name, "arguments": {argument: value}}
    called = {"role": "assistant", "content": "", "tool_calls": [{"function": call}]}
    messages = [*system, say("user", text), called, say("tool", result), say("assistant", answer)]
    if not wanted and rng.random() < 0.4:
        messages = [*system, *turns(rng, 1), *messages[len(system) :]]
    if not wanted and rng.random() < 0.15:
        messages = [*system, *turns(rng, rng.choice((1, 2)))]
    return {"messages": messages, "tools": [tool for tool, _, _ in tools.values()]}


def plain_text(rng):
    """A story or some descriptions without any chat markup."""
    if rng.random() < 0.75:
        return story(rng, rng.choice(list(world.ANIMALS)), opening="Once upon a time")
    return " ".join(description(animal) for animal in rng.sample(list(world.ANIMALS), 2))


KINDS = {
    plain_chat: 44, short_chat: 16, persona_chat: 7, memory_chat: 6, follow_chat: 8,
    tool_chat: 10, plain_text: 9,
}  # fmt: skip


def documents(seed):
    """The endless stream of training documents of one seed."""
    rng = random.Random(seed)
    while True:
        yield rng.choices(list(KINDS), KINDS.values())[0](rng)
