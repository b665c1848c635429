"""From a program's text to a :class:`~cowmlx.programs.graph.Library`: all errors come up here."""
