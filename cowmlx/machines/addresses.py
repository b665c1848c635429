"""Where workers listen: "host:port", of IPv4 or a name."""

from __future__ import annotations

import ipaddress

from cowmlx.errors import InvalidArgument

MAX_PORT = 65535
MAX_ADDRESS = 255


def parse(text: str, argument: str, least: int = 1) -> tuple[str, int]:
    """Return the host and port of an address.

    Args:
        text: the address.
        argument: what it is called in a message.
        least: that the port must be.

    Raises:
        InvalidArgument: it is none.
    """
    host, colon, port = text.rpartition(":")
    good = colon and host and len(text) <= MAX_ADDRESS and port.isascii() and port.isdigit()
    if not good or not least <= int(port) <= MAX_PORT or ":" in host or not host.isascii():
        raise InvalidArgument(
            f'{argument} is "{text[:MAX_ADDRESS]}", must be HOST:PORT, with a name or an IPv4 '
            "address and a port from 1 to 65535",
            argument=argument,
            value=text[:MAX_ADDRESS],
            accepted="HOST:PORT",
        )
    return host, int(port)


def is_numeric(host: str) -> bool:
    """Whether a host is an address, and no name that has to be looked up."""
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def is_private(host: str) -> bool:
    """Whether an address is of this machine alone, or of a private network."""
    address = ipaddress.IPv4Address(host)
    return (address.is_private or address.is_link_local) and not address.is_unspecified
