"""What the engine's calls do: a class for each noun, and long work in steps."""
