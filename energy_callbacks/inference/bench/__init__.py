"""Compares controllers on tasks with power caps.

``session.py`` has ``Benchmark``. ``tasks.py`` reads tasks, ``devices.py`` has what they run on,
``results.py`` the folder of their results, and ``report/`` what the results show.
"""

from energy_callbacks.inference.bench.devices import SimulatedDevice as SimulatedDevice
from energy_callbacks.inference.bench.session import Benchmark as Benchmark
