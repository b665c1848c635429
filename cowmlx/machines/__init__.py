"""A model on several machines, seen from the host: ranks, and messages to and from them.

Every rank is a separate process, also the one on this machine: mlx's ring ends or hangs its
process when another one dies.
"""
