"""Every mask, read by ``resolve`` and by a meter that counts the joules of the cards behind it."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.report import EnergyReport, build
from energy_callbacks.sensing.frameworks import cuda_driver, loaded_frameworks
from energy_callbacks.sensing.gpus.devices import GpuChoice, GpuInfo, resolve
from tests.fake_nvml import Card, Constant, FakeNvml, Scenario, fixtures, ideal
from tests.fake_nvml.presets import numbered
from tests.fake_nvml.test_fake_card import CardClock

fake_nvml = fixtures.fake_nvml
Play = Callable[..., FakeNvml]
RUN_S = 4.0


card = partial(numbered, ideal)

TWO = (card(0), card(1))
# CUDA counts these from the fastest on, nvidia-smi by PCI bus.
UNLIKE = (card(0, name="Tesla T4"), card(1))
SPLIT = (card(0, parts=2),)
SPLIT_AND_WHOLE = (card(0, parts=3), card(1))
NAMES = {"TWO": TWO, "UNLIKE": UNLIKE, "SPLIT": SPLIT, "SPLIT_AND_WHOLE": SPLIT_AND_WHOLE}
FIRST, SECOND = (str(card(index).uuid) for index in (0, 1))
PART, OTHER_PART = (mig.uuid for mig in SPLIT_AND_WHOLE[0].mig_instances[:2])


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mask with the NVML indices of CUDA's devices under it, or why they are unknown."""

    mask: str | None = None
    order: str | None = None
    rocm: Mapping[str, str] = field(default_factory=dict)
    cards: tuple[Card, ...] = TWO
    shows: tuple[int, ...] = ()
    refused: str = ""

    def environment(self) -> dict[str, str]:
        cuda = {"CUDA_VISIBLE_DEVICES": self.mask, "CUDA_DEVICE_ORDER": self.order}
        return {key: value for key, value in cuda.items() if value is not None} | dict(self.rocm)

    def __str__(self) -> str:
        set_to = " ".join(f"{key}={value}" for key, value in self.environment().items())
        machine = next(name for name, cards in NAMES.items() if cards is self.cards)
        return f"{set_to or 'no mask'} on {machine}"


CASES = (
    Case(shows=(0, 1)),
    Case(mask="0", shows=(0,)),
    Case(mask="1", shows=(1,)),
    Case(mask="1,0", shows=(1, 0)),
    Case(mask="0,1", shows=(0, 1)),
    # UUIDs
    Case(mask=SECOND, shows=(1,)),
    Case(mask="GPU-1", shows=(1,)),
    Case(mask=f"{SECOND},{FIRST}", shows=(1, 0)),
    Case(mask="GPU-1,GPU-0", shows=(1, 0)),
    Case(mask="GPU-", refused="shows no GPU"),
    Case(mask="GPU-9", refused="shows no GPU"),
    # mixed
    Case(mask=f"0,{SECOND}", refused="mixes"),
    Case(mask=f"{SECOND},0", refused="mixes"),
    Case(mask=f"{PART},{SECOND}", cards=SPLIT_AND_WHOLE, refused="mixes"),
    # MIG
    Case(mask=PART, cards=SPLIT_AND_WHOLE, shows=(0,)),
    Case(mask=f"{PART},{OTHER_PART}", cards=SPLIT_AND_WHOLE, shows=(0, 0)),
    Case(mask=f"MIG-{FIRST}/1/0", cards=SPLIT_AND_WHOLE, shows=(0,)),
    Case(mask=SECOND, cards=SPLIT_AND_WHOLE, shows=(1,)),
    Case(mask="MIG-9", cards=SPLIT_AND_WHOLE, refused="shows no GPU"),
    Case(mask="0", cards=SPLIT, shows=(0,)),
    Case(cards=SPLIT, shows=(0,)),
    Case(cards=SPLIT_AND_WHOLE, refused="MIG is on"),
    Case(mask="1,0", cards=SPLIT_AND_WHOLE, refused="MIG is on"),
    # nothing, or more than there is
    Case(mask="", refused="shows no GPU"),
    Case(mask="-1", refused="shows no GPU"),
    Case(mask="NoDevFiles", refused="shows no GPU"),
    Case(mask="7", refused="shows no GPU"),
    Case(mask="0,7", shows=(0,)),
    Case(mask="0,-1,1", shows=(0,)),
    Case(mask="0,0", refused="shows no GPU"),
    Case(mask=f"{SECOND},{SECOND}", refused="shows no GPU"),
    # the order in which CUDA counts
    Case(order="PCI_BUS_ID", shows=(0, 1)),
    Case(order="FASTEST_FIRST", shows=(0, 1)),
    Case(order="PCI_BUS_ID", cards=UNLIKE, shows=(0, 1)),
    Case(order="PCI_BUS_ID", mask="1", cards=UNLIKE, shows=(1,)),
    Case(order="FASTEST_FIRST", cards=UNLIKE, refused="CUDA orders different cards"),
    Case(order="FASTEST_FIRST", mask="1", cards=UNLIKE, refused="CUDA orders different cards"),
    Case(mask="1", cards=UNLIKE, refused="CUDA orders different cards"),
    Case(order="FASTEST_FIRST", mask=SECOND, cards=UNLIKE, shows=(1,)),
    # ROCm's masks speak of AMD cards
    Case(rocm={"ROCR_VISIBLE_DEVICES": "1"}, shows=(0, 1)),
    Case(rocm={"HIP_VISIBLE_DEVICES": "1"}, shows=(0, 1)),
    Case(rocm={"ROCR_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "-1"}, shows=(0, 1)),
    Case(mask="1", rocm={"HIP_VISIBLE_DEVICES": "0"}, shows=(1,)),
)
EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=str)


def listed(cards: Sequence[Card]) -> tuple[GpuInfo, ...]:
    """The cards as NVML's inventory gives them."""
    return tuple(
        GpuInfo(
            index=index,
            uuid=str(one.uuid),
            name=one.name,
            pci_bus_id=f"00000000:{0x17 + index:02X}:00.0",
            memory_total_bytes=one.memory_total_bytes,
            compute_capability=one.compute_capability,
            mig_uuids=tuple(mig.uuid for mig in one.mig_instances),
        )
        for index, one in enumerate(cards)
    )


@EVERY_CASE
def test_resolve(case: Case) -> None:
    """The devices of the process are the cards of the mask, or an error is raised."""
    inventory = listed(case.cards)
    if case.refused:
        with pytest.raises(SourceUnavailable, match=case.refused) as refusal:
            resolve(case.environment(), inventory, (0,))
        assert refusal.value.fix
        return
    ordinals = tuple(range(len(case.shows)))
    assert indices(resolve(case.environment(), inventory, ordinals)) == case.shows
    for ordinal in ordinals:
        only = resolve(case.environment(), inventory, (ordinal,))
        assert indices(only) == (case.shows[ordinal],)


def indices(choices: Sequence[GpuChoice]) -> tuple[int, ...]:
    """NVML's indices of the cards."""
    return tuple(choice.gpu.index for choice in choices)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No masks, and no CUDA in this process."""
    for variable in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LOCAL_RANK"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(cuda_driver, "uuids", lambda: None)
    monkeypatch.setattr(cuda_driver, "active_ordinals", lambda: ())


def measured(
    nvml: FakeNvml, folder: Path, used_gpus: Sequence[int] | None, **settings: object
) -> EnergyReport:
    """The report of a training of four seconds."""
    clock = CardClock(nvml.time)
    config = EnergyConfig(report_dir=folder, **settings)  # type: ignore[arg-type]
    meter = EnergyMeter(config=config, clock=clock)._start(used_gpus=used_gpus)
    with meter.phase("train"):
        for _ in range(round(RUN_S / 0.1)):
            clock.advance(0.1)
            meter.step()
    meter.stop()
    return build(folder)


def counted_w(report: EnergyReport) -> dict[str, float]:
    """Mean power behind the joules of each card in the report, by its key."""
    return {
        device.key: round((device.energy.energy_j or 0.0) / report.run.duration_s, -1)
        for device in report.devices
        if device.scope == "gpu"
    }


@EVERY_CASE
def test_joules(
    case: Case, fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The joules in the report are those of the cards behind the mask, each once, or a refusal."""
    for variable, value in case.environment().items():
        monkeypatch.setenv(variable, value)
    nvml = fake_nvml(Scenario(cards=case.cards))
    report = measured(nvml, tmp_path, tuple(range(len(case.shows))) or (0,))

    truth_w = {f"gpu{index}": 100.0 * (index + 1) for index in case.shows}
    assert counted_w(report) == truth_w
    if case.refused:
        assert report.energy.gpu.energy_j is None
        assert any(case.refused in warning.message for warning in report.warnings)
    else:
        assert report.energy.gpu.energy_j == pytest.approx(
            sum(truth_w.values()) * report.run.duration_s, rel=0.02
        )


@pytest.mark.parametrize("ordinal", [0, 1])
def test_joules_of_one_device_of_two(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordinal: int
) -> None:
    """Under ``1,0`` device 0 is card 1: a run on one of two visible cards counts that one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    report = measured(fake_nvml(Scenario(cards=TWO)), tmp_path, (ordinal,))

    index = (1, 0)[ordinal]
    assert counted_w(report) == {f"gpu{index}": 100.0 * (index + 1)}


def test_ordinal_beyond_the_mask(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``0,7`` on two cards shows one: a run that claims to use a second is refused one."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,7")
    report = measured(fake_nvml(Scenario(cards=TWO)), tmp_path, (1,))

    assert counted_w(report) == {}
    assert any("CUDA device 1 is in use" in warning.message for warning in report.warnings)


def test_awake_driver_ends_the_doubt(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With different cards, the driver's list determines device 0."""
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.setattr(cuda_driver, "uuids", lambda: (SECOND[4:], FIRST[4:]))
    report = measured(fake_nvml(Scenario(cards=UNLIKE)), tmp_path, (0,))

    assert counted_w(report) == {"gpu1": 200.0}


# --- what is read more finely than by whole cards


def info(index: int, *, bus: int) -> GpuInfo:
    """A card on this PCI bus."""
    return GpuInfo(
        index=index,
        uuid=str(card(index).uuid),
        name="NVIDIA H200",
        pci_bus_id=f"00000000:{bus:02X}:00.0",
        memory_total_bytes=2**37,
        compute_capability=(9, 0),
    )


FOUR = tuple(info(index, bus=index) for index in range(4))
WRITTEN = (
    ("0", (0,)),
    ("3, 1", (3, 1)),
    (" 2", (2,)),
    ("+1", (1,)),
    ("1gpu,2", (1, 2)),
    ("0,2,-1,1", (0, 2)),
    ("0,7,1", (0,)),
    ("7,0", ()),
    ("0,,1", (0,)),
    ("0,0", ()),
    ("none", ()),
    ("", ()),
    ("-1", ()),
    ("NoDevFiles", ()),
    ("GPU-30000000,GPU-0", (3, 0)),
    ("GPU-0,GPU-00", ()),
    ("GPU-1,GPU-9,GPU-0", (1,)),
    ("GPU-1,-1", (1,)),
)


@pytest.mark.parametrize(("mask", "shows"), WRITTEN)
def test_mask_as_it_is_written(mask: str, shows: tuple[int, ...]) -> None:
    """Blanks, signs, letters after digits and invalid entries are parsed as by CUDA."""
    assert indices(resolve({"CUDA_VISIBLE_DEVICES": mask}, FOUR)) == shows


def test_torch_reads_masks_of_indices_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's own parser finds the same cards for every mask of indices."""
    pytest.importorskip("torch")
    from torch.cuda import _parse_visible_devices

    of_indices = [(mask, shows) for mask, shows in WRITTEN if "GPU-" not in mask]
    assert len(of_indices) > 12
    for mask, shows in of_indices:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
        seen = _parse_visible_devices()
        there = [index in range(len(FOUR)) for index in seen]
        visible = seen[: there.index(False)] if False in there else seen
        assert tuple(visible) == shows, mask


def test_indices_of_the_mask_follow_the_bus() -> None:
    """CUDA's order by PCI bus holds even where NVML's indices did not follow it."""
    mask = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    assert indices(resolve(mask, (info(0, bus=5), info(1, bus=2)))) == (1,)


def test_refusal_says_what_to_set() -> None:
    """The error for different cards names the variable to set."""
    with pytest.raises(SourceUnavailable) as refusal:
        resolve({"CUDA_VISIBLE_DEVICES": "0"}, listed(UNLIKE))

    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in refusal.value.fix
    assert "FASTEST_FIRST" in refusal.value.reason


@pytest.mark.parametrize("used", [(2,), (-1,)])
def test_ordinal_that_no_card_has(used: tuple[int, ...]) -> None:
    """An ordinal without a card is refused without a mask too."""
    with pytest.raises(SourceUnavailable, match=f"CUDA device {used[0]} is in use"):
        resolve({}, listed(TWO), used)


def test_no_device_in_use() -> None:
    """A run that uses no device needs no card, whatever the mask."""
    assert resolve({}, listed(TWO), ()) == ()
    assert resolve({"CUDA_VISIBLE_DEVICES": ""}, listed(TWO), ()) == ()


@pytest.mark.parametrize("name", [PART, f"MIG-{FIRST}/2/0"])
def test_mig_instance(name: str) -> None:
    """A MIG instance, named in the new or the old form, is its card with the instance's name."""
    inventory = listed(SPLIT_AND_WHOLE)
    (choice,) = resolve({"CUDA_VISIBLE_DEVICES": name}, inventory)

    assert (choice.gpu, choice.uuid) == (inventory[0], name)


@pytest.mark.parametrize("mask", [None, "0", "GPU-0"])
@pytest.mark.parametrize("used", [(0,), (1,), (0, 2)])
def test_every_ordinal_of_a_split_card_is_that_card(
    mask: str | None, used: tuple[int, ...]
) -> None:
    """If the only visible card is split, each device of the process is on that card."""
    environment = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}

    assert indices(resolve(environment, listed(SPLIT), used)) == (0,)


# --- AMD cards


@pytest.fixture
def on_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process computes through ROCm; CUDA_VISIBLE_DEVICES is the mask of its AMD cards."""
    monkeypatch.setattr(loaded_frameworks, "is_hip_loaded", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")


@pytest.mark.usefixtures("on_rocm")
@pytest.mark.parametrize("cards", [(), TWO], ids=["no NVIDIA card", "NVIDIA cards beside"])
@pytest.mark.parametrize("used", [None, (0,)])
def test_training_on_amd(
    fake_nvml: Play,
    tmp_path: Path,
    cards: tuple[Card, ...],
    used: tuple[int, ...] | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Under ROCm no NVIDIA card is taken for the AMD card in use, and its energy is not 0 J."""
    report = measured(fake_nvml(Scenario(cards=cards)), tmp_path, used)

    assert counted_w(report) == {}
    assert report.energy.gpu.energy_j is None
    (warning,) = [one for one in report.warnings if "AMD GPU" in one.message]
    assert "the figures do not include them" in warning.message
    assert "devices=" in warning.fix
    assert "the figures do not include them" in caplog.text


@pytest.mark.usefixtures("on_rocm")
def test_named_card_beside_amd(fake_nvml: Play, tmp_path: Path) -> None:
    """Under ROCm a named NVIDIA card is measured, and the report mentions the AMD cards."""
    report = measured(fake_nvml(Scenario(cards=TWO)), tmp_path, (0,), devices=[1])

    assert counted_w(report) == {"gpu1": 200.0}
    assert any("AMD GPU" in warning.message for warning in report.warnings)


@pytest.mark.usefixtures("on_rocm")
def test_cpu_run_on_rocm(fake_nvml: Play, tmp_path: Path) -> None:
    """A run on the CPU mentions no AMD card."""
    report = measured(fake_nvml(Scenario(cards=TWO)), tmp_path, ())

    assert not [warning for warning in report.warnings if "AMD GPU" in warning.message]


# --- the whole card is told as what it is


def pages(report: EnergyReport, folder: Path) -> dict[str, str]:
    """What ``save`` writes, by file name."""
    from energy_callbacks.report import save

    save(report, folder)
    return {path.name: path.read_text() for path in folder.glob("energy_report.*")}


@pytest.mark.parametrize(
    ("masked", "sentence"),
    [
        ((PART, (0,)), "whole card: 1 of its 3 MIG instances is used by this run"),
        (
            (f"{PART},{OTHER_PART}", (0, 1)),
            "whole card: 2 of its 3 MIG instances are used by this run",
        ),
        (
            (f"{PART},{OTHER_PART}", (1,)),
            "whole card: 1 of its 3 MIG instances is used by this run",
        ),
        ((FIRST, (0,)), "whole card: shared by its 3 MIG instances"),
    ],
    ids=["one", "two", "one of two", "the card"],
)
def test_report_says_whose_card_it_is(
    fake_nvml: Play,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    masked: tuple[str, tuple[int, ...]],
    sentence: str,
) -> None:
    """Page, text and JSON say how many instances of a split card are this run's."""
    mask, used = masked
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    report = measured(fake_nvml(Scenario(cards=SPLIT_AND_WHOLE)), tmp_path, used)

    (device,) = (device for device in report.devices if device.scope == "gpu")
    assert device.notes == (sentence,)
    shown = pages(report, tmp_path)
    assert sorted(shown) == ["energy_report.html", "energy_report.json", "energy_report.txt"]
    assert all(sentence in page for page in shown.values())


def test_ranks_on_two_instances_of_a_card(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks on an instance each of one card: its energy counts once, two instances are ours."""
    nvml = fake_nvml(Scenario(cards=SPLIT_AND_WHOLE))
    clock = CardClock(nvml.time)
    meters = []
    for rank, part in enumerate((PART, OTHER_PART)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", part)
        meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), clock=clock)
        process = TrainingProcess(rank=rank, local_rank=rank, world_size=2, local_world_size=2)
        meters.append(meter._start(process=process, used_gpus=(0,)))
    clock.advance(RUN_S)
    for meter in meters:
        meter.stop()
    report = build(tmp_path)

    (device,) = (device for device in report.devices if device.scope == "gpu")
    assert device.notes == ("whole card: 2 of its 3 MIG instances are used by this run",)
    assert counted_w(report) == {"gpu0": 100.0}


def test_report_names_other_processes(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page, text and JSON name the processes that a card is shared with."""
    from tests.fake_nvml.scenario import Process as OnCard

    monkeypatch.setattr(
        "energy_callbacks.sensing.sources.nvidia.source._family", lambda _: {os.getpid()}
    )
    processes = tuple(OnCard(pid=pid, used_bytes=1) for pid in (os.getpid(), os.getppid()))
    shared = ideal(Constant(100.0), processes=processes)
    report = measured(fake_nvml(Scenario(cards=(shared,))), tmp_path, (0,))

    sentence = f"shared card: in use by other processes too: {os.getppid()}"
    assert all(sentence in page for page in pages(report, tmp_path).values())
