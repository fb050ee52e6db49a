"""Finds the GPUs that a run uses, at its start and while it runs.

A GPU is used if the framework says so, if this process has an active primary CUDA context on it, or
if NVML lists this process or one of its descendants among the processes of the card. Contexts and
processes are checked at every common reading moment (``schedule``); this initialises no device.
"""

import math
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.core.guard import logger
from energy_callbacks.core.records import Channel, Reading
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.frameworks import cuda_driver
from energy_callbacks.sensing.gpus.devices import GpuChoice, GpuInfo, in_use, one_per_card
from energy_callbacks.sensing.schedule import until_reading_s
from energy_callbacks.sensing.sources.nvidia.processes import pids_on
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource, inventory, session
from energy_callbacks.sensing.sources.protocol import DiscoveredSources

_ALL_THE_SAME: Final = "pass devices=[0] or devices='all' to measure GPUs anyway"


class UsedGpus:
    """A source without readings, which finds the sources of the GPUs that this run uses.

    NVML is initialised on the thread of this source, because that may take seconds.

    Args:
        clock: clock of the sources.
        used_ordinals: CUDA's ordinals of the devices that the framework uses; empty if the run uses
            no GPU, ``None`` if not known. If it is ``None`` and this process has no CUDA context,
            the device whose ordinal is in the environment variable ``LOCAL_RANK`` is used.
        follow_children: whether GPUs of child processes are used by this run. They are not if
            the child processes are ranks, which measure their own GPUs.
    """

    name = "NVIDIA GPU"

    def __init__(
        self, clock: Clock, used_ordinals: Sequence[int] | None, *, follow_children: bool = True
    ) -> None:
        self._clock = clock
        self._ordinals = used_ordinals
        self._follow_children = follow_children
        self._environment = dict(os.environ)
        self._at_close = ExitStack()
        self._nvml: Any = None
        self._cards: tuple[GpuInfo, ...] = ()
        self._visible: tuple[GpuInfo, ...] | None = None
        self._used: set[GpuInfo] = set()
        self._foreign_pids: set[int] = set()
        self._refused: set[str] = set()
        self._looked_s = -math.inf
        self._found = DiscoveredSources()

    @property
    def interval_s(self) -> float:
        """Seconds to the next common reading moment (``schedule``)."""
        return until_reading_s(self._clock.monotonic_s())

    def open(self) -> Sequence[Channel]:
        """Initialise NVML and list the cards; there are no channels.

        Raises:
            SourceUnavailable: if NVML lists no card, or if the run uses no GPU.
        """
        try:
            self._nvml = self._at_close.enter_context(session())
            self._cards = all_cards()
        except SourceUnavailable as error:
            if self._ordinals or cuda_driver.active_ordinals():
                logger.warning("the energy of GPUs is not measured: %s", error)
            raise
        if self._ordinals is not None and not self._ordinals:
            raise SourceUnavailable("this run uses no GPU", _ALL_THE_SAME)
        return ()

    def read(self) -> Sequence[Reading]:
        """Look for GPUs that the run has begun to use; there are no readings."""
        since_s, self._looked_s = self._looked_s, self._clock.monotonic_s()
        driver = cuda_driver.uuids()
        self._list_visible(driver)
        choices = (*self._of_contexts(driver), *self._of_processes())
        new = [choice for choice in choices if choice.gpu not in self._used]
        self._used |= {choice.gpu for choice in new}
        sources = tuple(NvmlSource(self._clock, *uuids) for uuids in one_per_card(new))
        self._found = replace(self._found, sources=sources, since_s=since_s)
        return ()

    def finish(self) -> Sequence[Reading]:
        """Look a last time, and report if no GPU was ever in use."""
        self.read()
        if not self._used and not self._refused:
            self._report(self.name, "no GPU was seen in use by this run", _ALL_THE_SAME)
        return ()

    def found(self) -> DiscoveredSources:
        """See ``FindingSource``."""
        found, self._found = self._found, DiscoveredSources()
        return found

    def close(self) -> None:
        """See ``Source.close``."""
        self._at_close.close()

    def _report(self, name: str, reason: str, fix: str) -> None:
        entries = (*self._found.unavailable, (name, reason, fix))
        self._found = replace(self._found, unavailable=entries)

    def _list_visible(self, driver: Sequence[str] | None) -> None:
        """Report the visible GPUs once; the report leaves out those that are measured later."""
        if self._visible is not None:
            return
        try:
            choices = self._in_use(None, driver)
        except SourceUnavailable:
            return  # the mask is ambiguous; the CUDA driver may list the devices later
        self._visible = tuple(dict.fromkeys(choice.gpu for choice in choices))
        for gpu in self._visible:
            self._report(gpu.key, f"{gpu.name}: visible to this run, but not used by it", "")

    def _of_contexts(self, driver: Sequence[str] | None) -> Sequence[GpuChoice]:
        """Return the GPUs that the framework uses or on which this process has a context."""
        ordinals = self._used_ordinals(driver)
        try:
            return self._in_use(ordinals, driver) if ordinals else ()
        except SourceUnavailable as error:
            if error.reason not in self._refused:
                self._refused.add(error.reason)
                self._report(self.name, error.reason, error.fix)
                logger.warning("the energy of GPUs is not measured: %s", error)
            self._cards = all_cards()  # a card may have come back
            return ()

    def _in_use(
        self, ordinals: Sequence[int] | None, driver: Sequence[str] | None
    ) -> Sequence[GpuChoice]:
        return in_use(ordinals, self._cards, environment=self._environment, driver=driver)

    def _used_ordinals(self, driver: Sequence[str] | None) -> tuple[int, ...]:
        active = cuda_driver.active_ordinals()
        if self._ordinals is not None:
            return tuple(dict.fromkeys((*self._ordinals, *active)))
        local_rank = self._environment.get("LOCAL_RANK", "")
        if active or not local_rank.isdecimal():
            return active
        is_visible = driver is None or int(local_rank) < len(driver)
        return (int(local_rank),) if is_visible else ()

    def _of_processes(self) -> list[GpuChoice]:
        """Return the cards that this process or one of its descendants uses."""
        unused = [gpu for gpu in self._cards if gpu not in self._used]
        pids = {gpu: pids_on(self._nvml, gpu.uuid) for gpu in unused}
        listed = set().union(*pids.values())
        ours = {pid for pid in listed - self._foreign_pids if self._is_ours(pid)}
        self._foreign_pids = listed - ours
        return [
            GpuChoice(gpu, gpu.uuid)
            for gpu in unused
            if pids[gpu] & ours or (self._is_only_choice(gpu) and _has_hidden(pids[gpu]))
        ]

    def _is_ours(self, pid: int) -> bool:
        """Return whether a process is this process, or a descendant whose GPUs count."""
        import psutil

        if pid == os.getpid():
            return True
        if not self._follow_children:
            return False
        try:
            return any(parent.pid == os.getpid() for parent in psutil.Process(pid).parents())
        except psutil.Error:  # it has ended, or it runs outside of this container
            return False

    def _is_only_choice(self, gpu: GpuInfo) -> bool:
        """Return whether no other GPU can be in use, and nothing says which GPU is."""
        return self._ordinals is None and self._visible == (gpu,)


def _has_hidden(pids: set[int]) -> bool:
    """Return whether the driver reports pids of the host, which are not valid in this container.

    It is then unknown whose they are: child processes of this process may be among them.
    """
    import psutil

    return not all(map(psutil.pid_exists, pids))


def all_cards() -> tuple[GpuInfo, ...]:
    """Return all cards of the machine.

    Raises:
        SourceUnavailable: if there is no driver, no permission or no card.
    """
    cards = inventory()
    if not cards:
        raise SourceUnavailable(
            "the NVIDIA driver lists no GPU",
            "start the container with GPUs (docker run --gpus all)",
        )
    return cards
