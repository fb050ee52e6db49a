"""Which GPU ``--gpu`` and ``--devices`` of ``energy-callbacks powercap`` name."""

import argparse
from collections.abc import Callable

import pytest

from energy_callbacks.cli.powercap import cards, open_bench
from energy_callbacks.core.errors import SourceUnavailable
from tests.fake_nvml import Constant, FakeNvml, Mig, Scenario, card_uuid, fixtures, h200

Play = Callable[[Scenario], FakeNvml]

fake_nvml = fixtures.fake_nvml

# A MIG instance of the second card: its name, and its name before driver 470.
PART, OLD_NAME = "MIG-00000000-0000-5000-8000-000000000000", f"MIG-{card_uuid(1)}/1/0"


@pytest.fixture(autouse=True)
def two_cards(fake_nvml: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provide two cards, of which the second has a MIG instance, and no mask."""
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.delenv(name, raising=False)
    instance = Mig(uuid=PART, gpu_instance=1)
    whole, split = h200(Constant(300.0)), h200(Constant(300.0), mig_instances=(instance,))
    fake_nvml(Scenario(cards=(whole, split)))


@pytest.mark.parametrize(
    ("mask", "name", "uuid"),
    [
        (card_uuid(0), "auto", card_uuid(0)),
        (PART, "auto", PART),
        ("", "auto", None),
        ("", "0", card_uuid(0)),
        ("", PART, PART),
        ("", OLD_NAME, OLD_NAME),
        ("", "cpu", None),
    ],
)
def test_device_of_a_bench(
    monkeypatch: pytest.MonkeyPatch, mask: str, name: str, uuid: str | None
) -> None:
    """``--gpu`` names a GPU or a MIG instance of any form; ``auto`` is the first visible GPU."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
    device = open_bench.device(name)

    assert device.uuid == uuid
    assert device.name == ("CPU" if uuid is None else "NVIDIA H200")


def test_bench_without_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a driver, ``auto`` is the CPU, and a named GPU is an error."""

    def refuse() -> None:
        raise SourceUnavailable("no driver", "install one")

    monkeypatch.setattr(open_bench, "inventory", refuse)
    assert open_bench.device("auto").uuid is None
    with pytest.raises(SourceUnavailable, match="no driver"):
        open_bench.device("0")


@pytest.mark.parametrize(
    ("devices", "indices"),
    [
        ("auto", [0]),
        (None, [0]),
        ("all", [0, 1]),
        ([1, 0], [0, 1]),
        ([PART], [1]),
        ([OLD_NAME], [1]),
    ],
)
def test_cards(monkeypatch: pytest.MonkeyPatch, devices: object, indices: list[int]) -> None:
    """``--devices`` names cards, also by their instances; without it, they are the visible ones."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", card_uuid(0))
    found = cards.of_arguments(argparse.Namespace(devices=devices))

    assert [card.index for card in found] == indices
