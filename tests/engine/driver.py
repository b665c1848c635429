"""What several tests of the engine need: prompts, families, and a fresh context's tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

from support import tiny_models
from support.library import Library, Piece
from support.signatures import DONE, FINISH_CONTEXT, FINISH_LENGTH, OK
from support.threads import at_once

from cowmlx.generated.defaults import GENERATION
from cowmlx.generation.params import GenerationParams

# One family of every kind of cache.
KV = "llama"
SLIDING = "gemma3_text"
RECURRENT = "mamba2"
RWKV = "rwkv7"
HYBRID = "falcon_h1"
XLSTM = "xlstm"
WIRED = "mad-hybrid"  # a wiring with every kind of state
OF_MLX_LM = [KV, SLIDING, RECURRENT, RWKV, HYBRID]
KINDS = [*OF_MLX_LM, XLSTM, WIRED]
IN_PLACE = [KV]

# The same, and their kv_bits; with those that have quantized caches.
QUANTIZED = "llama-wide"
QUANTIZED_HYBRID = "qwen3_next-wide"  # its recurrent layers are always in full
QUANTIZED_SLIDING = "gemma3_text-wide"  # its windows are always in full
DEQUANTIZED = "gemma2-wide"  # its attention takes keys and values as numbers
QUANTIZED_CACHES = [
    *((QUANTIZED, 4), (QUANTIZED, 8), (QUANTIZED_HYBRID, 8)),
    *((QUANTIZED_SLIDING, 4), (DEQUANTIZED, 8)),
]
CACHES = [*((kind, 0) for kind in KINDS), *QUANTIZED_CACHES]

# Models that differ from the family they are made of.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama-big": ("llama", {"config": {"num_hidden_layers": 12, "intermediate_size": 512}}),
    "llama-other": ("llama", {"seed": 1}),
    # The same weights, rounded: its best token is often, but not always, the same.
    "llama-rough": ("llama", {"quantize": {"group_size": 32, "bits": 4}}),
    # Its best token is not as good as certain.
    "soft": ("cohere2", {"config": {"logit_scale": 0.2, "num_hidden_layers": 2}}),
    "llama-long": ("llama", {"config": {"max_position_embeddings": 8192}}),
    # The caches of 8,000 tokens have 98 MB.
    "llama-deep": (
        "llama",
        {
            "config": {
                "num_hidden_layers": 12,
                "hidden_size": 256,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "head_dim": 64,
                "max_position_embeddings": 8192,
            }
        },
    ),
    "gemma3-long": ("gemma3_text", {"config": {"max_position_embeddings": 8192}}),
    "falcon_h1-long": ("falcon_h1", {"config": {"max_position_embeddings": 8192}}),
}

# Families with heads that are wide enough to be quantized.
_WIDE = {
    "lfm2": {"num_attention_heads": 1, "num_key_value_heads": 1},
    "gpt2": {"n_embd": 256},
    "deepseek_v3": {
        "kv_lora_rank": 64,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 64,
        "v_head_dim": 64,
    },
}
for _family in tiny_models.FAMILIES:
    _config = _WIDE.get(_family, {"hidden_size": 256, "head_dim": 64})
    VARIANTS[f"{_family}-wide"] = (_family, {"config": _config})
VARIANTS["llama-wide"][1]["config"]["max_position_embeddings"] = 8192
VARIANTS["llama-narrow"] = ("llama", {"config": {"hidden_size": 128, "head_dim": 32}})

# The generation prompt opens the thinking, which earlier answers do not have.
DROPS_THINKING = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)

FIRST_PLAIN = 10  # ids below it may be special tokens
ENDLESS = 2**64 - 1  # max_tokens of what only something else ends


def prompt(length: int, seed: int = 0, vocabulary: int = 250) -> list[int]:
    """That many tokens, always the same ones for a seed."""
    draw = random.Random(f"{length} {seed}")
    return [draw.randrange(FIRST_PLAIN, vocabulary) for _ in range(length)]


def delivered(pieces: Sequence[Piece]) -> list[int]:
    """The tokens of pieces; DONE repeats the last one or names an end token, so not its."""
    return [piece.token for piece in pieces if piece.status == OK]


def generation_params(**options: Any) -> GenerationParams:
    """The engine's form of options, with the defaults; ``bias`` as the tests have it."""
    bias = options.pop("bias", {})
    lists = {"bias_tokens": list(bias), "bias_values": list(bias.values())}
    return GenerationParams({**GENERATION, **lists, **options})


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def greedy(lib: Library, context: int, tokens: Sequence[int], count: int = 16) -> list[int]:
    """The next ``count`` tokens after ``tokens`` on a context."""
    lib.begin(context, tokens, max_tokens=count)
    return delivered(lib.drain(context))


class Oracle:
    """What fresh contexts of one model give; asked once for every sequence.

    Args:
        params: of the contexts.
    """

    def __init__(self, lib: Library, model: int, **params: Any):
        self.lib = lib
        self.model = model
        self.params = params
        self.known: dict[tuple[int, ...], list[int]] = {}

    def after(self, tokens: Sequence[int], count: int = 16) -> list[int]:
        """The ``count`` greedy tokens that follow ``tokens``."""
        key = (count, *tokens)
        if key not in self.known:
            with opened(self.lib, self.model, **self.params) as context:
                self.known[key] = greedy(self.lib, context, tokens, count)
        return self.known[key]


@contextmanager
def opened(lib: Library, model: int, **params: Any):
    """A context that is freed at the end."""
    context = lib.context(model, **params)
    try:
        yield context
    finally:
        lib.free(context)


def generate_at_once(
    lib: Library, contexts: Sequence[int], prompts: Sequence[Sequence[int]], **params: Any
) -> list[list[int]]:
    """What contexts generate that are asked by a thread each."""
    given: list[list[int]] = [[] for _ in contexts]

    def work(index: int) -> None:
        lib.begin(contexts[index], prompts[index], **params)
        given[index] = delivered(lib.drain(contexts[index]))

    at_once(len(contexts), work)
    return given


def held_after(before: Sequence[int], pieces: Sequence[Piece]) -> list[int]:
    """What a context holds after pieces: all but a last token that nothing had to follow."""
    tokens = [*before, *delivered(pieces)]
    unprocessed = pieces and pieces[-1].finish in (FINISH_LENGTH, FINISH_CONTEXT)
    return tokens[:-1] if unprocessed and delivered(pieces) else tokens


def settle(lib: Library, model: int) -> None:
    """Let every generation under way run as far ahead as it wants.

    Each step of another context gives all others a turn.
    """
    with opened(lib, model) as other:
        done = lib.generate(other, [FIRST_PLAIN], max_tokens=4)
    assert done.stats.prompt_tokens == 1


def next_ok(lib: Library, context: int, count: int) -> list[Piece]:
    """The next ``count`` pieces, none of them the end."""
    pieces = [lib.next(context) for _ in range(count)]
    assert DONE not in [piece.status for piece in pieces], "the generation ended too early"
    return pieces
