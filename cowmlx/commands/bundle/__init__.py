"""A folder with the library and everything that it needs, for an application to ship.

``assemble`` writes one, ``manifest`` tells whether it is still what was written, ``parts`` and
``standard_library`` declare what goes into it and why.
"""

from __future__ import annotations


class BundleError(Exception):
    """A bundle cannot be made, or is none; the message says why and what would do."""
