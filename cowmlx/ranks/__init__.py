"""A rank: a process that holds a part of a model, and carries out the host's log."""
