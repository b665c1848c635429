"""``python -m cowmlx chat``: a conversation in the terminal."""
