"""No sum counts an energy twice, and the total is the whole machine if that is measured."""

import pytest

from energy_callbacks.sensing.scopes import SCOPES, Part, containers, in_sum

JETSON = {"board": Part("machine", None), "gpu": Part("gpu", None), "cpu": Part("host", None)}
SERVER = {
    "gpu0": Part("gpu", None),
    "cpu0": Part("host", None),
    "dram0": Part("host", "cpu0"),
    "machine": Part("machine", None),
    "meter": Part("machine", "machine"),
}
APU = {"gpu0": Part("gpu", None), "cpu0": Part("host", "gpu0"), "process": Part(None, None)}
APU_ALONE = {"cpu0": Part("host", "gpu0")}


@pytest.mark.parametrize(
    ("parts", "sums"),
    [
        (JETSON, {"gpu": "gpu", "host": "cpu", "machine": "board", "total": "board"}),
        (SERVER, {"gpu": "gpu0", "host": "cpu0", "machine": "machine", "total": "machine"}),
        (APU, {"gpu": "gpu0", "host": "cpu0", "machine": "", "total": "gpu0"}),
        (APU_ALONE, {"gpu": "", "host": "cpu0", "machine": "", "total": "cpu0"}),
        ({}, {"gpu": "", "host": "", "machine": "", "total": ""}),
    ],
)
def test_a_sum_has_no_device_whose_container_it_has(
    parts: dict[str, Part], sums: dict[str, str]
) -> None:
    """A processor with a GPU is in the host's sum alone, and inside the GPU in the total."""
    assert {scope: " ".join(in_sum(scope, parts)) for scope in SCOPES} == sums


def test_two_sensors_of_one_machine_add_if_neither_contains_the_other() -> None:
    """Two modules of a machine, each with its own sensor, are the machine together."""
    modules = {"a": Part("machine", None), "b": Part("machine", None), "gpu0": Part("gpu", "b")}
    assert in_sum("total", modules) == ("a", "b")
    assert containers(modules) == {"a": None, "b": None, "gpu0": "b"}
