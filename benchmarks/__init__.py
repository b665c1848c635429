"""Benchmarks: pairs measured in turns in one run; ``python -m benchmarks [NAME ...]``."""
