"""What measuring costs a training: its steps, its thread, and a core.

``no_callback`` compares whole trainings with and without the callback; here is what one meter
costs a plain loop. Three questions on a real GPU, in at most eight minutes:

* How much longer are steps with a running meter than with one whose threads are held up? Rounds
  in turn (``pairs``) of a GPU-bound and a launch-bound loop (``loops``), each on the core where
  others disturb it least (``quiet_core``). Bars: the upper end of the 95 % interval below 0.1 %
  and 1 %.
* What do hooks take from the thread that trains (``hook_costs``)? Bar: ``meter.step`` under 10 us
  a step, 20 us with CUDA events. Beside it Zeus and CodeCarbon with a window a step
  (``step_windows``).
* What share of a core do threads of ours take for one GPU? Bar: those that read sensors under
  0.5 %. The thread of the journal stands beside them.

``python -m tests.benchmarks.overhead [--quick] [--fake] [--json FILE] [--peers PYTHON]``. With
``--fake`` a card is played in real time and the GPU's work is replaced by sleep and by Python; a
busy machine says little about small changes there, and their bars are not judged. ``--quick`` has
too few rounds for them as well. It takes under a minute. Without a GPU and without ``--fake`` it
says that it is skipped. PYTHON is the interpreter of an environment with ``peers.txt``, on a GPU
with PyTorch as well; without it, CodeCarbon alone stands beside ours.
"""

import contextlib
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from energy_callbacks import EnergyConfig, EnergyMeter
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.common.loops import SLEEP, Loop, fake_loops, gpu_loops, has_gpu
from tests.benchmarks.common.pairs import HALF_S, Change, interleaved
from tests.benchmarks.common.paused_clock import PausableClock
from tests.benchmarks.common.quiet_core import quiet_core
from tests.benchmarks.common.tools import nvidia_smi_stub
from tests.benchmarks.overhead_parts.hook_costs import HookCost, of_callbacks, of_hook
from tests.benchmarks.overhead_parts.step_windows import Peer, measured_beside

CHANGE_BARS: Final = (0.001, 0.01)  # GPU-bound, launch-bound
STEP_BAR_US: Final = 10.0
EVENT_BAR_US: Final = 20.0
CORE_BAR: Final = 0.005
ROUND_S: Final = 0.0625  # and 40 steps at least, half a second at most
_SETTLED_S: Final = 3.0  # all sources are open, the phase of the counter is known
_JOURNAL: Final = "journal"
_CHILD: Final = "TESTS_BENCHMARKS_ON_FAKE_CARD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The amount of work, quick or not."""

    pairs: tuple[int, int]  # GPU-bound, launch-bound
    peer_pairs: int
    hook_s: float
    core_s: float


FULL: Final = Size(pairs=(100, 220), peer_pairs=5, hook_s=2.0, core_s=20.0)
QUICK: Final = Size(pairs=(3, 3), peer_pairs=2, hook_s=0.5, core_s=5.0)


@contextlib.contextmanager
def running_meter(clock: PausableClock, *, step_events: bool = False) -> Iterator[EnergyMeter]:
    """Run a meter that has settled, in the phase ``train``."""
    with tempfile.TemporaryDirectory() as folder:
        config = EnergyConfig(report_dir=folder, step_events=step_events)
        meter = EnergyMeter(config=config, clock=clock)
        meter._start(used_gpus=(0,))
        meter.enter("train")
        time.sleep(_SETTLED_S)
        yield meter
        clock.resume()
        meter.stop()


def core_shares(duration_s: float, work: Callable[[], None]) -> dict[str, float]:
    """Return the share of a core that each of our threads takes during ``work``, by its name."""
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


def sampler_share(core: Mapping[str, float], gpus: int) -> float:
    """Return the share of a core of the sensor threads, for each GPU; infinite without one."""
    share = sum(share for name, share in core.items() if name != _JOURNAL)
    return share / gpus if gpus else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """All measurements of our meter."""

    changes: dict[str, Change]
    hooks: dict[str, HookCost]
    event_hooks: dict[str, HookCost]
    clock_reads: dict[str, HookCost]
    core: dict[str, float]
    gpus: int


def measure_ours(loops: tuple[Loop, Loop], size: Size) -> Ours:
    """Measure steps with and without a meter, ``meter.step`` alone, and processor time."""
    clock = PausableClock()
    with running_meter(clock) as meter:

        def hook() -> None:
            meter.step(samples=64)

        gpus = len(meter._lifecycle.attempt.timeline.keys("gpu"))
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


def _both(step: Callable[[], None], hook: Callable[[], None]) -> Callable[[], None]:
    def both() -> None:
        step()
        hook()

    return both


def judged(ours: Ours, *, is_fake: bool, is_quick: bool) -> list[Bar]:
    """Return the bars.

    A sleep in place of a step leaves caches cold, which makes any call ten times slower; a loop
    that launches work for a GPU does not. After a sleep the hook is therefore not judged.
    """
    found = [
        Bar(
            name=f"{name}: upper end of the change",
            value=change.high,
            at_most=limit,
            is_judged=not (is_fake or is_quick),
        )
        for (name, change), limit in zip(ours.changes.items(), CHANGE_BARS, strict=True)
    ]
    found += [
        Bar(
            name=f"{name}: us of meter.step, median",
            value=cost.median_us,
            at_most=STEP_BAR_US,
            is_judged=not (is_fake and name == SLEEP),
        )
        for name, cost in ours.hooks.items()
    ]
    found += [
        Bar(
            name=f"{name}: us of meter.step with an event, median",
            value=cost.median_us,
            at_most=EVENT_BAR_US,
            is_judged=not is_fake,
        )
        for name, cost in ours.event_hooks.items()
    ]
    share = sampler_share(ours.core, ours.gpus)
    name = "sampler's share of a core for each GPU"
    return [*found, Bar(name=name, value=share, at_most=CORE_BAR)]


def tables(
    ours: Ours, peers: Sequence[Peer], callbacks: dict[str, HookCost], unknown: dict[str, str]
) -> str:
    """Return all measurements as text."""
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
    """Run this again in a process that sees a card simulated in real time."""
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
    """Print the tables and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--fake", action="store_true", help="no GPU: play a card in real time")
    parser.add_argument("--pairs", type=int, nargs=2, help="GPU-bound, launch-bound")
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter of the peers' environment")
    arguments = parser.parse_args()
    if arguments.fake and _CHILD not in os.environ:
        return in_fake_child(sys.argv[1:])
    if not arguments.fake and not has_gpu():
        return bars.skip(arguments, "needs a GPU with CUDA; --fake plays a card")
    size = QUICK if arguments.quick else FULL
    if arguments.pairs:
        size = replace(size, pairs=(arguments.pairs[0], arguments.pairs[1]))
    ours = measure_ours(fake_loops() if arguments.fake else gpu_loops(), size)
    unknown: dict[str, str] = {}
    beside = measured_beside(arguments.peers, size.peer_pairs, unknown, is_fake=arguments.fake)
    callbacks = of_callbacks(unknown)
    print(tables(ours, beside, callbacks, unknown))
    return bars.finish(
        "overhead",
        arguments,
        judged(ours, is_fake=arguments.fake, is_quick=arguments.quick),
        ours=asdict(ours),
        peers=[asdict(peer) for peer in beside],
        callbacks={name: asdict(cost) for name, cost in callbacks.items()},
        unknown=unknown,
        is_fake=arguments.fake,
    )


if __name__ == "__main__":
    sys.exit(main())
