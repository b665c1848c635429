"""A fuzzer of operations and programs through the C ABI; ``python -m tests.support.fuzz``.

A case is a JSON object that says all of itself: operations, inputs, attributes, and what is done
with them. ``draw`` makes cases of a seed, ``carry_out`` runs one and returns what is wrong, and
``watch`` does so in a child process, whose end, silence and growth are findings, too.
"""
