"""Compares the joules of two tenants that work in turn with the energy counter of a real GPU.

``python -m tests.gpu.tenant_energy --out DIR`` (less than two minutes of an H200). Tenants of two
models take turns of two seconds for a minute. A thread reads the energy counter of the GPU; its
rise in the turns of a tenant, less the power of waiting tenants, is the energy of this tenant.
Exits with 1 unless the energy that ``serve`` attributes to each tenant differs from it by at most
10 %, all parts add up to the measured energy, and this differs from the counter by at most 2 %, or
if a process is left. Writes ``tenant_energy.json`` to DIR.

``--gpu sim:h200 --models resnet50 mobilenet_v2`` and ``--gpu cpu`` check this script without a GPU;
the counter is then replaced by the sensors that ``serve`` uses.
"""

import argparse
import json
import math
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Final, Self

import numpy as np

from energy_callbacks.cli.powercap import open_bench
from energy_callbacks.core.units import joules_from_millijoules
from energy_callbacks.inference.control.protocols import OperatingPoint
from energy_callbacks.inference.profile import sweeps
from energy_callbacks.inference.serve.arrivals import ClosedLoop
from energy_callbacks.inference.serve.machine import Machine
from energy_callbacks.inference.serve.server import Server
from energy_callbacks.sensing.sources.nvidia.source import session
from tests.gpu.inference_cap import default_models, processes_left
from tests.gpu.serve_cap import opened_machine

TURN_S: Final = 2.0
BATCHES: Final = (32, 64)
DIFFERENCE: Final = 0.10
TOTAL: Final = 0.02
# The counter has a new value every 100 ms; it is read more often, so that the moment of a new value
# is known to the time of a call, 3 to 24 ms.
READ_S: Final = 0.02


class Turns(ClosedLoop):
    """Requests that keep the tenants busy in every second turn.

    Args:
        place: 0 for the first turn, the third one and so on; 1 for the others.
    """

    def __init__(self, place: int) -> None:
        super().__init__()
        self._place: Final = place
        self._next_turn_s = 0.0

    def is_turn(self, t_s: float) -> bool:
        """Return whether requests arrive at a time."""
        return int(t_s / TURN_S) % 2 == self._place

    def next_s(self) -> float:
        """Return when the next turn begins, if there is no request before."""
        return min(super().next_s(), self._next_turn_s)

    def offered(self, samples: int, t_s: float) -> None:
        """See ``Arrivals``; there are no requests out of turn."""
        turn = int(t_s / TURN_S)
        self._next_turn_s = TURN_S * (turn + (1 if turn % 2 != self._place else 2))
        super().offered(samples if self.is_turn(t_s) else 0, t_s)


class Counter(AbstractContextManager["Counter"]):
    """Reads the energy counter of a GPU on a thread.

    Args:
        uuid: UUID of the GPU.
    """

    def __init__(self, uuid: str) -> None:
        self._uuid = uuid
        self._times_s: list[float] = []
        self._energies_j: list[float] = []
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._thread.join()

    def _read(self) -> None:
        with session(self._uuid) as nvml:
            card = nvml.nvmlDeviceGetHandleByUUID(self._uuid)
            while not self._is_stopped.wait(READ_S):
                before_s = time.monotonic()
                energy_j = joules_from_millijoules(nvml.nvmlDeviceGetTotalEnergyConsumption(card))
                middle_s = (before_s + time.monotonic()) / 2.0
                # The first reading of each value is next to the moment at which it appeared.
                if not self._energies_j or energy_j > self._energies_j[-1]:
                    self._times_s.append(middle_s)
                    self._energies_j.append(energy_j)

    def energy_j(self, start_s: float, end_s: float) -> float:
        """Return the rise of the counter between two moments."""
        first, last = np.interp([start_s, end_s], self._times_s, self._energies_j)
        return float(last - first)


def main() -> int:
    """Let two tenants take turns, and compare."""
    given = _arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    options = Namespace(gpu=given.gpu, data=None, seed=0, load_timeout=120.0, yes=False)
    with ExitStack() as stack:
        machine = stack.enter_context(opened_machine(options))
        energy_j = _truth(stack, options, machine)
        server = Server(machine, {model: Turns(at) for at, model in enumerate(given.models)})
        tenants = sweeps.single(given.models, [50.0], list(BATCHES))
        server.apply(OperatingPoint(configuration=tenants))
        windows = [server.window(1.0) for _ in range(given.seconds)]
        start_s, end_s = windows[0].start_s, windows[-1].end_s
        machine.pass_until(end_s + 0.5)
        edges_s = np.arange(start_s, end_s - TURN_S + 1e-6, TURN_S).tolist()
        turns = [_energies(energy_j, edges_s[place::2]) for place in (0, 1)]
        counted_j = energy_j(start_s, end_s)
    holds = _compared(server, given.models, turns, counted_j, given.out)
    left = processes_left()
    print(f"processes left: {left or 'none'}")
    return 0 if holds and not left else 1


def _arguments() -> Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--out", type=Path, required=True, help="folder of the results")
    add("--gpu", default="auto")
    add("--models", nargs=2, default=default_models())
    add("--seconds", type=int, default=60, help="a multiple of four")
    return parser.parse_args()


def _truth(
    stack: ExitStack, options: Namespace, machine: Machine
) -> Callable[[float, float], float]:
    """Return what tells the true energy between two moments, J."""
    uuid = None if open_bench.is_simulated(options) else open_bench.device(options.gpu).uuid
    if uuid is not None:
        return stack.enter_context(Counter(uuid)).energy_j
    return lambda start_s, end_s: machine.sensors.energy(start_s, end_s).energy_j or 0.0


def _energies(energy_j: Callable[[float, float], float], starts_s: Sequence[float]) -> list[float]:
    return [energy_j(start_s, start_s + TURN_S) for start_s in starts_s]


def _compared(
    server: Server, models: Sequence[str], turns: Sequence[list[float]], counted_j: float, out: Path
) -> bool:
    """Print and write all energies, and return whether they agree."""
    found, idle_w = server.energies.found, server.idle_w
    holds = not found.reason
    results = []
    for model, own in zip(models, turns, strict=True):
        true_j = math.fsum(own) - idle_w * TURN_S * len(own)
        given_j = sum(j for tenant, j in found.tenants_j.items() if tenant.model == model)
        results.append({"model": model, "attributed_j": given_j, "true_j": true_j})
        if true_j <= 0.0:
            print(
                f"{model}: no energy above idle in its turns, as of the estimate of a CPU's power"
            )
            continue
        difference = given_j / true_j - 1.0
        holds &= abs(difference) <= DIFFERENCE
        print(
            f"{model}: attributed {given_j:.1f} J, counter in its {len(own)} turns less idle "
            f"{true_j:.1f} J, {100.0 * difference:+.1f} %"
        )
    parts_j = math.fsum([found.idle_j, *found.tenants_j.values()])
    print(f"idle {idle_w:.1f} W, {found.idle_j:.1f} J; all parts {parts_j:.3f} J")
    print(f"measured {found.total_j:.3f} J, counter {counted_j:.1f} J")
    holds &= math.isclose(parts_j, found.total_j, rel_tol=1e-9)
    holds &= abs(found.total_j / counted_j - 1.0) <= TOTAL
    values = {"tenants": results, "counter_j": counted_j, "turns_j": list(turns)}
    text = json.dumps({**values, "found": found.as_json(), "holds": holds}, indent=2)
    (out / "tenant_energy.json").write_text(text + "\n")
    return holds


if __name__ == "__main__":
    raise SystemExit(main())
