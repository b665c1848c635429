"""The forms of a program: as it is written, and what is derived of it.

Each form is a function of arrays that mlx can trace. A derived one holds the form that it is
derived of, down to the program that is written.
"""
