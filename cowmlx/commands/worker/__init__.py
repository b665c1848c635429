"""``python -m cowmlx worker``: runs a part of other machines' models on this one."""
