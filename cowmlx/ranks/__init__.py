"""A rank: a process of its own that holds a part of a model, and does what the host's log says."""
