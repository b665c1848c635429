"""What ranks find out together: one that gave up alone would let the others wait for ever."""

from __future__ import annotations

import mlx.core as mx

from cowmlx import failures
from cowmlx.errors import Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.errors import CowMlxError


class Together:
    """Passes of a network that all ranks compute, or none.

    A pass is put together first, which fails where an architecture does not take what it is given:
    often on some ranks alone, since layers differ. Then all tell whether it has, and compute.

    Args:
        network: this rank's.
        group: of all ranks; None for one rank.
    """

    def __init__(self, network: Any, group: Any) -> None:
        self._network = network
        self._group = group
        self._over = False  # some rank has given up
        self._torn: CowMlxError | None = None  # what ended a pass that others may be in

    def find_out(self, prove: Callable[[Any, Any], str | None], make_layers: Any) -> str | None:
        """Return why not, or None if no rank has found a reason.

        Args:
            prove: given a network and what makes its layers it makes passes, and returns why not.
            make_layers: returns empty caches of this rank's layers.

        Raises:
            CowMlxError: a pass that all had begun has failed here.
        """
        why = prove(self._pass, make_layers)
        if self._torn is not None:
            raise failures.kept(self._torn)
        if not self._over and not self._agree(why is None) and why is None:
            why = "its network does not take batches on another machine"
        return why

    def _pass(self, ids: mx.array, cache: list[Any]) -> mx.array:
        """Run the network, and wait: ranks that compute several passes at once mix them up."""
        logits: mx.array = self._network(ids, cache=cache)
        state = [getattr(layer, "arrays", None) or layer.state for layer in cache]
        if not self._agree(True):
            raise Unsupported("not on another machine")
        try:
            mx.eval(logits, state)
        except Exception as error:
            self._torn = failures.kept(error)
            raise
        return logits

    def _agree(self, good: bool) -> bool:
        """Whether all ranks find something good: each of them asks as often as the others."""
        if self._group is None:
            return good
        bad = mx.distributed.all_sum(mx.array(0 if good else 1), group=self._group)
        self._over = bad.item() != 0
        return not self._over
