"""CodeCarbon's logger inside ``quiet_codecarbon``."""

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from energy_callbacks.sensing.codecarbon_import import quiet_codecarbon
from tests.fake_nvml import Constant, Fault, Scenario, env, h200


@pytest.fixture
def heard():
    """Records that pass the logger of CodeCarbon."""
    logger, messages = logging.getLogger("codecarbon"), []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    logger.addHandler(handler)
    yield messages
    logger.removeHandler(handler)


def test_only_this_thread_is_quiet(heard):
    """Inside the block only records of this thread are dropped."""
    logger = logging.getLogger("codecarbon")
    with quiet_codecarbon():
        logger.error("ours")
        other = threading.Thread(target=logger.error, args=("the user's tracker",))
        other.start()
        other.join()
    logger.error("after")
    assert heard == ["the user's tracker", "after"]


def test_an_error_ends_the_quiet(heard):
    """An exception leaves the logger as it was."""
    filters = list(logging.getLogger("codecarbon").filters)
    with pytest.raises(KeyError), quiet_codecarbon():
        raise KeyError
    assert logging.getLogger("codecarbon").filters == filters


HANGING = """
import pynvml
from energy_callbacks.sensing.codecarbon_import import quiet_codecarbon

init = pynvml.nvmlInit
with quiet_codecarbon():
    from codecarbon.core import gpu_nvidia
print(gpu_nvidia.PYNVML_AVAILABLE, pynvml.nvmlInit is init)
"""


@pytest.mark.parametrize("hang_s", [0.0, 3600.0])
def test_a_driver_that_hangs_does_not_hang_the_import(tmp_path: Path, hang_s: float) -> None:
    """CodeCarbon, which starts NVML at import, is imported even if the start hangs."""
    hang = Fault(group="init", kind="hang", start_s=0.0, value=hang_s)
    scenario = Scenario(cards=(h200(Constant(100.0)),), faults=(hang,) if hang_s else ())
    done = subprocess.run(
        [sys.executable, "-c", HANGING],
        env=os.environ | env(scenario.write(tmp_path / "scenario")),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "True"]
