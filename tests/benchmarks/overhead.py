"""What measuring costs a training: its steps, its thread, and a core.

Three questions on a real GPU, in at most eight minutes:

* How much longer are steps with a running meter than with one whose threads are held up? Rounds
  in turn (``pairs``) of a GPU-bound and a launch-bound loop (``loops``), each on the core where
  others disturb it least (``quiet_core``). Bars: the upper end of the 95 % interval below 0.1 %
  and 1 %.
* What do hooks take from the thread that trains (``hook_costs``)? Bar: ``meter.step`` under 10 us
  a step, 20 us with CUDA events. Beside it Zeus and CodeCarbon with a window a step.
* What share of a core do threads of ours take for one GPU? Bar: those that read sensors under
  0.5 %. The thread of the journal stands beside them.

``python -m tests.benchmarks.overhead [--quick] [--fake] [--json FILE]``. With ``--fake`` a card is
played in real time and the GPU's work is replaced by sleep and by Python; a busy machine says
little about small changes there, and their bars are not judged. ``--quick`` has too few rounds
for them as well. It takes under a minute.
"""

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from energy_callbacks import EnergyConfig, EnergyMeter
from tests.benchmarks.hook_costs import HookCost, of_callbacks, of_hook, of_windows
from tests.benchmarks.loops import SLEEP, Loop, fake_loops, gpu_loops
from tests.benchmarks.pairs import HALF_S, Change, interleaved
from tests.benchmarks.paused_clock import PausableClock
from tests.benchmarks.quiet_core import quiet_core
from tests.benchmarks.tools import MAKERS, Tool, closed, is_installed, nvidia_smi_stub

CHANGE_BARS: Final = (0.001, 0.01)  # GPU-bound, launch-bound
STEP_BAR_US: Final = 10.0
EVENT_BAR_US: Final = 20.0
CORE_BAR: Final = 0.005
ROUND_S: Final = 0.0625  # and 40 steps at least, half a second at most
_PEERS: Final = ("Zeus", "CodeCarbon task")
_PEER_S: Final = 0.2
_SETTLED_S: Final = 3.0  # all sources are open, the counter's phase is known
_JOURNAL: Final = "journal"
_CHILD: Final = "TESTS_BENCHMARKS_ON_FAKE_CARD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much to do; quick or not."""

    pairs: tuple[int, int]  # GPU-bound, launch-bound
    peer_pairs: int
    hook_s: float
    core_s: float


FULL: Final = Size(pairs=(100, 220), peer_pairs=5, hook_s=2.0, core_s=20.0)
QUICK: Final = Size(pairs=(3, 3), peer_pairs=2, hook_s=0.5, core_s=5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One thing that was promised, what was found, and whether it was judged."""

    name: str
    value: float
    limit: float
    is_judged: bool = True

    @property
    def verdict(self) -> str:
        """In a word."""
        if not self.is_judged:
            return "not judged"
        return "met" if self.value < self.limit else "MISSED"


@contextlib.contextmanager
def running_meter(clock: PausableClock, *, step_events: bool = False) -> Iterator[EnergyMeter]:
    """A meter that has settled, in the phase ``train``."""
    with tempfile.TemporaryDirectory() as folder:
        config = EnergyConfig(report_dir=folder, step_events=step_events)
        meter = EnergyMeter(config=config, clock=clock)
        meter.start()
        meter.enter("train")
        time.sleep(_SETTLED_S)
        yield meter
        clock.resume()
        meter.stop()


def core_shares(duration_s: float, work: Callable[[], None]) -> dict[str, float]:
    """Share of a core that each thread of ours takes while ``work`` goes on, by its name."""
    threads = [t for t in threading.enumerate() if t.name.startswith("energy_callbacks")]
    clocks = {t.name: time.pthread_getcpuclockid(t.ident) for t in threads if t.ident}
    before_s = {name: time.clock_gettime(clock) for name, clock in clocks.items()}
    start_s = time.monotonic()
    while time.monotonic() - start_s < duration_s:
        work()
    spent_s = time.monotonic() - start_s
    return {
        name.removeprefix("energy_callbacks "): (time.clock_gettime(clock) - before_s[name])
        / spent_s
        for name, clock in clocks.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """Everything that was found of ours."""

    changes: dict[str, Change]
    hooks: dict[str, HookCost]
    event_hooks: dict[str, HookCost]
    clock_reads: dict[str, HookCost]
    core: dict[str, float]
    gpus: int


def measure_ours(loops: tuple[Loop, Loop], size: Size) -> Ours:
    """Steps with and without, ``meter.step`` by itself, processor time."""
    clock = PausableClock()
    with running_meter(clock) as meter:

        def hook() -> None:
            meter.step(samples=64)

        gpus = len(meter._attempt.timeline.keys("gpu"))
        changes = {}
        for loop, pairs in zip(loops, size.pairs, strict=True):
            with quiet_core(loop) as settle:
                both = _both(loop.step, hook)
                round_s = min(max(ROUND_S, 40 * loop.step_s), HALF_S)
                changes[loop.name] = interleaved(
                    loop, pairs, both, clock, round_s=round_s, settle=settle
                )
        clock.resume()
        steps = {loop: round(size.hook_s / loop.step_s) for loop in loops}
        hooks = {loop.name: of_hook(loop, hook, steps[loop]) for loop in loops}
        clock_reads = {loop.name: of_hook(loop, time.monotonic, steps[loop]) for loop in loops}

        def work() -> None:
            loops[0].step()
            loops[0].wait()
            hook()

        core = core_shares(size.core_s, work)
    with running_meter(PausableClock(), step_events=True) as dating:
        event_hooks = {
            loop.name: of_hook(loop, lambda: dating.step(samples=64), steps[loop]) for loop in loops
        }
    return Ours(
        changes=changes,
        hooks=hooks,
        event_hooks=event_hooks,
        clock_reads=clock_reads,
        core=core,
        gpus=gpus,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """What a peer with a window a step does to one loop."""

    tool: str
    loop: str
    hook: HookCost
    change: Change


def measure_peer(name: str, loop: Loop, pairs: int, *, is_fake: bool) -> Peer:
    """A window a step, in turn with plain steps; short rounds, for some take 10 ms a step."""
    tool: Tool = MAKERS[name][1](sync=not is_fake)

    def step() -> None:
        tool.begin()
        loop.step()
        tool.end()

    cost = of_windows(loop, tool, max(round(_PEER_S / loop.step_s / 4.0), 20))
    found = interleaved(loop, pairs, step, half_s=_PEER_S)
    closed(tool)
    return Peer(tool=name, loop=loop.name, hook=cost, change=found)


def measure_peers(
    loops: tuple[Loop, Loop], pairs: int, unknown: dict[str, str], *, is_fake: bool
) -> Iterator[Peer]:
    """All that are installed; why one has no figures goes into ``unknown``.

    A peer that fails takes no figure of ours with it: time on a GPU is scarce.
    """
    for name in _PEERS:
        if not is_installed(name):
            unknown[name] = "not installed"
            continue
        try:
            for loop in loops:
                yield measure_peer(name, loop, pairs, is_fake=is_fake)
        except Exception as error:  # noqa: BLE001 - see above
            unknown[name] = f"failed: {error!r}"


def _both(step: Callable[[], None], hook: Callable[[], None]) -> Callable[[], None]:
    def both() -> None:
        step()
        hook()

    return both


def bars(ours: Ours, *, is_fake: bool, is_quick: bool) -> list[Bar]:
    """What was promised.

    A sleep in a step's place leaves caches cold, which makes any call ten times slower; a loop
    that launches work for a GPU does not: behind a sleep the hook is not judged.
    """
    found = [
        Bar(
            name=f"{name}: upper end of the change",
            value=change.high,
            limit=limit,
            is_judged=not (is_fake or is_quick),
        )
        for (name, change), limit in zip(ours.changes.items(), CHANGE_BARS, strict=True)
    ]
    found += [
        Bar(
            name=f"{name}: us of meter.step, median",
            value=cost.median_us,
            limit=STEP_BAR_US,
            is_judged=not (is_fake and name == SLEEP),
        )
        for name, cost in ours.hooks.items()
    ]
    found += [
        Bar(
            name=f"{name}: us of meter.step with an event, median",
            value=cost.median_us,
            limit=EVENT_BAR_US,
            is_judged=not is_fake,
        )
        for name, cost in ours.event_hooks.items()
    ]
    # Where no card is found there is nothing to judge, and infinity is not under the bar.
    sampler = sum(share for name, share in ours.core.items() if name != _JOURNAL)
    share = sampler / ours.gpus if ours.gpus else math.inf
    return [*found, Bar(name="sampler's share of a core for each GPU", value=share, limit=CORE_BAR)]


def tables(
    ours: Ours, peers: list[Peer], callbacks: dict[str, HookCost], unknown: dict[str, str]
) -> str:
    """Everything that was found, to be read."""
    lines = [f"{'change of the mean step time':<44}{'step':>10}{'change':>12}{'95 % interval':>24}"]
    told = [(f"{name}: energy_callbacks", c) for name, c in ours.changes.items()]
    told += [(f"{p.loop}: {p.tool} per step", p.change) for p in peers]
    for name, c in told:
        interval = f"{c.low:+.3%} .. {c.high:+.3%}"
        lines.append(
            f"{name:<44}{1e3 * c.step_s:>7.2f} ms{c.change:>+12.3%}{interval:>24}"
            f"  {c.pairs} pairs, threads {c.awake:+.3%}"
        )
    lines.append(f"\n{'on the training thread, us a step':<44}{'median':>9}{'mean':>9}{'p99':>9}")
    costs = [(f"{name}: meter.step", cost) for name, cost in ours.hooks.items()]
    costs += [(f"{name}: meter.step with an event", c) for name, c in ours.event_hooks.items()]
    costs += [(f"{name}: (a clock read alone)", cost) for name, cost in ours.clock_reads.items()]
    costs += [(f"{name}: all hooks of the callback", cost) for name, cost in callbacks.items()]
    costs += [(f"{p.loop}: {p.tool} begin + end", p.hook) for p in peers]
    for name, cost in costs:
        lines.append(f"{name:<44}{cost.median_us:>9.1f}{cost.mean_us:>9.1f}{cost.p99_us:>9.1f}")
    lines += [f"{name:<44} {reason}" for name, reason in unknown.items()]
    lines.append(f"\n{'share of a core, by thread':<44}")
    lines += [f"{name:<44}{share:>9.3%}" for name, share in ours.core.items()]
    lines.append(f"{'together':<44}{sum(ours.core.values()):>9.3%} for {ours.gpus} GPU(s)\n")
    return "\n".join(lines)


def in_fake_child(arguments: list[str]) -> int:
    """Run this again in a process that sees a card played in real time."""
    from tests.fake_nvml import Scenario, Square, env, h200

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenario = Scenario(cards=(h200(Square(low_w=100.0, high_w=400.0, period_s=1.03)),))
        variables = env(scenario.write(folder / "scenario.txt"))
        variables["PATH"] = os.pathsep.join([str(nvidia_smi_stub(folder)), variables["PATH"]])
        variables[_CHILD] = "1"
        command = [sys.executable, "-m", "tests.benchmarks.overhead", *arguments]
        return subprocess.run(command, env=variables, check=False).returncode


def main() -> int:
    """Print the tables; 1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--fake", action="store_true", help="no GPU: play a card in real time")
    parser.add_argument("--pairs", type=int, nargs=2, help="GPU-bound, launch-bound")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.fake and _CHILD not in os.environ:
        return in_fake_child(sys.argv[1:])
    size = QUICK if arguments.quick else FULL
    if arguments.pairs:
        size = replace(size, pairs=(arguments.pairs[0], arguments.pairs[1]))
    loops = fake_loops() if arguments.fake else gpu_loops()
    ours = measure_ours(loops, size)
    unknown: dict[str, str] = {}
    peers = list(measure_peers(loops, size.peer_pairs, unknown, is_fake=arguments.fake))
    callbacks = of_callbacks(unknown)
    print(tables(ours, peers, callbacks, unknown))
    found = bars(ours, is_fake=arguments.fake, is_quick=arguments.quick)
    for bar in found:
        print(f"bar: {bar.name} under {bar.limit:g}: {bar.value:.5g}, {bar.verdict}")
    if arguments.json:
        parts: dict[str, Any] = {
            "ours": asdict(ours),
            "peers": [asdict(peer) for peer in peers],
            "callbacks": {name: asdict(cost) for name, cost in callbacks.items()},
            "bars": [asdict(bar) | {"verdict": bar.verdict} for bar in found],
            "unknown": unknown,
            "is_fake": arguments.fake,
        }
        arguments.json.write_text(json.dumps(parts))
    return 1 if any(bar.verdict == "MISSED" for bar in found) else 0


if __name__ == "__main__":
    sys.exit(main())
