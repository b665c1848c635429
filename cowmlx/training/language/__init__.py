"""Training of language models: adapters or weights of a loaded model, on texts; and their export.

:class:`~cowmlx.training.language.objective.LanguageObjective` is the objective, and
:class:`~cowmlx.training.language.data.LanguageData` the data source, of
:mod:`cowmlx.training.objective`.
"""
