"""Models on several ranks of this machine: what is right, what it costs, what is left behind."""
