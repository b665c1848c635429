#!/usr/bin/env python3
"""Train calf with eyes, the small model that sees drawn pictures, from nothing but a seed.

    python tools/calf/train_eyes.py --out models/calf-eyes

Pictures come from `pictures`, questions from `sights`; nothing is downloaded.  Needs what `train`
needs, and shares its workers.  `--resume` continues from the last checkpoint.
"""

import argparse
import itertools
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from tools.calf import chat, sights
from tools.calf.pictures import labels, paint
from tools.calf.train import compiled_step, make_optimizer, rates, run_workers, write_json

BREAK = "\n\n"  # around images: one token, as in the vocabulary of Gemma 3
LENGTH = 128
GROUPS, GROUP, PAIRS, BLIND = 4, 8, 1, 1
# Pictures without questions, whose labels alone are trained, for each with questions: the tower
# learns from them in the first steps, and the text network later.
GLANCES, GLANCING = 3, 300
EARLY = 2400  # steps with the questions that are asked at first
TOKENS, SHOWN = 44, 3.4  # about how many tokens of a row, and patches of a picture, are trained
PEAK_RATE = 1e-3
MATRIX_RATES = 1e-2, 2e-4  # Muon's highest and last
LABEL_SHARE, GROUND_SHARE = 0.5, 0.1
SEEING_TEMPLATE = chat.TEMPLATE.replace(
    "{{- part.text -}}",
    "{{- '<start_of_image>' if part.type == 'image' else part.text -}}",
)
HELDOUT_SEED, EXAMINED, EXAMINE_EVERY, SAVE_EVERY = 1, 160, 200, 100


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description="Train calf with eyes from a seed.")
    parser.add_argument("--out", type=Path, default=Path("models/calf-eyes"))
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--checkpoints", type=Path, help="folder for checkpoints")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    parser.add_argument("--scratch", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


class Writer:
    """Makes tokens of conversations."""

    def __init__(self, tokenizer):
        from tools.calf.eyes import MARKS, POSITIONS

        self.tokenizer, self.template = tokenizer, chat.template(SEEING_TEMPLATE)
        begin, soft, end = MARKS
        self.marker, self.image = begin, f"\n\n{begin}{soft * POSITIONS}{end}\n\n"
        self.soft = tokenizer.token_to_id(soft) if tokenizer else None
        self.pad = tokenizer.token_to_id(chat.PAD) if tokenizer else None

    def text(self, messages):
        """The text of a conversation, with its images' tokens."""
        return self.template.render(messages=messages).replace(self.marker, self.image)

    def row(self, messages):
        """The tokens of as many turns as fit into a row."""
        while True:
            ids = self.tokenizer.encode(self.text(messages), add_special_tokens=False).ids
            if len(ids) <= LENGTH + 1:
                return ids + [self.pad] * (LENGTH + 1 - len(ids))
            messages = messages[:-2]


def make_tokenizer(seed):
    """The tokenizer, of questions and answers alone."""
    from tools.calf.eyes import MARKS, VOCABULARY

    writer = Writer(None)
    seen = (messages for _, messages in sights.conversations(seed, early=True))
    some = itertools.chain(
        itertools.islice(seen, 3000), itertools.islice(sights.blind_conversations(seed), 300)
    )
    return chat.train_tokenizer(map(writer.text, some), VOCABULARY, (BREAK,), MARKS)


def blocks_of(rows, soft):
    """The number of the image at each position, from 1; 0 where there is text."""
    images = rows == soft
    starts = images & ~np.pad(images, ((0, 0), (1, 0)))[:, :-1]
    return np.cumsum(starts, 1) * images


def group(writer, seed, early):
    """Scenes and rows of a group: one row has two pictures, one has none, the others one each."""
    from tools.calf.eyes import POSITIONS

    seen = sights.conversations(seed, early=early)
    scenes, rows = [], []
    for pictures in [2] * PAIRS + [1] * (GROUP - PAIRS - BLIND):
        turns, row = 2 * sights.TURNS if pictures == 1 else 4, []
        while row.count(writer.soft) < pictures * POSITIONS:  # the second picture may not fit
            taken = list(itertools.islice(seen, pictures))
            said = [message for _, messages in taken for message in messages[:turns]]
            row = writer.row(said)
        scenes += [scene for scene, _ in taken]
        rows.append(row)
    rows += map(writer.row, itertools.islice(sights.blind_conversations(seed), BLIND))
    return scenes, rows


def batch(writer, seeds, glances, early):
    """Pictures' patches, rows, their trained tokens, image numbers and labels of patches."""
    from tools.calf.eyes import GRID, patches_of

    made = [group(writer, seed, early) for seed in seeds]
    scenes = [scene for own, _ in made for scene in own]
    rows = np.array([row for _, own in made for row in own], np.int32)
    trained = chat.targets(writer.tokenizer, rows.reshape(-1)).reshape(rows.shape)
    trained &= rows != writer.pad
    glanced = [sights.conversations(f"glances {seed}", 0) for seed in seeds]
    for seen in glanced:
        scenes += [scene for scene, _ in itertools.islice(seen, glances * GROUP)]
    shown = np.stack([labels(scene, GRID) for scene in scenes])
    patches = patches_of([paint(scene) for scene in scenes])
    return patches, rows, trained.astype(np.float32), blocks_of(rows, writer.soft), shown


def network(seed):
    """The network, a place for the mask of its rows, and the loss of logits."""
    import mlx.core as mx
    from mlx_lm.models import gemma3_text

    from tools.calf.eyes import Eyes
    from tools.calf.speedups import install_gemma

    mask = []
    attention, gelu, cross_entropy = install_gemma(gemma3_text, lambda: mask[-1])
    mx.random.seed(seed)
    return Eyes(gemma3_text, attention, gelu), mask, cross_entropy


def mask_of(blocks):
    """What is added to scores: positions see those before, and all of their image."""
    import mlx.core as mx

    length = blocks.shape[1]
    before = mx.tri(length, dtype=mx.bool_)
    same = (blocks[:, :, None] == blocks[:, None, :]) & (blocks[:, :, None] > 0)
    return mx.where(before | same, 0.0, -1e4)[:, None]


def make_optimizers(steps):
    """What makes the steps: Muon for the matrices of layers, AdamW for everything else.

    Muon: https://kellerjordan.github.io/posts/muon/
    """
    import mlx.optimizers as optim

    matrices = optim.Muon(rates(steps, *MATRIX_RATES), weight_decay=0.0)
    rest = make_optimizer(steps, peak=PEAK_RATE)
    chosen = [lambda name, weight: weight.ndim == 2 and "layers" in name]
    return optim.MultiOptimizer([matrices, rest], chosen)


def make_loss(model, mask, cross_entropy, soft):
    """The loss of a batch: that of the answers, and a share of that of the labels."""
    import mlx.core as mx

    def loss(patches, rows, trained, blocks, shown):
        hidden = model.look(patches)
        mask[:] = [mask_of(blocks[:, :-1])]
        asked = hidden[: len(rows)]
        losses = cross_entropy(model.read(rows[:, :-1], asked, soft), rows[:, 1:])
        answers = (losses * trained[:, 1:]).sum() / (TOKENS * len(rows))
        kinds = cross_entropy(model.heads.kind(hidden), shown[:, 0])
        colours = cross_entropy(model.heads.colour(hidden), shown[:, 1])
        shares = mx.where(shown[:, 0] > 0, 1.0, GROUND_SHARE)
        named = ((kinds + colours) * shares).sum() / (SHOWN * len(shown))
        return answers + LABEL_SHARE * named

    return loss


def examine(model, mask, writer, count=EXAMINED):
    """How many held-out questions of each kind are answered right, and of how many."""
    import mlx.core as mx

    from tools.calf.eyes import patches_of

    tally = {}
    asked = list(sights.heldout(HELDOUT_SEED, count))
    for first in range(0, count, 16):
        part = asked[first : first + 16]
        rows = np.array([writer.row(sights.messages_of([question])) for _, question in part])
        blocks = mx.array(blocks_of(rows, writer.soft))
        mask[:] = [mask_of(blocks[:, :-1])]
        hidden = model.look(mx.array(patches_of([paint(scene) for scene, _ in part])))
        told = np.array(model.read(mx.array(rows[:, :-1]), hidden, writer.soft).argmax(-1))
        trained = chat.targets(writer.tokenizer, rows.reshape(-1)).reshape(rows.shape)
        trained = (trained & (rows != writer.pad))[:, 1:]
        right = ((told == rows[:, 1:]) | ~trained).all(1)
        for (_, question), good in zip(part, right, strict=True):
            own = tally.setdefault(question.kind, [0, 0])
            own[0] += int(good)
            own[1] += 1
    return tally


def save_checkpoint(folder, model, optimizer, number):
    """Keep all that a run needs to go on."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    folder.mkdir(parents=True, exist_ok=True)
    state = {f"model.{name}": array for name, array in tree_flatten(model.parameters())}
    state |= {f"optimizer.{name}": array for name, array in tree_flatten(optimizer.state)}
    mx.save_safetensors(str(folder / "next.safetensors"), state, {"step": str(number)})
    (folder / "next.safetensors").replace(folder / "last.safetensors")


def load_checkpoint(folder, model, optimizer):
    """Put the last checkpoint into a model and its optimizer; return its step."""
    import mlx.core as mx
    from mlx.utils import tree_unflatten

    state, about = mx.load(str(folder / "last.safetensors"), return_metadata=True)
    parts = {"model": [], "optimizer": []}
    for name, array in state.items():
        part, _, own = name.partition(".")
        parts[part].append((own, array))
    model.update(tree_unflatten(parts["model"]))
    optimizer.state = tree_unflatten(parts["optimizer"])
    return int(about["step"])


def train(options):
    """What each worker does; the first one writes the files."""
    from tools.calf.speedups import load_blas

    load_blas(tempfile.mkdtemp(dir=options.scratch))
    import mlx.core as mx

    ring = mx.distributed.init()
    rank, groups = ring.rank(), range(ring.rank(), GROUPS, ring.size())
    writer = Writer(make_tokenizer(options.seed))
    model, mask, cross_entropy = network(options.seed)
    optimizer = make_optimizers(options.steps)
    optimizer.init(model.trainable_parameters())
    done, kept = 0, options.checkpoints
    if options.resume:
        done = load_checkpoint(kept, model, optimizer)
    loss = make_loss(model, mask, cross_entropy, writer.soft)
    step = compiled_step(model, optimizer, loss)
    start, mean = time.time(), None
    for number in range(done + 1, options.steps + 1):
        glances = GLANCES if number <= GLANCING else 0
        seeds = [f"{options.seed}/{number}/{own}" for own in groups]
        value = step(*batch(writer, seeds, glances, number <= EARLY))
        mean = value if mean is None else 0.98 * mean + 0.02 * value
        if rank == 0 and (number <= 5 or number % 50 == 0 or number == options.steps):
            speed = (number - done) / (time.time() - start)
            now = f"step {number:5}  loss {value:.4f}  mean {mean:.4f}"
            print(f"{now}  {speed:.2f} steps/s", flush=True)
        if rank == 0 and number % EXAMINE_EVERY == 0:
            tally = examine(model, mask, writer)
            kinds = ", ".join(f"{kind} {good}/{all_}" for kind, (good, all_) in tally.items())
            right = sum(good for good, _ in tally.values())
            print(f"held out: {right} of {EXAMINED}: {kinds}", flush=True)
        if rank == 0 and kept and number % SAVE_EVERY == 0:
            save_checkpoint(kept, model, optimizer, number)
    if rank == 0:
        write_model(options.out, model, writer.tokenizer)


def write_model(out, model, tokenizer):
    """Write the folder of a model."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    from tools.calf.eyes import MARKS, POSITIONS, PREPROCESSING, config, stored

    out.mkdir(parents=True, exist_ok=True)
    weights = stored(tree_flatten(model.parameters()))
    mx.save_safetensors(str(out / "model.safetensors"), weights, {"format": "pt"})
    tokenizer.save(str(out / "tokenizer.json"))
    names = {"bos": chat.BEGIN, "eos": chat.END, "pad": chat.PAD}
    ends = {f"{name}_token_id": tokenizer.token_to_id(mark) for name, mark in names.items()}
    write_json(out / "config.json", config(tokenizer, ends))
    write_json(out / "generation_config.json", ends)
    write_json(out / "preprocessor_config.json", PREPROCESSING)
    own = dict(zip(("boi_token", "image_token", "eoi_token"), MARKS, strict=True))
    settings = {"chat_template": SEEING_TEMPLATE, "extra_special_tokens": own}
    write_json(out / "tokenizer_config.json", chat.tokenizer_config() | settings)
    processor = {"processor_class": "Gemma3Processor", "image_seq_length": POSITIONS}
    write_json(out / "processor_config.json", processor)


def main():
    """Start the workers, wait for them and write the model card."""
    options = arguments()
    if options.scratch:
        train(options)
        return
    if GROUPS % options.workers:
        sys.exit(f"--workers is {options.workers}, must divide {GROUPS}")
    os.environ["MLX_DISABLE_COMPILE"] = "1"  # a C++ compiler would take longer than it saves
    minutes = run_workers(options.workers)
    from tools.calf.eyes_card import write_card

    facts = {name: getattr(options, name) for name in ("seed", "steps", "workers")}
    write_card(options.out, {**facts, "images": GROUPS * GROUP, "minutes": minutes})


if __name__ == "__main__":
    main()
