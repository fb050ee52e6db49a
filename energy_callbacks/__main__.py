"""``python -m energy_callbacks`` is the command ``energy-callbacks``."""

import sys

from energy_callbacks.cli import main

sys.exit(main())
