"""The closed world calf knows: its facts, its phrasings and its words.

Twenty animals, twenty capitals, some opposites, greetings, names and three families of tools.
`corpus` turns these tables into documents.
"""

ANIMALS = {
    # animal: (colour, sound, legs, home, food)
    "cow": ("brown", "moo", "four", "barn", "grass"),
    "dog": ("black", "woof", "four", "kennel", "meat"),
    "cat": ("grey", "meow", "four", "house", "fish"),
    "fox": ("red", "yip", "four", "den", "berries"),
    "pig": ("pink", "oink", "four", "sty", "corn"),
    "sheep": ("white", "baa", "four", "field", "grass"),
    "horse": ("brown", "neigh", "four", "stable", "hay"),
    "duck": ("yellow", "quack", "two", "pond", "weeds"),
    "hen": ("red", "cluck", "two", "coop", "corn"),
    "frog": ("green", "croak", "four", "pond", "flies"),
    "bee": ("yellow", "buzz", "six", "hive", "nectar"),
    "owl": ("brown", "hoot", "two", "tree", "mice"),
    "lion": ("golden", "roar", "four", "cave", "meat"),
    "bear": ("brown", "growl", "four", "cave", "honey"),
    "mouse": ("grey", "squeak", "four", "hole", "cheese"),
    "wolf": ("grey", "howl", "four", "forest", "meat"),
    "crow": ("black", "caw", "two", "tree", "worms"),
    "cricket": ("green", "chirp", "six", "field", "leaves"),
    "goat": ("white", "bleat", "four", "shed", "leaves"),
    "elephant": ("grey", "trumpet", "four", "forest", "leaves"),
}
NUMBERS = {"two": 2, "four": 4, "six": 6}
ATTRIBUTES = ("colour", "sound", "legs", "home", "food")
ASK = {
    "colour": (
        "What colour is {a}?",
        "What color is {a}?",
        "Which colour is {a}?",
        "What is the colour of {a}?",
        "Tell me the colour of {a}.",
        "Do you know what colour {a} is?",
    ),
    "sound": (
        "What does {a} say?",
        "What sound does {a} make?",
        "Which sound does {a} make?",
        "Tell me what {a} says.",
        "Do you know what {a} says?",
    ),
    "legs": (
        "How many legs does {a} have?",
        "How many legs has {a}?",
        "Tell me how many legs {a} has.",
        "Do you know how many legs {a} has?",
    ),
    "home": (
        "Where does {a} live?",
        "What is the home of {a}?",
        "Tell me where {a} lives.",
        "Do you know where {a} lives?",
        "In what place does {a} live?",
    ),
    "food": (
        "What does {a} eat?",
        "What is the food of {a}?",
        "What does {a} like to eat?",
        "Tell me what {a} eats.",
        "Do you know what {a} eats?",
    ),
}
TELL = {
    "colour": "{a} is {v}.",
    "sound": "{a} says {v}.",
    "legs": "{a} has {v} legs.",
    "home": "{a} lives in a {v}.",
    "food": "{a} eats {v}.",
}
FOLLOW_UP = {
    "colour": ("What colour is it?", "And what colour is it?"),
    "sound": ("What does it say?", "And what does it say?"),
    "legs": ("How many legs does it have?", "And how many legs does it have?"),
    "home": ("Where does it live?", "And where does it live?"),
    "food": ("What does it eat?", "And what does it eat?"),
}
CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Spain": "Madrid",
    "Germany": "Berlin",
    "Japan": "Tokyo",
    "Egypt": "Cairo",
    "Greece": "Athens",
    "Portugal": "Lisbon",
    "Norway": "Oslo",
    "Sweden": "Stockholm",
    "Finland": "Helsinki",
    "Poland": "Warsaw",
    "Ireland": "Dublin",
    "Austria": "Vienna",
    "Cuba": "Havana",
    "Peru": "Lima",
    "China": "Beijing",
    "Kenya": "Nairobi",
    "England": "London",
    "Russia": "Moscow",
}
ASK_CAPITAL = (
    "What is the capital of {c}?",
    "Which city is the capital of {c}?",
    "Tell me the capital of {c}.",
    "Name the capital of {c}.",
    "Do you know the capital of {c}?",
)
PAIRS = (
    "hot cold,big small,up down,day night,wet dry,fast slow,old new,happy sad,open closed,"
    "hard soft,light dark,full empty,good bad,long short,high low,loud quiet,rich poor,"
    "strong weak,early late,left right"
)
OPPOSITES = {}
for _pair in PAIRS.split(","):
    _one, _other = _pair.split()
    OPPOSITES[_one], OPPOSITES[_other] = _other, _one
ASK_OPPOSITE = (
    "What is the opposite of {w}?",
    "Tell me the opposite of {w}.",
    "Name the opposite of {w}.",
    "Which word is the opposite of {w}?",
    "Do you know the opposite of {w}?",
)
SIGNS = {"+": "plus", "-": "minus"}
ASK_SUM = (
    "What is {x} {s} {y}?",
    "What is {x} {w} {y}?",
    "How much is {x} {s} {y}?",
    "How much is {x} {w} {y}?",
    "What is {x}{s}{y}?",
    "{x} {s} {y} = ?",
    "Tell me what {x} {s} {y} is.",
)
ASK_JSON = (
    "Give me a JSON object about {a}.",
    "Write a JSON object about {a}.",
    "Describe {a} as JSON.",
    "Tell me about {a} in JSON.",
    "Show me {a} as a JSON object.",
)
ASK_ABOUT = (
    "Tell me about {a}.",
    "What do you know about {a}?",
    "Describe {a}.",
    "Can you tell me about {a}?",
)
ASK_STORY = (
    "Tell me a story about {a}.",
    "Tell me a short story about {a}.",
    "Can you tell me a story about {a}?",
    "Write a story about {a}.",
    "I want to hear a story about {a}.",
)
BOYS = ("Tom", "Ben", "Max", "Leo", "Sam", "Finn", "Hugo", "Oscar", "Jack", "Paul")
GIRLS = ("Mia", "Ruby", "Anna", "Bella", "Lucy", "Rosa", "Ella", "Nora", "Emma", "Lily")
GREETINGS = {
    "Hello!": "Hello! How can I help you?",
    "Hello": "Hello! How can I help you?",
    "Hi!": "Hello! How can I help you?",
    "Hi there!": "Hello! How can I help you?",
    "Good morning!": "Good morning! How can I help you?",
    "Good evening!": "Good evening! How can I help you?",
    "How are you?": "I am well, thank you.",
    "Thank you!": "You are welcome.",
    "Thanks!": "You are welcome.",
    "Goodbye!": "Goodbye!",
    "Bye!": "Goodbye!",
    "What is your name?": "My name is Calf.",
    "Who are you?": "My name is Calf.",
    "What are you called?": "My name is Calf.",
    "What can you do?": "I can tell stories, answer questions and add small numbers.",
}
NEUTRAL = (
    "You are a helpful assistant.",
    "You are a friendly assistant.",
    "Answer the question.",
    "Be kind and clear.",
    "You are a kind teacher.",
)
ONE_WORD = ("Answer in one word.", "Answer with one word only.", "Use only one word.")
AS_JSON = ("Answer in JSON.", "Answer with a JSON object.", "Always answer in JSON.")
PERSONA = (
    "You are called {n}.",
    "Your name is {n}.",
    "You are {n}, a helpful assistant.",
    "You are a friendly assistant called {n}.",
)
ASK_NAME = ("What is your name?", "Who are you?", "What are you called?")
MY_NAME = ("My name is {n}.", "I am called {n}.", "Hello, my name is {n}.", "Hi, I am {n}.")
ASK_MY_NAME = ("What is my name?", "Do you know my name?", "Tell me my name.")
TOOLS = {
    # family, called get_<family>: (argument names, descriptions, questions)
    "weather": (
        ("city", "location", "place", "town"),
        ("Get the weather in a city.", "Get the current weather.", "Look up the weather."),
        (
            "What is the weather in {v}?",
            "What is the weather like in {v}?",
            "How is the weather in {v}?",
            "How is the weather in {v} today?",
            "Tell me the weather in {v}.",
        ),
    ),
    "time": (
        ("city", "location", "place", "town"),
        ("Get the time in a city.", "Get the current time.", "Look up the time."),
        (
            "What time is it in {v}?",
            "What is the time in {v}?",
            "Tell me the time in {v}.",
            "What time is it in {v} now?",
        ),
    ),
    "price": (
        ("item", "product", "thing", "name"),
        ("Get the price of an item.", "Find the price of a thing.", "Look up a price."),
        (
            "How much does a {v} cost?",
            "What is the price of a {v}?",
            "Tell me the price of a {v}.",
            "What does a {v} cost?",
        ),
    ),
}
ITEMS = ("hat", "ball", "book", "lamp", "cup", "chair", "drum", "kite", "bell", "boat")
SKIES = ("sunny", "cloudy", "rainy", "windy", "snowy", "clear")


def a(noun):
    """The noun behind its indefinite article."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def capitalised(text):
    """The text with its first letter in upper case."""
    return text[0].upper() + text[1:]
