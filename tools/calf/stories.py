"""Stories and descriptions: the two longer forms of text in calf's corpus."""

from tools.calf.world import ANIMALS, BOYS, GIRLS, a, capitalised

MOODS = ("little", "happy", "clever", "brave", "kind", "sleepy", "young", "shy")
PLACES = ("forest", "garden", "field", "village", "meadow", "valley")
GAMES = ("run", "sing", "dance", "jump", "play", "swim")
TREASURES = (
    "a shiny key", "a red ball", "a golden bell", "an old book", "a blue stone", "a small boat",
    "a silver cup", "a warm hat",
)  # fmt: skip
SPOTS = ("under a tree", "near the river", "behind a wall", "on the hill", "by the road")
DAYS = ("One morning", "One evening", "One sunny day", "One rainy day", "The next day")
TROUBLES = (
    ("could not find the way home", "showed {him} the way home"),
    ("fell into a deep hole", "pulled {him} out of the hole"),
    ("was very hungry", "gave {him} something to eat"),
    ("felt cold and tired", "made {him} a warm bed"),
    ("was afraid of the dark", "stayed with {him} all night"),
)
ENDS = (
    "From that day on, they were best friends.",
    "They laughed and danced until the sun went down.",
    "They went home together and slept well.",
    "After that, they played together every day.",
)


def cast(rng, other=None):
    """A name with its pronouns, unlike the name `other`."""
    name = rng.choice([name for name in BOYS + GIRLS if name != other])
    return (name, "he", "him", "his") if name in BOYS else (name, "she", "her", "her")


def story(rng, animal, opening=None):
    """A story of about six sentences whose hero is `animal`."""
    name, he, him, his = cast(rng)
    friend, *_ = cast(rng, name)
    helper = rng.choice([other for other in ANIMALS if other != animal])
    trouble, rescue = rng.choice(TROUBLES)
    hero = a(f"{rng.choice(MOODS)} {animal}")
    opening = opening or rng.choice(("Once upon a time", "Once upon a time", "Long ago"))
    place = rng.choice(PLACES)
    parts = [
        f"{opening}, there was {hero} named {name}.",
        rng.choice(
            (
                f"{name} lived in a {place} and loved to {rng.choice(GAMES)}.",
                f"{capitalised(he)} loved to {rng.choice(GAMES)} in the {place}.",
            )
        ),
    ]
    if rng.random() < 0.6:
        treasure, spot = rng.choice(TREASURES), rng.choice(SPOTS)
        parts.append(f"{rng.choice(DAYS)}, {name} found {treasure} {spot}.")
        parts.append(f'"{rng.choice(("How lovely", "What luck", "Look at this"))}!" said {name}.')
        parts.append(f"But on the way back, {he} {trouble}.")
    else:
        parts.append(f"{rng.choice(DAYS)}, {name} {trouble}.")
    parts.append(
        rng.choice(
            (
                f"Then {a(helper)} named {friend} came by.",
                f"{capitalised(his)} friend {friend} the {helper} heard {him}.",
            )
        )
    )
    parts.append(f"{friend} was kind and {rescue.format(him=him)}.")
    parts.append(rng.choice((f'"Thank you, {friend}!" said {name}.', f"{name} thanked {friend}.")))
    parts.append(rng.choice(ENDS))
    parts.append("The end.")
    return " ".join(parts)


def description(animal):
    """All that calf knows about an animal, in three sentences."""
    colour, sound, legs, home, food = ANIMALS[animal]
    return (
        f"{capitalised(a(animal))} is {colour}. It has {legs} legs and says {sound}. "
        f"It lives in a {home} and eats {food}."
    )
