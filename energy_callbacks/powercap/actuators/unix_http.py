"""Sends HTTP requests through a Unix socket."""

import http.client
import json
import socket
from collections.abc import Mapping
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
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def request(
    path: str, method: str, target: str, headers: Mapping[str, str], timeout_s: float
) -> tuple[int, str]:
    """Send one request; return the status code and the text of the answer.

    Args:
        path: the socket.
        method: HTTP method, such as ``GET``.
        target: path and query of the URL.
        headers: additional headers.
        timeout_s: time limit for each operation of the socket, s.

    Raises:
        OSError: if the socket cannot be opened or does not answer in time.
        http.client.HTTPException: if the answer is not HTTP.
    """
    connection = UnixConnection(path, timeout_s)
    try:
        connection.request(method, target, headers=dict(headers))
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    finally:
        connection.close()


def json_object(text: str) -> dict[str, Any]:
    """Return a JSON object; empty if the text is not one."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
