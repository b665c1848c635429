"""Values of an encoder's ``config.json``, checked one by one."""

from __future__ import annotations

from typing import NamedTuple

from cowmlx.folders.config import MOST_LABELS, invalid_config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Names of activations in configs, and the kernels' names of them.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
_LARGEST = 1 << 24  # of a size; no encoder comes near it
SEQUENCE, TOKENS = "ForSequenceClassification", "ForTokenClassification"
_DEFAULT_LABELS = 2  # what transformers assumes


class Options:
    """Reads values of a config.

    Args:
        config: what ``config.json`` says.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config

    def size(
        self, name: str, default: int | None = None, least: int = 1, most: int = _LARGEST
    ) -> int:
        """Return an integer.

        Raises:
            BadFormat: it is missing and has no default, or no integer from ``least`` to ``most``.
        """
        value = self._config.get(name)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self._refuse(name, value, f"an integer from {least} to {most}")
        assert isinstance(value, int)
        return value

    def number(self, name: str, default: float) -> float:
        """Return a number above 0.

        Raises:
            BadFormat: it is none.
        """
        value = self._config.get(name)
        if value is None:
            return default
        fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e30
        if not fits:
            self._refuse(name, value, "a number above 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Return a truth value.

        Raises:
            BadFormat: it is none.
        """
        value = self._config.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self._refuse(name, value, "true or false")
        return bool(value)

    def one_of(self, name: str, default: str, known: dict[str, Any] | tuple[str, ...]) -> str:
        """Return one of a few texts.

        Raises:
            BadFormat: it is another one.
        """
        value = self._config.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or value not in known:
            self._refuse(name, value, f"one of {', '.join(known)}")
        return str(value)

    def activation(self, name: str, default: str = "gelu") -> str:
        """Return an activation by the kernels' name of it."""
        return ACTIVATIONS[self.one_of(name, default, ACTIVATIONS)]

    def fixed(self, name: str, *accepted: object, missing: bool = True) -> None:
        """Refuse a value that makes another network than the one that is built.

        Args:
            name: of the value.
            accepted: what makes this network.
            missing: whether a missing one does, too.

        Raises:
            BadFormat: it has one.
        """
        value = self._config.get(name)
        if value not in accepted and not (missing and value is None):
            shown = " or ".join(repr(own) for own in accepted) or "null"
            self._refuse(name, value, f"{shown}, the only form that is implemented")

    def labels(self) -> Labels | None:
        """Return the labels of a classifier; None for a network without a head for labels.

        Raises:
            BadFormat: they are no labels.
        """
        named = self._config.get("architectures")
        kinds = [str(name) for name in named] if isinstance(named, list) else []
        sequence = any(name.endswith(SEQUENCE) for name in kinds)
        tokens = any(name.endswith(TOKENS) for name in kinds)
        if not sequence and not tokens:
            return None
        known = self._config.get("id2label")
        if isinstance(known, dict) and known:
            if any(str(index) not in known for index in range(len(known))):
                self._refuse("id2label", known, f"labels for 0 to {len(known) - 1}")
            names = tuple(str(known[str(index)]) for index in range(len(known)))
        else:
            count = self.size("num_labels", _DEFAULT_LABELS, most=MOST_LABELS)
            names = tuple(f"LABEL_{index}" for index in range(count))
        return Labels(names, of_tokens=tokens)

    def _refuse(self, name: str, value: object, accepted: str) -> None:
        if value is None:
            raise invalid_config(f"{name} is missing; it must be {accepted}", key=name)
        shown = repr(value)[:60]
        raise invalid_config(
            f"{name} is {shown}, not {accepted}", key=name, value=shown, accepted=accepted
        )


class Labels(NamedTuple):
    """The labels of a classifier.

    Attributes:
        names: in the order of the head's rows.
        of_tokens: whether tokens have labels, rather than texts.
    """

    names: tuple[str, ...]
    of_tokens: bool
