"""Rotary positions of configs of transformers 5, beside the names that they had before."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support import tiny_models

TOKENS = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
LINEAR = {"rope_type": "linear", "factor": 4.0}
CASES = [
    ("llama", {"rope_theta": 300.0}, {"rope_type": "default", "rope_theta": 300.0}),
    ("llama", {"rope_theta": 300.0, "rope_scaling": LINEAR}, {**LINEAR, "rope_theta": 300.0}),
    (
        "gemma3_text",
        {"rope_theta": 300.0, "rope_local_base_freq": 70.0},
        {
            "full_attention": {"rope_type": "default", "rope_theta": 300.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 70.0},
        },
    ),
]


@pytest.mark.parametrize(("family", "earlier", "stored"), CASES)
def test_rope_parameters_are_the_names_of_earlier_years(
    lib, tmp_path, open_context, family, earlier, stored
):
    folder = tiny_models.make(tmp_path / "model", family)
    config = json.loads((folder / "config.json").read_text())
    for name in ("rope_theta", "rope_scaling", "rope_local_base_freq"):
        config.pop(name, None)

    def logits(changes):
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        model = lib.load(folder)
        context = open_context(model)
        lib.begin(context, TOKENS, max_tokens=0)
        found = np.array(lib.logits(context))
        lib.free_model(model)
        return found

    found = logits({"rope_parameters": stored})
    np.testing.assert_array_equal(found, logits(earlier))
    assert np.abs(found - logits({})).max() > 1e-3
    odd = logits({**earlier, "rope_parameters": {"full_attention": 7, "rope_theta": "x"}})
    np.testing.assert_array_equal(found, odd)  # names of earlier years go first
