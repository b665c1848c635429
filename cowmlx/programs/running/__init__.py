"""How a program runs: traced, compiled, and in units between which others have their turns."""
