"""Who steps when, and on which stream."""
