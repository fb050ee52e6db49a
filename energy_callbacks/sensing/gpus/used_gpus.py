"""Finds the GPUs that a run uses, at its start and while it runs.

``nvidia_finder`` looks for NVIDIA's cards, ``drm_finder`` for the GPUs of all other vendors, at
every common reading moment (``schedule``). This initialises no device.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final, Protocol

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.core.guard import logger
from energy_callbacks.core.records import Channel, Reading
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.gpus.devices import GpuInfo
from energy_callbacks.sensing.schedule import until_reading_s
from energy_callbacks.sensing.sources.protocol import DiscoveredSources, Source

_ALL_THE_SAME: Final = "pass devices=[0] or devices='all' to measure GPUs anyway"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownUse:
    """What is known about the GPUs of a run at its start.

    Attributes:
        devices: names of the devices that the framework uses, such as ``cuda:0`` or ``xpu:1``;
            empty if the run uses no GPU, ``None`` if not known.
        follow_children: whether GPUs of child processes are used by this run. They are not if the
            child processes are ranks, which measure their own GPUs.
        takes_visible: whether all visible GPUs count as used, except integrated ones, because
            another program is measured.
    """

    devices: Sequence[str] | None = None
    follow_children: bool = True
    takes_visible: bool = False

    def ordinals(self, kind: str) -> tuple[int, ...]:
        """Return the ordinals of the devices of one kind, such as ``xpu``."""
        named = (name.partition(":") for name in self.devices or ())
        return tuple(int(ordinal) for of_kind, _, ordinal in named if of_kind == kind)


Refuse = Callable[[SourceUnavailable], None]
"""Reports once why a GPU in use cannot be measured."""


class GpuFinder(Protocol):
    """Finds the GPUs of some vendors that a run uses; all calls are on one thread."""

    @property
    def name(self) -> str:
        """Name for messages, such as ``NVIDIA GPU``."""
        ...

    def open(self, at_close: ExitStack) -> None:
        """Prepare the search for GPUs.

        Args:
            at_close: closes at the end what this method opens.

        Raises:
            SourceUnavailable: if there are no GPUs.
        """
        ...

    def visible(self) -> Sequence[GpuInfo]:
        """Return the GPUs that this process can use.

        Raises:
            SourceUnavailable: if that is not known yet.
        """
        ...

    def used(self, measured: AbstractSet[GpuInfo], refuse: Refuse) -> Mapping[GpuInfo, Source]:
        """Return the sources of GPUs in use.

        Args:
            measured: GPUs that need not be found any more.
            refuse: called if a GPU in use cannot be measured.
        """
        ...


class UsedGpus:
    """A source without readings, which finds the sources of the GPUs that this run uses.

    Args:
        clock: clock of the source.
        finder: finds the GPUs in use, on the thread of this source, because that may take seconds.
        measured: GPUs found so far. Several sources of a run share the set.
        uses_none: whether the framework says that the run uses no GPU.
        reports_none: whether this source reports if the run has used no GPU by its end.
    """

    def __init__(
        self,
        clock: Clock,
        finder: GpuFinder,
        measured: set[GpuInfo],
        *,
        uses_none: bool = False,
        reports_none: bool = True,
    ) -> None:
        self.name = finder.name
        self._clock = clock
        self._finder = finder
        self._measured = measured
        self._uses_none = uses_none
        self._reports_none = reports_none
        self._at_close = ExitStack()
        self._has_listed = False
        self._refused: set[str] = set()
        self._looked_s = -math.inf
        self._found = DiscoveredSources()

    @property
    def interval_s(self) -> float:
        """Seconds to the next common reading moment (``schedule``)."""
        return until_reading_s(self._clock.monotonic_s())

    def open(self) -> Sequence[Channel]:
        """Prepare the search for GPUs; there are no channels.

        Raises:
            SourceUnavailable: if there are no GPUs, or if the run uses none.
        """
        self._finder.open(self._at_close)
        if self._uses_none:
            raise SourceUnavailable("this run uses no GPU", _ALL_THE_SAME)
        return ()

    def read(self) -> Sequence[Reading]:
        """Look for GPUs that the run has begun to use; there are no readings."""
        now_s = self._clock.monotonic_s()
        self._list_visible()
        new = self._finder.used(self._measured, self._refuse)
        self._measured.update(new)
        self._found = replace(self._found, sources=tuple(new.values()), since_s=self._looked_s)
        self._looked_s = now_s
        return ()

    def finish(self) -> Sequence[Reading]:
        """Look for GPUs a last time, and report if no GPU was ever in use."""
        self.read()
        if self._reports_none and not self._measured and not self._refused:
            self._report(self.name, "no GPU was seen in use by this run", _ALL_THE_SAME)
        return ()

    def found(self) -> DiscoveredSources:
        """See ``FindingSource``."""
        found, self._found = self._found, DiscoveredSources()
        return found

    def close(self) -> None:
        """See ``Source.close``."""
        self._at_close.close()

    def _list_visible(self) -> None:
        """Report the visible GPUs once; the report leaves out those that are measured later."""
        if self._has_listed:
            return
        try:
            visible = self._finder.visible()
        except SourceUnavailable:
            return  # it may be known later
        self._has_listed = True
        for gpu in visible:
            self._report(gpu.key, f"{gpu.name}: visible to this run, but not used by it", "")

    def _refuse(self, error: SourceUnavailable) -> None:
        """See ``Refuse``."""
        if error.reason not in self._refused:
            self._refused.add(error.reason)
            self._report(self.name, error.reason, error.fix)
            logger.warning("the energy of GPUs is not measured: %s", error)

    def _report(self, name: str, reason: str, fix: str) -> None:
        entries = (*self._found.unavailable, (name, reason, fix))
        self._found = replace(self._found, unavailable=entries)
