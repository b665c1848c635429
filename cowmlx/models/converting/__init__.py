"""Converts models: folders with other weights, GGUF files as folders."""
