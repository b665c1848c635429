"""Models: loading, tokenizers, chat templates and adapters.

Imports nothing at import time; every heavy package is imported on the first load.
"""
