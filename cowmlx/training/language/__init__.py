"""Training of language models: what is trained of a loaded one, on which texts, and what comes out.

:class:`~cowmlx.training.language.objective.LanguageObjective` is the objective, and
:class:`~cowmlx.training.language.data.LanguageData` the data source, of
:mod:`cowmlx.training.objective`.
"""
