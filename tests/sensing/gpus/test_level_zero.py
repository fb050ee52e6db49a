import pytest

from energy_callbacks.sensing.gpus.level_zero import IntelGpu, visible

A, B = "0000:03:00.0", "0000:8a:00.0"
BUILT_IN = "0000:00:02.0"
TWO = (IntelGpu(B, False, 1), IntelGpu(A, False, 1))
TILED = (IntelGpu(A, False, 2), IntelGpu(B, False, 2))
DESKTOP = (IntelGpu(BUILT_IN, True, 1), IntelGpu(A, False, 1))
LAPTOP = (IntelGpu(BUILT_IN, True, 1),)

AFFINITY = (
    (TWO, {}, (A, B)),
    (TWO, {"ZE_AFFINITY_MASK": ""}, (A, B)),
    (TWO, {"ZE_AFFINITY_MASK": "default"}, (A, B)),
    (TWO, {"ZE_AFFINITY_MASK": "1"}, (B,)),
    # the order of the devices stays, and entries beyond the last device are ignored
    (TWO, {"ZE_AFFINITY_MASK": "1,0"}, (A, B)),
    (TWO, {"ZE_AFFINITY_MASK": "7,1"}, (B,)),
    (TWO, {"ZE_AFFINITY_MASK": "7"}, ()),
    # tiles are devices by default
    (TILED, {}, (A, A, B, B)),
    (TILED, {"ZE_AFFINITY_MASK": "1,2"}, (A, B)),
    (TILED, {"ZE_AFFINITY_MASK": "0.1,3"}, (B,)),
    (TILED, {"ZE_FLAT_DEVICE_HIERARCHY": "COMBINED", "ZE_AFFINITY_MASK": "3"}, (B,)),
    # or parts of devices
    (TILED, {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}, (A, B)),
    (TILED, {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE", "ZE_AFFINITY_MASK": "1.0,1.1"}, (B,)),
    (TILED, {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE", "ZE_AFFINITY_MASK": "0.1"}, (A,)),
    (TILED, {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE", "ZE_AFFINITY_MASK": "0.0,1"}, (A, B)),
    (TILED, {"ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE", "ZE_AFFINITY_MASK": "2.0"}, ()),
    # integrated GPUs are last, unless the order is that of PCI addresses; PyTorch leaves them out
    (DESKTOP, {}, (A,)),
    (DESKTOP, {"ZE_AFFINITY_MASK": "0"}, (A,)),
    (DESKTOP, {"ZE_AFFINITY_MASK": "1"}, (BUILT_IN,)),
    (DESKTOP, {"ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1", "ZE_AFFINITY_MASK": "1"}, (A,)),
    (LAPTOP, {}, (BUILT_IN,)),
    ((), {}, ()),
)


@pytest.mark.parametrize(("gpus", "environment", "shown"), AFFINITY)
def test_affinity(
    gpus: tuple[IntelGpu, ...], environment: dict[str, str], shown: tuple[str, ...]
) -> None:
    """The devices of ``torch.xpu`` are those that Level Zero shows, in its order."""
    assert visible(environment, gpus) == shown


SELECTORS = (
    ("level_zero:0", (A,)),
    ("level_zero:1,0", (A, B)),
    ("LEVEL_ZERO:1", (B,)),
    ("*:1", (B,)),
    ("level_zero:*", (A, B)),
    ("level_zero:gpu", (A, B)),
    ("*:cpu", ()),
    ("level_zero:1.0", (B,)),
    ("level_zero:*.*", (A, B)),
    ("opencl:*", ()),
    ("opencl:cpu;level_zero:1", (B,)),
    ("!level_zero:0", (B,)),
    ("!opencl:*", (A, B)),
    ("!*:cpu", (A, B)),
    ("level_zero:*;!level_zero:1", (A,)),
    ("opencl:*;!level_zero:0", ()),
    ("", (A, B)),
)


@pytest.mark.parametrize(("selector", "shown"), SELECTORS)
def test_selector(selector: str, shown: tuple[str, ...]) -> None:
    """Terms of ``ONEAPI_DEVICE_SELECTOR`` accept devices, or remove them."""
    assert visible({"ONEAPI_DEVICE_SELECTOR": selector}, TWO) == shown


def test_selector_counts_what_the_mask_shows() -> None:
    """The driver applies ``ZE_AFFINITY_MASK`` before SYCL applies its selector."""
    masks = {"ZE_AFFINITY_MASK": "1", "ONEAPI_DEVICE_SELECTOR": "level_zero:0"}

    assert visible(masks, TWO) == (B,)
