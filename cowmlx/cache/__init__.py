"""Sequences of tokens and the layer caches that hold them."""
