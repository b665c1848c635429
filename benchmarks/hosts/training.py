"""Training steps of a language model: training.py SIDE MODEL LINES KIND CHECKPOINT.

SIDE is "library" or "mlx-lm", KIND "lora" or "full". Each line, a number of steps, is answered by
tokens/s of the steps behind the first three, by the clock and by processor time of all threads,
peak memory in bytes and the last loss. mlx-lm's trainer is unchanged, but for the BLAS, which is
the library's.
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
WARM = 3
BATCH, WINDOW = 4, 129  # tokens of which all but one are targets
LAYERS = 1000  # all
LORA = {"rank": 8, "scale": 20.0, "dropout": 0.0}
RATE = 1e-5


class Clock:
    """The ends of steps, their targets and losses."""

    def __init__(self):
        self.times, self.targets, self.losses, self.peak = [], [], [], 0

    def note(self, targets, loss, peak):
        """Note a step."""
        self.times.append((time.perf_counter(), time.process_time()))
        self.targets.append(targets)
        self.losses.append(loss)
        self.peak = peak

    def rates(self):
        """Tokens/s, and tokens in a second of processor time, of the steps that count."""
        begun, ended = self.times[WARM - 1], self.times[-1]
        took = [last - first for first, last in zip(begun, ended, strict=True)]
        return [sum(self.targets[WARM:]) / seconds for seconds in took]


def library(model, lines, kind, checkpoint):
    """Train through the C ABI."""
    from cowmlx.commands import installation
    from cowmlx.host.generated import declarations as abi
    from cowmlx.host.library import Library

    lib = Library(installation.library(), device="cpu")
    handle = lib.opened("model_load", os.fsencode(model), None)
    tune = {"type": kind, "grad_checkpoint": checkpoint}
    tune |= LORA if kind == "lora" else {}
    optimizer = json.dumps({"name": "adam", "learning_rate": RATE})
    params = lib.params("training", optimizer=optimizer, fine_tune=json.dumps(tune))
    training = lib.opened("training_create_for_model", handle, params)
    made = 0

    def run(steps):
        nonlocal made
        made += steps
        clock = Clock()

        def hear(event, _):
            step = event.contents
            if step.kind == abi.TRAINING_STEP:
                clock.note(step.targets, step.loss, step.peak_memory)
            return True

        params = lib.params(
            "fit",
            steps=made,
            batch_size=BATCH,
            lines_file=lines,
            lines_options=json.dumps({"max_seq_length": WINDOW}),
        )
        lib.call("training_fit", training, params, abi.cow_mlx_training_fn(hear), None)
        return clock

    return run


def mlx_lm(model, lines, kind, checkpoint):
    """Train as mlx-lm does."""
    import bare  # noqa: F401 - the library's BLAS, before mlx
    import mlx.core as mx
    import mlx.optimizers
    from mlx_lm import load
    from mlx_lm.tuner import trainer
    from mlx_lm.tuner.datasets import CacheDataset, TextDataset
    from mlx_lm.tuner.utils import linear_to_lora_layers

    network, tokenizer = load(model)
    rows = [json.loads(line) for line in Path(lines).read_text().splitlines()]
    network.freeze()
    if kind == "full":
        network.unfreeze()
    else:
        linear_to_lora_layers(network, LAYERS, LORA)
    optimizer = mlx.optimizers.Adam(learning_rate=RATE)
    place = Path(lines).with_suffix(".adapters.safetensors")

    def run(steps):
        clock = Clock()

        class Callback:
            def on_train_loss_report(self, info):
                """Note a step."""
                clock.note(BATCH * (WINDOW - 1), info["train_loss"], mx.get_peak_memory())

        trainer.train(
            network,
            optimizer,
            CacheDataset(TextDataset(rows, tokenizer)),
            args=trainer.TrainingArgs(
                batch_size=BATCH,
                iters=steps,
                steps_per_report=1,
                steps_per_save=10**9,
                max_seq_length=WINDOW,
                adapter_file=str(place),
                grad_checkpoint=checkpoint,
            ),
            training_callback=Callback(),
        )
        return clock

    return run


side, model, lines, kind, checkpoint = sys.argv[1:]
answers = sys.stdout
with contextlib.redirect_stdout(sys.stderr):
    make = {"library": library, "mlx-lm": mlx_lm}[side]
    run = make(model, lines, kind, checkpoint == "checkpoint")
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        clock = run(int(line))
        print(*clock.rates(), clock.peak, clock.losses[-1], file=answers, flush=True)
