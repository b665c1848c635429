"""Every architecture that can be split, in float32 and 4 bits: tokens are those of one process.

python -m benchmarks.machines.architectures [RANKS [NAME ...]]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.machines.models import CONFIGS

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from support import tiny_models
from support.library import Library, StatusError
from support.signatures import OK, SPLIT_PIPELINE, SPLIT_TENSOR
from support.workers import SECRET, Worker

SPLITS = {"tensor": SPLIT_TENSOR, "pipeline": SPLIT_PIPELINE}
FOUR_BITS = {"group_size": 32, "bits": 4}
VOCABULARY = 512
PROMPTS = ([*range(20, 60)], [*range(30, 42)])
COUNT = 24


def make(folder: Path, name: str, quantize: dict[str, int] | None) -> Path:
    """Write a tiny model of an architecture."""
    config = {**CONFIGS[name], "vocab_size": VOCABULARY}
    if "text_config" in config:
        config["text_config"] = {**config["text_config"], "vocab_size": VOCABULARY}
    return tiny_models.make(folder / name, "llama", quantize=quantize, config=config)


def generated(lib: Library, model: int) -> list[list[int]]:
    """The greedy tokens after each prompt, alone and then both at once."""
    contexts = [lib.context(model) for _ in PROMPTS]
    made = []
    for context, prompt in zip(contexts, PROMPTS, strict=True):
        lib.begin(context, prompt, max_tokens=COUNT)
        made.append([piece.token for piece in lib.drain(context) if piece.status == OK])
    for context, prompt in zip(contexts, PROMPTS, strict=True):
        lib.begin(context, [*prompt, 99], max_tokens=COUNT)
    together: list[list[int]] = [[] for _ in contexts]
    for _ in range(COUNT):
        for each, context in zip(together, contexts, strict=True):
            each.append(lib.next(context).token)
    for context in contexts:
        lib.free(context)
    return made + together


def main() -> int:
    """Try all, or those that are named."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    names = sys.argv[2:] or list(CONFIGS)
    wrong = 0
    lib = Library()
    lib.start()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / "secret").write_text(SECRET)
        for bits, quantize in (("float32", None), ("4 bits", FOUR_BITS)):
            models = root / bits.replace(" ", "-")
            for name in names:
                make(models, name, quantize)
            workers = [Worker(models, root / "secret") for _ in range(size - 1)]
            for name in names:
                local = lib.load(models / name)
                expected = generated(lib, local)
                lib.free_model(local)
                for kind, split in SPLITS.items():
                    outcome = one(lib, models / name, workers, root / "secret", split, expected)
                    wrong += outcome.startswith("WRONG")
                    print(f"{name:12} {bits:8} {kind:9} {size} ranks: {outcome}", flush=True)
            for worker in workers:
                worker.end()
    return 1 if wrong else 0


def one(
    lib: Library,
    folder: Path,
    workers: list[Worker],
    secret: Path,
    split: int,
    expected: list[list[int]],
) -> str:
    """What came of one split."""
    try:
        model = lib.load(
            folder,
            workers=[worker.address for worker in workers],
            secret_path=secret,
            split=split,
            silence_timeout_ms=10000,
        )
    except StatusError as error:
        return error.message.partition(": ")[2]
    try:
        made = generated(lib, model)
    except StatusError as error:
        return f"WRONG: {error}"
    finally:
        lib.free_model(model)
    for worker in workers:
        worker.says("it is gone|its rank has ended")
    same = [a == b for a, b in zip(made, expected, strict=True)]
    return "the same tokens" if all(same) else f"WRONG {same}"


if __name__ == "__main__":
    sys.exit(main())
