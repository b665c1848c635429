"""The declarations of the headers for ctypes, under the name that tests know them by."""

from cowmlx.host.generated.declarations import *  # noqa: F403
