"""Programs: computations as data, checked once and run many times."""
