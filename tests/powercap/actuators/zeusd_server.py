"""A small daemon with the interface of zeusd 0.16, as root of the simulated cards."""

import json
import os
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import pynvml

TOKEN = "of-a-test"


class Daemon(BaseHTTPRequestHandler):
    """Answers what ``discovery`` says, and calls the setters of NVML."""

    discovery: ClassVar[Mapping[str, Any]] = {}
    scopes: ClassVar[tuple[str, ...]] = ()
    refusal: ClassVar[str] = ""
    requests: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        if self.path == "/auth/whoami":
            is_known = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            self._answer(200 if is_known else 401, {"sub": "me", "scopes": self.scopes})
        else:
            self._answer(200 if self.path == "/discover" else 404, self.discovery)

    def do_POST(self) -> None:
        self.requests.append(self.path)
        if self.refusal:
            self._answer(400, self.refusal)
            return
        url = urlsplit(self.path)
        values = dict(parse_qsl(url.query))
        card = pynvml.nvmlDeviceGetHandleByIndex(int(values["gpu_ids"]))
        clocks = [int(values[key]) for key in ("min_clock_mhz", "max_clock_mhz") if key in values]
        setters = {
            "/gpu/set_power_limit": "nvmlDeviceSetPowerManagementLimit",
            "/gpu/set_gpu_locked_clocks": "nvmlDeviceSetGpuLockedClocks",
            "/gpu/reset_gpu_locked_clocks": "nvmlDeviceResetGpuLockedClocks",
            "/gpu/set_mem_locked_clocks": "nvmlDeviceSetMemoryLockedClocks",
            "/gpu/reset_mem_locked_clocks": "nvmlDeviceResetMemoryLockedClocks",
        }
        numbers = [int(values["power_limit_mw"])] if "power_limit_mw" in values else clocks
        os.environ["FAKE_NVML_ROOT"] = "1"
        try:
            getattr(pynvml, setters[url.path])(card, *numbers)
        finally:
            del os.environ["FAKE_NVML_ROOT"]
        self._answer(200, {})

    def _answer(self, status: int, content: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, *arguments: Any) -> None:
        """Do not log to the standard error."""

    def address_string(self) -> str:
        return "unix"


@contextmanager
def socket_path() -> Iterator[Path]:
    """Yield the path of a socket, which may have 107 bytes; that of ``tmp_path`` may be longer."""
    with tempfile.TemporaryDirectory(prefix="ec-test-", dir="/tmp") as folder:
        yield Path(folder) / "zeusd.sock"


@contextmanager
def zeusd(path: Path, names: tuple[str, ...], **settings: Any) -> Iterator[list[str]]:
    """Serve at a socket, as a daemon that lists GPUs of these names; yield the requests so far."""
    discovery = {
        "gpus": [{"id": index, "name": name} for index, name in enumerate(names)],
        "cpus": [],
        "enabled_api_groups": ["gpu-control", "gpu-read"],
        "auth_required": False,
    } | settings.pop("discovery", {})
    handler = type("Served", (Daemon,), {"discovery": discovery, "requests": [], **settings})
    pynvml.nvmlInit()
    with UnixStreamServer(str(path), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield handler.requests  # type: ignore[attr-defined]
        finally:
            server.shutdown()
            thread.join()
