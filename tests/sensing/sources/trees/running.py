"""Keeps the files of a tree up to date, and knows the energy of its devices in closed form."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from energy_callbacks.sensing.clock import Clock, Periodic
from tests.fake_nvml.signals import Signal
from tests.sensing.sources.trees.live_files import LiveDevice, State
from tests.sensing.sources.trees.tree import Tree

# Interval at which a running tree writes its files, s.
STEP_S: Final = 0.02
Content = Callable[[bytes], bytes]


@dataclass(slots=True)
class _Played:
    """A device with its power.

    Attributes:
        device: the device.
        signal: its power as a function of the time since the start of the tree.
        zero_j: value of its counter at the start of the tree, J; may be less than 0.
        is_plugged: whether the device is there.
    """

    device: LiveDevice
    signal: Signal
    zero_j: float
    is_plugged: bool = True


class RunningTree:
    """Writes the files of devices, so that they follow their power.

    Args:
        tree: the tree.
        clock: the time that the files follow, virtual or real.
    """

    def __init__(self, tree: Tree, clock: Clock) -> None:
        self.tree = tree
        self._clock = clock
        self._start_s = clock.monotonic_s()
        self._played: dict[str, _Played] = {}
        self._changes: dict[str, Content] = {}
        self._written: dict[str, bytes] = {}
        self._job: Periodic | None = None

    @property
    def now_s(self) -> float:
        """Seconds since the start of the tree."""
        return self._clock.monotonic_s() - self._start_s

    def add(self, device: LiveDevice, signal: Signal) -> None:
        """Add a device whose files follow a signal from now on."""
        zero_j = device.start_j - signal.energy_j(0.0, self.now_s)
        self._played[device.folder] = _Played(device, signal, zero_j)
        self.update()

    def truth_j(self, device: LiveDevice, start_s: float, end_s: float) -> float:
        """Return the energy of a device between two moments since the start of the tree."""
        return self._played[device.folder].signal.energy_j(start_s, end_s)

    def power_w(self, device: LiveDevice) -> float:
        """Return the present power of a device."""
        return self._played[device.folder].signal.power_w(self.now_s)

    def start(self, step_s: float = STEP_S) -> None:
        """Update the files every ``step_s`` seconds of the clock, until ``stop``."""
        self._job = self._clock.every(step_s, self.update, "tree")

    def stop(self) -> None:
        """End the updates."""
        if self._job is not None:
            self._job.ask_to_stop()
            self._job.wait(60.0)

    def update(self) -> None:
        """Write the files of all devices as they are now."""
        for played in self._played.values():
            if played.is_plugged:
                self._write(played)

    def _write(self, played: _Played) -> None:
        state = self._state(played)
        for file in played.device.files:
            path = f"{played.device.folder}/{file.path}"
            change = self._changes.get(path)
            content = file.content(state)
            content = content if change is None else change(content)
            if content != self._written.get(path):
                self.tree.set(path, content)
                self._written[path] = content

    def _state(self, played: _Played) -> State:
        now_s = self.now_s
        energy_j = played.zero_j + played.signal.energy_j(0.0, now_s)
        return State(now_s, played.signal.power_w(now_s), energy_j)

    # --- faults

    def reset(self, device: LiveDevice) -> None:
        """Let the energy counter of a device restart at 0, as after a reload of its driver."""
        played = self._played[device.folder]
        played.zero_j -= self._state(played).energy_j
        self.update()

    def change(self, path: str, content: Content | bytes | None) -> None:
        """Replace the content of a file from now on.

        Args:
            path: path of the file, relative to the root.
            content: the content, or a function that returns it given the right content; ``None``
                for the right content again.
        """
        if content is None:
            self._changes.pop(path, None)
        else:
            self._changes[path] = content if callable(content) else lambda _: content
        self.update()

    def unplug(self, device: LiveDevice) -> None:
        """Remove a device; its files are kept beside the tree. Links to it stay, and are broken."""
        self._played[device.folder].is_plugged = False
        folder, kept = self.tree.root / device.folder, self._kept(device)
        kept.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(kept)

    def replug(self, device: LiveDevice) -> None:
        """Bring an unplugged device back; its counter has restarted at 0."""
        self._kept(device).rename(self.tree.root / device.folder)
        self._played[device.folder].is_plugged = True
        self.reset(device)

    def _kept(self, device: LiveDevice) -> Path:
        return self.tree.root.parent / f"{self.tree.root.name} unplugged" / device.folder
