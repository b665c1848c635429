"""The parts of a bundle, their purposes, and features that need optional parts."""

from __future__ import annotations

from dataclasses import dataclass

# Left out of every package: what serves building against it, checking types, or testing it.
NEVER = ("*/tests/*", "*.pyi", "*/py.typed", "*.dist-info/*", "*/__pycache__/*", "*.md", "*.c")


@dataclass(frozen=True)
class Part:
    """Distributions that serve one purpose."""

    name: str  # as ``--without`` and the manifest have it
    purpose: str  # in the manifest
    distributions: tuple[str, ...]  # their names; ``a|b`` is whichever is installed, one at least
    keep: tuple[str, ...] = ()  # patterns of the paths that a pruned bundle takes; all if empty
    drop: tuple[str, ...] = ()  # patterns of those that it leaves out
    # Patterns of the modules in whose source the engine looks for imports and classes.
    outlines: tuple[str, ...] = ()
    # Patterns of the modules that are read and never imported: source alone.
    texts: tuple[str, ...] = ()
    refused: str = ""  # what the engine refuses without it; the part is needed if empty


PARTS = (
    Part(
        "mlx",
        "arrays, networks and their kernels",
        ("mlx", "mlx-cpu|mlx-metal|mlx-cuda-12|mlx-cuda-13"),
        drop=(
            "mlx/include/*",  # for C++ programs that link mlx
            "mlx/share/*",
            "mlx/extension.py",  # builds extensions
            "mlx/_distributed_utils/*",  # command lines of clusters
        ),
    ),
    Part(
        "openblas",
        "matrix products and LAPACK on Linux",
        ("scipy-openblas32",),
        keep=("scipy_openblas32/lib/*.so",),
        refused="nothing; matrix products take mlx's reference BLAS, many times slower",
    ),
    Part(
        "mlx-lm",
        "architectures, caches, adapters, parsers of tool calls",
        ("mlx-lm",),
        keep=(
            "mlx_lm/__init__.py",
            "mlx_lm/_version.py",
            "mlx_lm/kernels/*",
            "mlx_lm/models/*",
            "mlx_lm/tool_parsers/*",
            "mlx_lm/tuner/*",
            "mlx_lm/utils.py",
        ),
        drop=(  # training
            "mlx_lm/tuner/callbacks.py",
            "mlx_lm/tuner/datasets.py",
            "mlx_lm/tuner/losses.py",
            "mlx_lm/tuner/trainer.py",
        ),
        # The light route looks up names and tables in these.
        outlines=("mlx_lm/models/*",),
        texts=(
            "mlx_lm/__init__.py",
            "mlx_lm/_version.py",
            "mlx_lm/utils.py",
        ),
    ),
    Part(
        "tokenizers",
        "text to tokens and back",
        ("tokenizers",),
        drop=("tokenizers/tools/*",),  # shows tokens in a notebook
    ),
    Part(
        "checksums",
        "checksums of saved contexts",
        ("xxhash",),
    ),
    Part(
        "chat",
        "chat templates, and regular expressions of the parsers of tool calls",
        ("jinja2", "markupsafe", "regex"),
        refused="model_chat_prompt and context_chat",
    ),
    Part(
        "grammar",
        "output that matches a JSON schema, regex or grammar",
        ("llguidance",),
        keep=("llguidance/*",),
        drop=(
            "llguidance/cli.py",
            # Each for a library that masks logits or has tokens; the engine does both itself.
            "llguidance/hf.py",
            "llguidance/llamacpp.py",
            "llguidance/mlx.py",
            "llguidance/numpy.py",
            "llguidance/tiktoken.py",
            "llguidance/torch.py",
        ),
        refused="generation_params.grammar",
    ),
)

# What `--full` puts in the place of mlx-lm's part: all that the installed one asks for.
FULL = Part(
    "mlx-lm",
    "the whole of mlx-lm with transformers: tokenizers without tokenizer.json, AWQ and GPTQ "
    "weights, code in model folders",
    ("mlx-lm",),
)


def optional() -> dict[str, Part]:
    """Return the parts that can be left out, by name."""
    return {part.name: part for part in PARTS if part.refused}
