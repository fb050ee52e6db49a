"""Stands in for ``nvidia-cuda-mps-control``: a daemon with a pid file, a control pipe and a child.

``-d`` starts the daemon, and returns when it is ready. Without arguments, standard input goes to
the daemon, where ``quit`` ends it. The daemon's child, as MPS's server, ends only with the daemon.
"""

import os
import signal
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])


def daemon() -> None:
    """Wait for ``quit`` on the control pipe; signals other than SIGKILL are ignored."""
    is_ready, ready = os.pipe()
    if os.fork():
        os.read(is_ready, 1)
        return
    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    (FOLDER / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")
    os.mkfifo(FOLDER / "control")
    server = os.fork()
    if not server:
        time.sleep(600.0)
    os.write(ready, b"1")
    while "quit" not in (FOLDER / "control").read_text():
        pass
    os.kill(server, signal.SIGKILL)
    os.waitpid(server, 0)
    Path(os.environ["CUDA_MPS_LOG_DIRECTORY"], "control.log").write_text("quit\n")


if sys.argv[1:] == ["-d"]:
    daemon()
else:
    (FOLDER / "control").write_text(sys.stdin.read())
