"""Training: what is minimised, by which steps, on which data."""
