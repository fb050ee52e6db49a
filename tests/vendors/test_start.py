"""What the sensors of all vendors cost a process that does not measure yet."""

import subprocess
import sys

PROGRAM = """
import sys
{statement}
print(sum(name.startswith(("energy_callbacks.sensing.sources.sysfs",
                           "energy_callbacks.sensing.sources.commands",
                           "energy_callbacks.sensing.gpus")) for name in sys.modules))
"""


def loaded(statement: str) -> int:
    """Return the number of modules for sensors of other vendors that a new process has loaded."""
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(statement=statement)],
        capture_output=True, text=True, check=True, timeout=600.0,
    )  # fmt: skip
    return int(answer.stdout)


def test_sensors_of_vendors_are_imported_when_sensors_are_looked_for() -> None:
    """Importing the package and making a meter loads none of their modules."""
    assert loaded("from energy_callbacks import EnergyMeter; EnergyMeter()") == 0
    assert loaded("import energy_callbacks.sensing.discovery") > 10
