"""Images beside llama.cpp's mtmd: the same random weights, as many threads, seconds.

"first token" is from an image's pixels to the first token of an answer, of a tower as wide as
SigLIP-400M's with few layers; a ratio above 1 is better. "same tokens" is the share of equal
tokens. "beside" is the longest gap between two tokens of another context of the same model while
an image is processed, and the median of them; also with a tower as wide as Qwen2.5-VL 3B's.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from benchmarks.peers import Choice
from benchmarks.support.cases import Row, compared
from benchmarks.support.hosts import Generation, Peer, compile_host, take_turns
from benchmarks.support.llama_cpp import llama_cpp
from benchmarks.support.seeing import LAYERS, Seer, seer
from benchmarks.support.seeing_qwen import qwen_seer

WIDTH, HEIGHT, TOKENS, BLOCKS = 1024, 1024, 8, 5
LENGTH = 2048  # tokens that llama.cpp reserves memory for
BESIDE = 1500  # tokens, which last longer than an image


def images(large: bool, choice: Choice) -> list[Row]:
    """Measure an image alone, and what others notice of it."""
    theirs = llama_cpp(choice.folder, choice.threads, choice.amx)
    model = seer(choice.folder / "models", theirs.gguf_package)
    blocks = choice.blocks or BLOCKS
    mtmd = theirs.compile_host("mtmd")
    others = [mtmd, model.text, model.tower, choice.threads, LENGTH]
    with Peer([compile_host("image"), model.mlx]) as own, Peer(others) as other:
        first = {"workload": "first token", "layers": LAYERS}
        rows = [beside(first, model, {"mtmd": other, "library": own}, blocks)]
        rows.append({"workload": "beside", **_gaps(own, blocks)})
    with Peer([compile_host("image"), qwen_seer(choice.folder / "models")]) as own:
        rows.append({"workload": "beside", "tower": "Qwen2.5-VL", **_gaps(own, blocks)})
    return rows


def _gaps(own: Peer, blocks: int) -> Row:
    """Return the median step and the longest gap of another context, medians of the blocks."""
    found = [own.numbers("beside", BESIDE, 1000 + at, WIDTH, HEIGHT, 0, 0) for at in range(blocks)]
    step, longest = (median(values) for values in zip(*found, strict=True))
    return {"median step": step, "longest gap": longest}


def beside(row: Row, model: Seer, sides: Mapping[str, Peer], blocks: int) -> Row:
    """Show images to two sides in turns, and return a row of their first tokens.

    Args:
        row: what it begins with.
        model: of both sides.
        sides: the other one first.
        blocks: turns.
    """

    def ask(peer: Peer, seed: int) -> Generation:
        around = (len(model.before), *model.before, *model.behind)
        first, rest, cpu, *made = peer.ask("image", TOKENS, seed, WIDTH, HEIGHT, *around)
        return Generation(float(first), float(rest), float(cpu), [int(token) for token in made])

    asked = {name: iter(range(1000)) for name in sides}
    found = take_turns(
        blocks, {name: lambda name=name: ask(sides[name], next(asked[name])) for name in sides}
    )
    pairs = zip(*found.values(), strict=True)
    same = [sum(map(int.__eq__, one.tokens, two.tokens)) / TOKENS for one, two in pairs]
    runs = {name: [each.first for each in found[name]] for name in sides}
    return compared({**row, "same tokens": median(same)}, runs)
