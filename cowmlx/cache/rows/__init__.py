"""The batch forms of layer caches, a file per kind: a row per sequence."""
