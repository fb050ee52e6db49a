"""A command of ``powercap`` with an administrator's permission on the simulated driver."""

import sys

from energy_callbacks.cli import main
from energy_callbacks.powercap.actuators import choose
from tests.powercap.safety.file_cards import AdminNvmlActuator

if __name__ == "__main__":
    choose._MADE_BY["nvml"] = AdminNvmlActuator
    raise SystemExit(main(["powercap", *sys.argv[1:]]))
