"""Sends HTTP requests through a Unix socket."""

import http.client
import json
import socket
import sys
from typing import Any


class UnixConnection(http.client.HTTPConnection):
    """An HTTP connection through a Unix socket.

    Args:
        path: the socket.
        timeout_s: time limit for each operation of the socket, s.
    """

    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket."""
        if sys.platform == "win32":
            raise OSError("Windows has no Unix sockets")
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def json_object(text: str) -> dict[str, Any]:
    """Return a JSON object; empty if the text is not one."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
