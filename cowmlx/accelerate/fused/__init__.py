"""Decoder layers as one operation: recognised by their parts, and proved to be the same."""
