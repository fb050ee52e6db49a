from collections.abc import Mapping, Sequence

import pytest

from energy_callbacks.errors import SourceUnavailable
from energy_callbacks.sensing.devices import (
    GpuInfo,
    check_devices_argument,
    choose,
    resolve,
)


def card(
    index: int, *, bus: int | None = None, name: str = "NVIDIA H200", migs: int = 0
) -> GpuInfo:
    """A card whose UUID begins with its index eight times."""
    digits = f"{index:x}" * 8
    return GpuInfo(
        index=index,
        uuid=f"GPU-{digits}-0000-4000-8000-000000000000",
        name=name,
        pci_bus_id=f"00000000:{0x17 + (index if bus is None else bus):02X}:00.0",
        memory_total_bytes=141 * 2**30,
        compute_capability=(9, 0),
        mig_uuids=tuple(f"MIG-{digits}-0000-5000-8000-{i:012d}" for i in range(migs)),
    )


TWO = (card(0), card(1))
FOUR = tuple(card(index) for index in range(4))
# CUDA counts these from the fastest on, nvidia-smi by PCI bus.
UNLIKE = (card(0, name="Tesla T4"), card(1))
SPLIT = (card(0, migs=3),)
BOTH = (card(0, migs=3), card(1))
OTHER_BUS_ORDER = (card(0, bus=5), card(1, bus=2))


def mask(value: str, order: str | None = None) -> dict[str, str]:
    """An environment with this mask."""
    environment = {"CUDA_VISIBLE_DEVICES": value}
    return environment if order is None else {**environment, "CUDA_DEVICE_ORDER": order}


def indices(
    environment: Mapping[str, str], inventory: Sequence[GpuInfo], used: Sequence[int] | None = None
) -> list[int]:
    """NVML indices of the resolved cards."""
    return [choice.gpu.index for choice in resolve(environment, inventory, used)]


VISIBLE = [
    ({}, FOUR, [0, 1, 2, 3]),
    (mask("0"), FOUR, [0]),
    (mask("1,0"), FOUR, [1, 0]),
    (mask("3, 1"), FOUR, [3, 1]),
    (mask(" 2"), FOUR, [2]),
    (mask("+1"), FOUR, [1]),
    (mask("1gpu,2"), FOUR, [1, 2]),
    (mask("GPU-11111111-0000-4000-8000-000000000000"), FOUR, [1]),
    (mask("GPU-222"), FOUR, [2]),
    (mask("GPU-33333333,GPU-0"), FOUR, [3, 0]),
    (mask(""), FOUR, []),
    (mask("-1"), FOUR, []),
    (mask("none"), FOUR, []),
    (mask("NoDevFiles"), FOUR, []),
    (mask("0,2,-1,1"), FOUR, [0, 2]),
    (mask("0,7,1"), TWO, [0]),
    (mask("7,0"), TWO, []),
    (mask("0,,1"), TWO, [0]),
    (mask("0,0"), TWO, []),
    (mask("GPU-0,GPU-00"), TWO, []),
    (mask("GPU-1,GPU-9,GPU-0"), TWO, [1]),
    (mask("GPU-"), TWO, []),
    (mask("GPU-1,-1"), TWO, [1]),
    (mask("1", "PCI_BUS_ID"), UNLIKE, [1]),
    (mask("1,0", "PCI_BUS_ID"), UNLIKE, [1, 0]),
    (mask("GPU-1"), UNLIKE, [1]),
    ({}, UNLIKE, [0, 1]),
    (mask("0", "PCI_BUS_ID"), OTHER_BUS_ORDER, [1]),
]


@pytest.mark.parametrize(("environment", "inventory", "expected"), VISIBLE)
def test_mask_shows_these_cards(
    environment: dict[str, str], inventory: Sequence[GpuInfo], expected: list[int]
) -> None:
    """The masks are read as CUDA reads them, in CUDA's order."""
    assert indices(environment, inventory) == expected


@pytest.mark.parametrize(
    ("environment", "used", "expected"),
    [
        ({}, (2,), [2]),
        ({}, (0, 3), [0, 3]),
        ({}, (), []),
        (mask("3,1"), (0,), [3]),
        (mask("3,1"), (1,), [1]),
        (mask("GPU-2,GPU-0"), (1, 0), [0, 2]),
    ],
)
def test_ordinals_count_within_the_mask(
    environment: dict[str, str], used: Sequence[int], expected: list[int]
) -> None:
    """Device 0 of the process is the first card of the mask, not of the machine."""
    assert indices(environment, FOUR, used) == expected


@pytest.mark.parametrize(
    ("environment", "inventory", "used", "what"),
    [
        (mask("0"), UNLIKE, None, "PCI_BUS_ID"),
        (mask("0", "FASTEST_FIRST"), UNLIKE, None, "PCI_BUS_ID"),
        ({}, UNLIKE, (0,), "PCI_BUS_ID"),
        (mask("0,GPU-1"), TWO, None, "mixes"),
        (mask("GPU-1,0"), TWO, None, "mixes"),
        (mask(f"{BOTH[0].mig_uuids[0]},GPU-1"), BOTH, None, "mixes"),
        (mask("0"), TWO, (1,), "CUDA device 1 is in use"),
        ({}, TWO, (2,), "CUDA device 2 is in use"),
        ({}, TWO, (-1,), "CUDA device -1 is in use"),
        (mask(""), TWO, (0,), "shows no GPU"),
        (mask("-1"), TWO, (0,), "shows no GPU"),
        ({}, BOTH, (0,), "MIG"),
        (mask("1,0"), BOTH, (0,), "MIG"),
        (mask("GPU-0,GPU-1"), BOTH, None, "MIG"),
    ],
)
def test_doubt_is_refused(
    environment: dict[str, str], inventory: Sequence[GpuInfo], used: Sequence[int], what: str
) -> None:
    """Where the masks leave a doubt, the answer is a refusal that says what to do, not a guess."""
    with pytest.raises(SourceUnavailable, match=what) as refusal:
        resolve(environment, inventory, used)
    assert refusal.value.fix


def test_refusal_says_what_to_set() -> None:
    """The refusal for unlike cards names the variable that ends the doubt."""
    with pytest.raises(SourceUnavailable) as refusal:
        resolve(mask("0"), UNLIKE)

    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in refusal.value.fix
    assert "FASTEST_FIRST" in refusal.value.reason


@pytest.mark.parametrize(
    "name",
    [
        "MIG-00000000-0000-5000-8000-000000000001",
        "MIG-GPU-00000000-0000-4000-8000-000000000000/2/0",
    ],
)
def test_mig_instance(name: str) -> None:
    """A MIG instance, named in the new or the old form, is its card with the instance's name."""
    (choice,) = resolve(mask(name), BOTH)

    assert choice.gpu is BOTH[0]
    assert choice.uuid == name


@pytest.mark.parametrize("environment", [{}, mask("0"), mask("GPU-0")])
@pytest.mark.parametrize("used", [(0,), (1,), (0, 2)])
def test_every_ordinal_of_a_split_card_is_that_card(
    environment: dict[str, str], used: Sequence[int]
) -> None:
    """Where the only visible card is split, each device of the process is on that card."""
    assert indices(environment, SPLIT, used) == [0]


# --- choose


def test_choose_auto_follows_the_mask() -> None:
    """Automatically chosen is the card behind the ordinal in use."""
    chosen = choose("auto", FOUR, used_ordinals=(1,), environment=mask("3,2"))

    assert chosen == (FOUR[2].uuid,)


def test_choose_auto_believes_the_driver() -> None:
    """What the driver says goes before the mask, also on unlike cards."""
    driver = (UNLIKE[1].uuid[4:], UNLIKE[0].uuid[4:])

    chosen = choose("auto", UNLIKE, used_ordinals=(0,), environment={}, driver=driver)

    assert chosen == (UNLIKE[1].uuid,)


def test_choose_auto_knows_the_drivers_mig_instance() -> None:
    """A MIG instance that the driver names is opened by its own UUID."""
    chosen = choose("auto", BOTH, environment={}, driver=(BOTH[0].mig_uuids[1][4:],))

    assert chosen == (BOTH[0].mig_uuids[1],)


def test_choose_refuses_a_card_that_nvml_does_not_list() -> None:
    """A card that CUDA uses and NVML does not list cannot be measured, and that is said."""
    with pytest.raises(SourceUnavailable, match="NVML does not list"):
        choose("auto", TWO, environment={}, driver=("99999999-0000-4000-8000-000000000000",))


def test_choose_refuses_an_ordinal_that_the_driver_does_not_list() -> None:
    """An ordinal beyond the driver's list is refused."""
    with pytest.raises(SourceUnavailable, match="CUDA device 1 is in use"):
        choose("auto", TWO, used_ordinals=(1,), environment={}, driver=(TWO[0].uuid[4:],))


def test_choose_all_ignores_masks() -> None:
    """``all`` is every card that NVML lists."""
    assert choose("all", TWO, environment=mask("1")) == (TWO[0].uuid, TWO[1].uuid)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([1], (TWO[1].uuid,)),
        ([1, 0], (TWO[1].uuid, TWO[0].uuid)),
        ([TWO[0].uuid], (TWO[0].uuid,)),
        (["GPU-1"], (TWO[1].uuid,)),
        ([0, "GPU-0", 0], (TWO[0].uuid,)),
    ],
)
def test_choose_named(devices: list[int | str], expected: tuple[str, ...]) -> None:
    """Indices are those of nvidia-smi whatever the mask, and each card is taken once."""
    assert choose(devices, TWO, environment=mask("1")) == expected


def test_choose_two_instances_of_one_card() -> None:
    """Two MIG instances of one card are one card: its energy is not counted twice."""
    chosen = choose(list(SPLIT[0].mig_uuids[:2]), SPLIT)

    assert chosen == (SPLIT[0].uuid,)


@pytest.mark.parametrize("device", [7, "GPU-9", "MIG-1", "GPU-"])
def test_choose_unknown_card(device: int | str) -> None:
    """A card that is not there, or not named beyond doubt, is refused with those that are."""
    with pytest.raises(ValueError, match=r"this machine has 0 .*, 1 .*nvidia-smi -L"):
        choose([device], TWO)


def test_wrong_index_is_named() -> None:
    """The message for a wrong index repeats it."""
    with pytest.raises(ValueError, match="no GPU with index 7"):
        choose([7], TWO)


@pytest.mark.parametrize("devices", [[-1], [], "cuda:0", 0])
def test_argument_that_is_wrong_anywhere(devices: object) -> None:
    """A negative index, an empty list or an unknown word is wrong without looking at a machine."""
    with pytest.raises(ValueError, match="device"):
        check_devices_argument(devices)  # type: ignore[arg-type]


@pytest.mark.parametrize("devices", [[0.5], [True], [None]])
def test_argument_of_a_wrong_type(devices: object) -> None:
    """A device that is neither an index nor a UUID is a wrong type."""
    with pytest.raises(TypeError, match="index or a UUID"):
        check_devices_argument(devices)  # type: ignore[arg-type]


def test_torch_reads_index_masks_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by torch itself, every mask of indices names the same cards."""
    pytest.importorskip("torch")
    from torch.cuda import _parse_visible_devices

    compared = 0
    for environment, inventory, expected in VISIBLE:
        value = environment.get("CUDA_VISIBLE_DEVICES")
        if value is None or "GPU-" in value or inventory is OTHER_BUS_ORDER:
            continue
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
        seen = _parse_visible_devices()
        there = [index in range(len(inventory)) for index in seen]
        visible = seen[: there.index(False)] if False in there else seen
        assert visible == expected, value
        compared += 1
    assert compared > 12
