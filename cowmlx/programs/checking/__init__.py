"""From a program's text to a :class:`~cowmlx.programs.graph.Library`: all errors come up here.

Functions raise ProgramError, which says what is wrong, where, and what would be accepted.
"""
