"""What ``powercap status`` prints: settings of GPUs, who has changed them, what can change them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from energy_callbacks.cli.common.messages import logger
from energy_callbacks.cli.common.tables import print_table
from energy_callbacks.core import formatting
from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators import choose
from energy_callbacks.powercap.actuators.protocol import Probe
from energy_callbacks.powercap.safety.state_file import StateFile
from energy_callbacks.powercap.settings import GPU_KNOBS, Knob, KnobRange, Setting
from energy_callbacks.sensing.gpus.devices import GpuInfo

ACTUATORS: Final = ("nvml", "zeusd", "nvidia-smi", "hwmon")
"""Actuators that change the card. The others change nothing, or act in a training only."""

_PERMITTED: Final = {True: "yes", False: "no", None: "perhaps"}
_LIMITS: Final = ("limit W", "default W", "lowest W", "highest W")
_COLUMNS: Final = ("GPU", *_LIMITS, "SM MHz", "steps", "changed by us")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedChange:
    """A setting that energy_callbacks has changed and not restored yet.

    Attributes:
        knob: the knob.
        found: value before the change; ``None`` if it was not known, as for clocks.
        value: value that was written last.
        by: ``set`` for the command ``powercap set``, ``job`` for a training or a sweep.
        pid: id of the process that changed it.
        is_running: whether that process is running.
    """

    knob: Knob
    found: float | None
    value: float | None
    by: Literal["set", "job"]
    pid: int
    is_running: bool

    def __str__(self) -> str:
        """Return who has changed the setting, and how it is restored."""
        now = Setting(knob=self.knob, value=self.value)
        found = Setting(knob=self.knob, value=self.found)
        command = "energy-callbacks powercap restore"
        if self.by == "set":
            who = f"powercap set; {command} restores {found}"
        elif self.is_running:
            who = f"process {self.pid}, which restores {found} at its end"
        else:
            who = f"process {self.pid}, which has ended; {command} restores {found}"
        return f"{now} was set by {who}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CardStatus:
    """The settings of a GPU.

    Attributes:
        index: NVML's index.
        uuid: UUID.
        name: product name.
        settings: accepted and present values, by knob.
        unsupported: why a knob is missing in ``settings``, by knob.
        changes: what energy_callbacks has changed and not restored yet.
        actuators: what each actuator can do.
    """

    index: int
    uuid: str
    name: str
    settings: dict[Knob, KnobRange]
    unsupported: dict[Knob, str]
    changes: tuple[SavedChange, ...]
    actuators: tuple[Probe, ...]


def status(card: GpuInfo) -> CardStatus:
    """Read the settings of a GPU; nothing is written.

    Raises:
        PowerCapError: if its state file cannot be read.
    """
    settings: dict[Knob, KnobRange] = {}
    unsupported: dict[Knob, str] = {}
    reader = choose.actuator(ACTUATORS[0])
    for knob in GPU_KNOBS:
        try:
            settings[knob] = reader.range(card.uuid, knob)
        except ActuatorError as error:
            unsupported[knob] = str(error)
    return CardStatus(
        index=card.index,
        uuid=card.uuid,
        name=card.name,
        settings=settings,
        unsupported=unsupported,
        changes=tuple(_changes(card.uuid)),
        actuators=tuple(choose.actuator(name).probe(card.uuid) for name in ACTUATORS),
    )


def _changes(uuid: str) -> Iterator[SavedChange]:
    for kept in (False, True):
        card = StateFile(None, uuid, kept=kept).read()
        for change in () if card is None else card.changes:
            assert card is not None
            yield SavedChange(
                knob=change.knob,
                found=change.found,
                value=change.ours[-1],
                by="set" if kept else "job",
                pid=card.pid,
                is_running=card.is_running,
            )


def print_tables(found: Sequence[CardStatus]) -> None:
    """Print the settings of GPUs, and what each actuator can do."""
    if not found:
        return
    print_table(_COLUMNS, [_row(card) for card in found], _COLUMNS[1:])
    for card in found:
        for change in card.changes:
            print(f"{card.uuid}: {change}")
    for reason in dict.fromkeys(one for card in found for one in card.unsupported.values()):
        logger.info("%s", reason)
    gpus: dict[tuple[str, ...], list[str]] = {}  # GPUs with the same answer share a row
    for card in found:
        for one in card.actuators:
            row = (one.actuator, _PERMITTED[one.can_write], one.found, one.needs)
            gpus.setdefault(row, []).append(str(card.index))
    print()
    rows = [(",".join(numbers), *row) for row, numbers in gpus.items()]
    print_table(("GPU", "actuator", "permitted", "found", "needs"), rows)


def _row(card: CardStatus) -> tuple[str, ...]:
    limit, clock = card.settings.get("limit"), card.settings.get("clock")
    limits: tuple[float | None, ...] = (None,) * len(_LIMITS)
    if limit is not None:
        limits = (limit.present, limit.default, limit.lowest, limit.highest)
    return (
        f"{card.index} {formatting.one_line(card.name)}",
        *("-" if value is None else f"{value:g}" for value in limits),
        "-" if clock is None else f"{clock.lowest:g} to {clock.highest:g}",
        "-" if clock is None else str(len(clock.steps)),
        ", ".join(one.knob for one in card.changes) or "no",
    )
