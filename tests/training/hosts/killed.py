"""Trains until step 60, saving after each, from where it was saved; prints each step.

Arguments: the folder, and the optimizer and the options as JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.library import Library
from support.trainings import Trainings, data, network

folder = Path(sys.argv[1])
optimizer, options = json.loads(sys.argv[2])
lib = Library()
lib.start()
trainings = Trainings(lib)
training = trainings.create(network(), optimizer=optimizer, **options)
if (folder / "training.safetensors").exists():
    trainings.load(training, folder)
trainings.fit(
    training,
    lambda event: print(event.step, flush=True),
    inputs=data(),
    validation=data(9, seed=4),
    batch_size=7,
    evaluate_every=3,
    patience=100,
    steps=60,
    save_every=1,
    folder=folder,
)
print("end", flush=True)
lib.stop()
