"""What a chat tells and survives."""


class ChatError(Exception):
    """A command of the chat that cannot be done, with the reason."""
