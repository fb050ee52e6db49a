from collections.abc import Mapping, Sequence

import pytest

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.core.settings.checks import check_settings
from energy_callbacks.sensing.gpus.devices import (
    GpuInfo,
    choose,
    one_per_card,
    resolve,
)


def card(index: int, *, name: str = "NVIDIA H200", migs: int = 0) -> GpuInfo:
    """A card whose UUID starts with its index eight times."""
    digits = f"{index:x}" * 8
    return GpuInfo(
        index=index,
        uuid=f"GPU-{digits}-0000-4000-8000-000000000000",
        name=name,
        pci_bus_id=f"00000000:{0x17 + index:02X}:00.0",
        memory_total_bytes=141 * 2**30,
        compute_capability=(9, 0),
        mig_uuids=tuple(f"MIG-{digits}-0000-5000-8000-{i:012d}" for i in range(migs)),
    )


TWO = (card(0), card(1))
FOUR = tuple(card(index) for index in range(4))
UNLIKE = (card(0, name="Tesla T4"), card(1))
SPLIT = (card(0, migs=3),)
BOTH = (card(0, migs=3), card(1))


def mask(value: str, order: str | None = None) -> dict[str, str]:
    """An environment with this mask."""
    environment = {"CUDA_VISIBLE_DEVICES": value}
    return environment if order is None else {**environment, "CUDA_DEVICE_ORDER": order}


def used(
    inventory: Sequence[GpuInfo],
    ordinals: tuple[int, ...] = (0,),
    *,
    environment: Mapping[str, str] | None = None,
    driver: Sequence[str] | None = None,
) -> tuple[tuple[str, ...], ...]:
    """UUIDs of the cards and MIG instances in use, card by card."""
    choices = resolve(environment or {}, inventory, ordinals, driver)
    return tuple(one_per_card(choices).values())


def test_use_follows_the_mask() -> None:
    """The card of an ordinal is determined by the mask."""
    assert used(FOUR, (1,), environment=mask("3,2")) == ((FOUR[2].uuid,),)


def test_use_believes_the_driver() -> None:
    """The driver has precedence over the mask, also with different cards."""
    driver = (UNLIKE[1].uuid[4:], UNLIKE[0].uuid[4:])

    assert used(UNLIKE, driver=driver) == ((UNLIKE[1].uuid,),)
    assert [one.gpu for one in resolve({}, UNLIKE, driver=driver)] == [
        UNLIKE[1],
        UNLIKE[0],
    ]


def test_use_of_a_mig_instance_that_the_driver_names() -> None:
    """A MIG instance that the driver names is opened by its own UUID."""
    assert used(BOTH, driver=(BOTH[0].mig_uuids[1][4:],)) == ((BOTH[0].mig_uuids[1],),)


def test_card_that_nvml_does_not_list() -> None:
    """A card that CUDA uses and NVML does not list is refused with a reason."""
    with pytest.raises(SourceUnavailable, match="NVML does not list"):
        used(TWO, driver=("99999999-0000-4000-8000-000000000000",))


def test_ordinal_that_the_driver_does_not_list() -> None:
    """An ordinal beyond the driver's list is refused."""
    with pytest.raises(SourceUnavailable, match="CUDA device 1 is in use"):
        used(TWO, (1,), driver=(TWO[0].uuid[4:],))


def test_choose_all() -> None:
    """``all`` is every card that NVML lists."""
    assert choose("all", TWO) == {TWO[0]: (TWO[0].uuid,), TWO[1]: (TWO[1].uuid,)}


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
    """Indices are those of nvidia-smi, and each card is taken once."""
    assert tuple(choose(devices, TWO).values()) == tuple((uuid,) for uuid in expected)


def test_choose_two_instances_of_one_card() -> None:
    """Two MIG instances of one card are one card, which is not counted twice, and both named."""
    first, second, _ = SPLIT[0].mig_uuids

    assert choose([first, second, first], SPLIT) == {SPLIT[0]: (first, second)}


def test_choose_a_card_and_an_instance_of_it() -> None:
    """A card that is also named as a whole is measured as a whole."""
    assert choose([SPLIT[0].mig_uuids[0], 0], SPLIT) == {SPLIT[0]: (SPLIT[0].uuid,)}


@pytest.mark.parametrize("device", [7, "GPU-9", "MIG-1", "GPU-"])
def test_choose_unknown_card(device: int | str) -> None:
    """An unknown or ambiguous card is refused, and the message lists the existing ones."""
    with pytest.raises(ValueError, match=r"this machine has 0 .*, 1 .*energy-callbacks doctor"):
        choose([device], TWO)


def test_wrong_index_is_named() -> None:
    """The message for a wrong index repeats it."""
    with pytest.raises(ValueError, match="no GPU with index 7"):
        choose([7], TWO)


@pytest.mark.parametrize("devices", [[-1], [], "cuda:0", 0])
def test_argument_that_is_wrong_anywhere(devices: object) -> None:
    """A negative index, an empty list or an unknown word is refused on any machine."""
    with pytest.raises(ValueError, match="device"):
        check_settings(devices=devices)


@pytest.mark.parametrize("devices", [[0.5], [True], [None]])
def test_argument_of_a_wrong_type(devices: object) -> None:
    """A device that is neither an index nor a UUID is a wrong type."""
    with pytest.raises(TypeError, match="PCI address of a GPU"):
        check_settings(devices=devices)
