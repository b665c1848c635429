"""Models as declarations, apart from their execution.

A :class:`Wiring` is data: it can be built, checked, written as JSON and drawn without a weight in
memory. A :class:`WiredModel` makes a network of it.
"""

from cowmlx.errors import WiringError
from cowmlx.networks.wiring.declaration import BlockSpec, Wiring
from cowmlx.networks.wiring.model import WiredModel

__all__ = ["BlockSpec", "WiredModel", "Wiring", "WiringError"]
