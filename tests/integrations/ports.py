"""Ports of servers that tests start."""

import socket
from typing import Final

_HELD: Final[list[socket.socket]] = []


def reserved_port() -> int:
    """Return a free port that the system gives to nobody else until this process ends.

    A socket that does not listen holds it. Servers can use it all the same, because they set
    ``SO_REUSEADDR``, as this socket does.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    _HELD.append(held)
    return int(held.getsockname()[1])
