"""Folders become models: networks, adapters, embeddings.

Imports little at import time: every package is imported on the first load. Even ``typing``
would cost a part of the runtime's start, so the modules set ``TYPE_CHECKING`` themselves; type
checkers take that name for true.
"""
