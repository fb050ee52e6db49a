"""Finds the NVIDIA cards that a run uses.

A card is used if the framework says so, if this process has an active primary CUDA context on it,
or if NVML lists this process or one of its descendants among the processes of the card.
"""

import os
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from typing import Any

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.core.guard import logger
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.frameworks import cuda_driver
from energy_callbacks.sensing.gpus.devices import GpuChoice, GpuInfo, one_per_card, resolve
from energy_callbacks.sensing.gpus.used_gpus import KnownUse, Refuse
from energy_callbacks.sensing.sources.nvidia.processes import pids_on
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource, inventory, session


class NvidiaFinder:
    """A ``GpuFinder`` of NVIDIA's cards.

    Args:
        clock: clock of the sources.
        known: what is known about the GPUs. If no device is known and this process has no CUDA
            context, the device whose ordinal is in the environment variable ``LOCAL_RANK`` is used.
    """

    name = "NVIDIA GPU"

    def __init__(self, clock: Clock, known: KnownUse) -> None:
        self._clock = clock
        self._known = known
        self._environment = dict(os.environ)
        self._nvml: Any = None
        self._cards: tuple[GpuInfo, ...] = ()
        self._visible: Sequence[GpuInfo] = ()
        self._foreign_pids: set[int] = set()

    def open(self, at_close: ExitStack) -> None:
        """Initialise NVML and list the cards.

        Raises:
            SourceUnavailable: if NVML lists no card.
        """
        try:
            self._nvml = at_close.enter_context(session())
            self._cards = all_cards()
        except SourceUnavailable as error:
            if self._known.ordinals("cuda") or cuda_driver.active_ordinals():
                logger.warning("the energy of GPUs is not measured: %s", error)
            raise

    def visible(self) -> Sequence[GpuInfo]:
        """Return the cards that CUDA shows to this process.

        Raises:
            SourceUnavailable: if the mask is ambiguous; the CUDA driver may list the devices later.
        """
        choices = resolve(self._environment, self._cards, driver=cuda_driver.uuids())
        self._visible = tuple(dict.fromkeys(choice.gpu for choice in choices))
        return self._visible

    def used(self, measured: AbstractSet[GpuInfo], refuse: Refuse) -> Mapping[GpuInfo, NvmlSource]:
        """See ``GpuFinder``."""
        choices = (*self._of_contexts(refuse), *self._of_processes(measured))
        new = one_per_card(choice for choice in choices if choice.gpu not in measured)
        return {gpu: NvmlSource(self._clock, *uuids) for gpu, uuids in new.items()}

    def _of_contexts(self, refuse: Refuse) -> Sequence[GpuChoice]:
        """Return the GPUs that the framework uses or on which this process has a context."""
        driver = cuda_driver.uuids()
        ordinals = None if self._known.takes_visible else self._used_ordinals(driver)
        try:
            if ordinals == ():
                return ()
            return resolve(self._environment, self._cards, ordinals, driver)
        except SourceUnavailable as error:
            refuse(error)
            self._cards = all_cards()  # a card may have come back
            return ()

    def _used_ordinals(self, driver: Sequence[str] | None) -> tuple[int, ...]:
        active = cuda_driver.active_ordinals()
        if self._known.devices is not None:
            return tuple(dict.fromkeys((*self._known.ordinals("cuda"), *active)))
        local_rank = self._environment.get("LOCAL_RANK", "")
        if active or not local_rank.isdecimal():
            return active
        is_visible = driver is None or int(local_rank) < len(driver)
        return (int(local_rank),) if is_visible else ()

    def _of_processes(self, measured: AbstractSet[GpuInfo]) -> list[GpuChoice]:
        """Return the cards that this process or one of its descendants uses."""
        unused = [gpu for gpu in self._cards if gpu not in measured]
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

        if pid == os.getpid() or not self._known.follow_children:
            return pid == os.getpid()
        try:
            return any(parent.pid == os.getpid() for parent in psutil.Process(pid).parents())
        except psutil.Error:  # it has ended, or it runs outside of this container
            return False

    def _is_only_choice(self, gpu: GpuInfo) -> bool:
        """Return whether no other GPU can be in use, and nothing says which GPU is."""
        return self._known.devices is None and self._visible == (gpu,)


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
