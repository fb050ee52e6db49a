"""Runs the command ``energy-callbacks`` for ``python -m energy_callbacks``."""

import sys

from energy_callbacks.cli import main

sys.exit(main())
