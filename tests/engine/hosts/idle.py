"""A host of many contexts, of which few have work at a time.

Arguments: the folder of a model, how many contexts. Writes JSON: the process's threads while few
contexts are there, and when many have generated and are idle; how many of these went on otherwise
than fresh contexts, and of how many.
"""

import json
import os
import pathlib
import random
import sys
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from support.library import Library
from support.signatures import OK

FEW = 8
PROMPTS = [[5, 6, 7], [20, 9, 33, 12, 8], [40, 41]]
COUNT = 6
MORE = [17, 18]


def greedy(lib, context, tokens):
    lib.begin(context, tokens, max_tokens=COUNT)
    return [piece.token for piece in lib.drain(context) if piece.status == OK]


def threads():
    return len(os.listdir("/proc/self/task"))


def main(folder, count):
    lib = Library()
    lib.start()
    model = lib.load(folder)
    wanted = {}
    for number, prompt in enumerate(PROMPTS):
        first = greedy(lib, lib.context(model), prompt)
        again = [*prompt, *first, *MORE]
        wanted[number] = first, again, greedy(lib, lib.context(model), again)
    contexts = [lib.context(model) for _ in range(int(count))]
    numbered = [(context, index % len(PROMPTS)) for index, context in enumerate(contexts)]
    wrong = 0
    with ThreadPoolExecutor(FEW) as pool:

        def all_right(work, turn):
            tokens = (lambda number: PROMPTS[number]) if turn == 0 else lambda n: wanted[n][1]
            given = pool.map(lambda each: greedy(lib, each[0], tokens(each[1])), work)
            return sum(
                tokens == wanted[number][2 * turn]
                for tokens, (_, number) in zip(given, work, strict=True)
            )

        for _ in range(2):  # whatever few contexts at once need is there
            wrong += FEW - all_right(numbered[:FEW], 0)
        few = threads()
        wrong += len(numbered) - all_right(numbered, 0)
        many = threads()
        random.Random(0).shuffle(numbered)
        wrong += len(numbered) - all_right(numbered, 1)
    print(json.dumps({"few": few, "many": many, "again": threads(), "wrong": wrong}))


main(*sys.argv[1:])
