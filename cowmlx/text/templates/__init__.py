"""Chat templates as bounded programs: jinja2's language, every operation of it counted.

A template comes from an untrusted folder and renders on the thread that serves every context.
Its code is therefore compiled so that whatever is not done in a fixed small time goes through
this package, which charges a :class:`~cowmlx.text.templates.budget.Budget` before it does the
work. A deadline alone, checked between lines, bounds neither time nor memory: one operation in C,
such as ``'%s' % nested``, may take minutes or gigabytes. Values are of a closed set of types, and
only functions that are known to be bounded can be called.
"""
