"""Faults that the files of a device can have, which begin while a tree is running."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.sensing.sources.trees.live_files import LiveDevice
from tests.sensing.sources.trees.running import RunningTree

Fault = Callable[[RunningTree, LiveDevice], None]


def _content(content: bytes) -> Fault:
    """Return a fault that replaces the content of all files of power and energy."""

    def begin(running: RunningTree, device: LiveDevice) -> None:
        for file in device.files:
            running.change(f"{device.folder}/{file.path}", content)

    return begin


def end(running: RunningTree, device: LiveDevice) -> None:
    """End all faults except a reset."""
    for file in device.files:
        running.change(f"{device.folder}/{file.path}", None)
    running.thaw(device)
    if not (running.tree.root / device.folder).exists():
        running.replug(device)


FAULTS: Final[Mapping[str, Fault]] = {
    "reset": RunningTree.reset,
    "N/A": _content(b"N/A\n"),
    "empty": _content(b""),
    "all ones": _content(b"18446744073709551615\n"),
    "stopped": RunningTree.freeze,
    "unplugged": RunningTree.unplug,
}
"""Faults by name; ``end`` ends them."""
