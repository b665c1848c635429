"""``model_type: "mad"``: a folder that brings its own wiring, as data."""

from __future__ import annotations

from cowmlx.networks.blocks import check_vocabulary
from cowmlx.networks.wiring import WiredModel, Wiring, WiringError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class ModelArgs:
    """What such a ``config.json`` holds.

    Attributes:
        wiring: its ``wiring``.
    """

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> ModelArgs:
        """Read a config.

        Raises:
            WiringError: it has no wiring, or one that is none.
        """
        if "wiring" not in config:
            raise WiringError(
                "config.json lacks wiring, which mad needs",
                reason="invalid_config",
                file="config.json",
                key="wiring",
            )
        return cls(Wiring.from_json(config["wiring"]))


class Model(WiredModel):
    """The network of a wiring that gives logits.

    Raises:
        WiringError: it gives logits of tokens that it cannot take, or see :class:`WiredModel`.
    """

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args.wiring)
        check_vocabulary(args.wiring, self.blocks)
