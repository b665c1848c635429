"""The runtime is stopped, and the process ends, while a fit and a save run."""

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from support.callbacks import StatusError
from support.library import Library
from support.trainings import Trainings, data, network

lib = Library()
trainings = Trainings(lib)
ends: list[str] = []


def fit(training: int, rows: list[int], begun: threading.Event) -> None:
    try:
        trainings.fit(training, lambda event: begun.set(), inputs=rows, steps=2**40)
    except StatusError as error:
        ends.append(error.name)


for turn in range(3):
    lib.start()
    training = trainings.create(network(), optimizer={"name": "sgd", "learning_rate": 0.001})
    rows = [trainings.arrays.create(each) for each in data()]
    begun = threading.Event()
    thread = threading.Thread(target=fit, args=(training, rows, begun), daemon=True)
    thread.start()
    begun.wait()
    if turn == 2:
        break  # the process ends meanwhile
    lib.stop()
    thread.join()
    assert ends == ["ECANCELED"], ends
    ends.clear()
print("stopped", flush=True)
