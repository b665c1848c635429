"""libcowmlx: language models on mlx behind a flat C ABI.

The package holds the engine that the shared library runs on its dispatch thread. Python programs
use mlx-lm; ``python -m cowmlx`` prints the paths of the library and its header for a host's build.
"""
