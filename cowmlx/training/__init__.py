"""Training: objectives, optimizers, the loop, and data."""
