"""Converts models: quantizes weights, and makes folders of GGUF files."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from cowmlx.commands import origin
from cowmlx.commands.terminal import running, show_progress, write
from cowmlx.quantized_formats import FORMATS
from cowmlx.steps import finished

_GIB = 1 << 30


def convert(arguments: argparse.Namespace) -> None:
    """Quantize a model, or make a model's folder of a GGUF file."""
    origin.require_python()
    from cowmlx.models import quantizing
    from cowmlx.models.converting import output, sources

    bits = arguments.bits or 0
    if not bits and arguments.mode != "affine":
        bits = FORMATS[arguments.mode].bits[0]
    mode = next(mode for mode, name in quantizing.MODES.items() if name == arguments.mode)
    how = quantizing.chosen(
        {
            "quantize_bits": bits,
            "quantize_group": arguments.group or 0,
            "quantize_mode": mode,
        }
    )
    show_progress(f"reading {arguments.source}")
    source = sources.read(arguments.source, how, arguments.dtype)
    options: dict[str, Any] = {"quantize": list(how) if how else None, "dtype": arguments.dtype}
    options["shard_bytes"] = most = int(arguments.shard_gb * _GIB)
    steps = output.write(source, arguments.out, options, most)
    try:
        size = finished(_shown(steps))
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped; the same command continues where this one was\n")
        raise
    write(f"{arguments.out}: {size / 1e9:.2f} GB of weights\n")


def _shown(steps: Any) -> Any:
    """Take steps, and show how far they are."""
    while True:
        try:
            fraction, stage = next(steps)
        except StopIteration as stop:
            return stop.value
        show_progress(f"{fraction:.0%} {stage}")
        yield


def _size(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number <= 1024:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0 and up to 1024")
    return number


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``convert``."""
    parser = commands.add_parser("convert", help=convert.__doc__, description=__doc__)
    option = parser.add_argument
    text = "a model's folder, its name in the cache, or a GGUF file"
    option("source", metavar="SOURCE", help=text)
    option("out", metavar="OUT", help="the new folder")
    text = "bits of a weight: 2, 3, 4, 5, 6, 8; default: the weights stay as they are"
    option("--bits", type=int, metavar="N", help=text)
    text = "weights that share a scale: 32, 64, 128; default: the mode's"
    option("--group", type=int, metavar="N", help=text)
    option("--mode", choices=tuple(FORMATS), default="affine", help="the format; default: affine")
    text = "type of weights that are not quantized; default: as they are, exactly"
    option("--dtype", choices=("bfloat16", "float16", "float32"), help=text)
    text = "size of a file of weights; default: 2"
    option("--shard-gb", type=_size, default=2.0, metavar="X", help=text)
    parser.set_defaults(run=running(convert, "", "source"))
