"""A model on several machines, seen from the host: ranks, what they are told, and what they say.

Every rank is a process of its own, also the one on this machine: mlx's ring ends or hangs the
process that is in it when another one dies.
"""
