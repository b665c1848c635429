"""The contents of a window, as screen readers get them: AT-SPI over D-Bus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from jeepney import DBusAddress, DBusErrorResponse, message_bus, new_method_call
from jeepney.io.blocking import DBusConnection, open_dbus_connection
from jeepney.wrappers import unwrap_msg

_SPI = "org.a11y.atspi."
_REGISTRY = _SPI + "Registry"
_ROOT = "/org/a11y/atspi/accessible/root"
_WINDOW_COORDINATES = 1
_FOCUSED, _SENSITIVE = 1 << 12, 1 << 24  # of AtspiStateType
_SECONDS = 30  # more than any answer takes that comes at all


class Gone(Exception):
    """The widget is not there any more."""


class Bus:
    """A connection to the accessibility bus."""

    def __init__(self, connection: DBusConnection) -> None:
        self._connection = connection

    def has_registry(self) -> bool:
        """Whether programs can register their windows."""
        call = message_bus.NameHasOwner(_REGISTRY)
        return unwrap_msg(self._connection.send_and_get_reply(call, timeout=_SECONDS))[0]

    def call(self, node: Widget, interface: str, method: str, signature: str = "", *args) -> Any:
        """Call a method of a widget and return its result."""
        address = DBusAddress(node.path, node.owner, interface)
        call = new_method_call(address, method, signature or None, args)
        try:
            body = unwrap_msg(self._connection.send_and_get_reply(call, timeout=_SECONDS))
        except DBusErrorResponse as exc:
            raise Gone(f"{method} of {node.path}: {exc}") from exc
        return body[0]

    def widgets(self) -> list[Widget]:
        """All widgets of all programs, each before what it contains."""
        root = Widget(self, _REGISTRY, _ROOT)
        return [root, *root.inside]


@dataclass(frozen=True)
class Widget:
    """A widget on the bus. Every question to one that is gone raises :class:`Gone`."""

    bus: Bus
    owner: str
    path: str

    @property
    def inside(self) -> list[Widget]:
        """All widgets in it, each before what it contains."""
        found: list[Widget] = []

        def walk(widget: Widget) -> None:
            for owner, path in self.bus.call(widget, _SPI + "Accessible", "GetChildren"):
                found.append(Widget(self.bus, owner, path))
                walk(found[-1])

        walk(self)
        return found

    @property
    def role(self) -> str:
        """Such as "button"."""
        return self.bus.call(self, _SPI + "Accessible", "GetRoleName")

    @property
    def name(self) -> str:
        """Its name; of a label, what it shows."""
        return self._get("Accessible", "Name")

    @property
    def text(self) -> str:
        """The text in it."""
        length = self._get("Text", "CharacterCount")
        return self.bus.call(self, _SPI + "Text", "GetText", "ii", 0, length)

    @property
    def value(self) -> float:
        """Of a progress bar: how far it is, from 0 to 1."""
        return self._get("Value", "CurrentValue")

    @property
    def focused(self) -> bool:
        """Whether keys go to it."""
        return self._has(_FOCUSED)

    @property
    def sensitive(self) -> bool:
        """Whether it can be used."""
        return self._has(_SENSITIVE)

    @property
    def box(self) -> tuple[int, int, int, int]:
        """Its left, top, right and bottom in its window, in pixels."""
        x, y, width, height = self.bus.call(
            self, _SPI + "Component", "GetExtents", "u", _WINDOW_COORDINATES
        )
        return x, y, x + width, y + height

    @property
    def centre(self) -> tuple[int, int]:
        """Where to click it, in its window."""
        left, top, right, bottom = self.box
        return (left + right) // 2, (top + bottom) // 2

    def _get(self, interface: str, name: str) -> Any:
        properties = "org.freedesktop.DBus.Properties"
        return self.bus.call(self, properties, "Get", "ss", _SPI + interface, name)[1]

    def _has(self, state: int) -> bool:
        return bool(self.bus.call(self, _SPI + "Accessible", "GetState")[0] & state)


@contextmanager
def connect(address: str) -> Iterator[Bus]:
    """Connect to a bus."""
    with open_dbus_connection(bus=address) as connection:
        yield Bus(connection)
