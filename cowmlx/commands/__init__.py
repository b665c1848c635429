"""The commands of ``python -m cowmlx``, a file each.

A command's module has ``add(commands)``: it adds its parser, whose default ``run`` takes the
parsed arguments and returns the process's exit status.
"""
