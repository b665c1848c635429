"""Images beside mlx-vlm: the same random weights on a CPU, seconds.

As "first token" of the benchmark `images`, with a tower of fewer pixels. mlx-vlm computes with
the mlx of this environment, and lets the positions of an image attend to earlier ones alone: its
tokens can be others. A ratio above 1 is better.
"""

from __future__ import annotations

from benchmarks.images import beside
from benchmarks.peers import Choice
from benchmarks.support.cases import Row
from benchmarks.support.hosts import Peer, compile_host
from benchmarks.support.mlx_vlm import start
from benchmarks.support.seeing import LAYERS, SMALL, small_seer

BLOCKS = 3


def small_images(large: bool, choice: Choice) -> list[Row]:
    """Measure an image alone."""
    model = small_seer(choice.folder / "models")
    row = {"workload": "first token", "layers": LAYERS, "pixels": f"{SMALL} x {SMALL}"}
    with (
        start(choice.folder, model.mlx) as other,
        Peer([compile_host("image"), model.mlx]) as own,
    ):
        sides = {"mlx-vlm": other, "library": own}
        return [beside(row, model, sides, choice.blocks or BLOCKS)]
