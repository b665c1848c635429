"""Programs compiled with a sanitizer."""

from __future__ import annotations

from pathlib import Path

from support.compiler import compile_c, require, run

SANITIZERS = {
    "thread": ["-fsanitize=thread"],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
}


def build(
    sources: list[Path], program: Path, sanitizer: str, *options: str, **language: str
) -> list[str]:
    """Compile the sources; the command that runs the program.

    Args:
        sources: C, or what ``language`` says.
        program: what to make.
        sanitizer: a key of ``SANITIZERS``.
        options: further ones of the compiler.
        language: the compiler and the standard, as ``compile_c`` takes them.
    """
    debug = ["-g", "-O1", "-pthread", "-D_DEFAULT_SOURCE"]
    compile_c(sources, program, *SANITIZERS[sanitizer], *debug, *options, **language)
    if "unexpected memory mapping" not in run([program]).stderr:
        return [str(program)]
    # Older ThreadSanitizers do not know the addresses that newer kernels hand out.
    return [require("setarch"), "-R", str(program)]
