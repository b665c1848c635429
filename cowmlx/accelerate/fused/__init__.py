"""Decoder layers as one operation: recognized by their parts, and proved to be the same."""
