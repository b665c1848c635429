"""The command that trains a language model on JSON lines."""
