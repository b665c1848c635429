"""A host in Python: the C ABI through ctypes, as any other program takes it."""
