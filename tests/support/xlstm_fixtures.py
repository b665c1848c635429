"""Reference arrays of xLSTM: ``tests/fixtures/xlstm``, and how near a result must come."""

from __future__ import annotations

from typing import Any

from support.paths import ROOT

FIXTURES = ROOT / "tests/fixtures/xlstm"
CELL = FIXTURES / "cell-c16.npz"
MODELS = ("tiny-single-c16", "tiny-fused-c64")

LOGITS = 5e-4
STATES = 2e-4
INNER = 5e-5


def golden(model: str) -> dict[str, Any]:
    """The reference arrays of a model, by name."""
    import numpy as np

    with np.load(FIXTURES / model / "golden.npz") as file:
        return dict(file)


def far(got: Any, reference: Any) -> float:
    """The largest difference of two arrays of one shape."""
    import numpy as np

    got = np.asarray(got)
    assert got.shape == reference.shape
    return float(np.abs(got - reference).max())


def hidden_is_near(got: Any, reference: Any) -> bool:
    """Whether hidden values of the recurrence, of any magnitude, are near enough."""
    import numpy as np

    got = np.asarray(got)
    return bool((np.abs(got - reference) <= 2e-3 * (1e-3 + np.abs(reference))).all())
