"""What the callback costs real trainings, compared with trainings that have no callback.

``python -m tests.benchmarks.no_callback [--quick | --gpu] [--json FILE] [NAME ...]``

Two questions, for a training with steps of 1.5 ms on the CPU in each framework:

* How much processor time do we take? The time of our hooks and replaced methods on the training
  thread (``hook_processor_time``; rows of ours with the loggers' part) per step, divided by 1.5 ms,
  plus that of our threads (their own clocks) per second of training. Both are from the steady
  state. Bar: at most 1 %.
* How much longer do steps take? Fits with and without the callback in turn (``fit_pairs``). Bars
  for the upper ends of the 95 % intervals of the median: 1.5 % in the steady state, and 4 % from
  the call of ``fit`` to the step that begins 3 s later without the callback. Fewer than 40 pairs,
  or an interval wider than 1 % to either side, show nothing: the bar is not judged, and the table
  says so.

A card is played in real time, so that our threads have one to read. Lightning has 40 pairs, the
other frameworks 20, unless ``--pairs`` says otherwise: 40 pairs take eight minutes. ``--quick``
measures Lightning alone, in two pairs, which judge the processor time only. ``--gpu`` measures two
Lightning trainings on a GPU instead: steps of 3.8 ms that are bound by launching kernels, and steps
that are bound by the GPU. FILE is written again after each pair, so that a run that is ended early
leaves its pairs.
"""

import contextlib
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any, Final

from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.common.loops import has_gpu
from tests.benchmarks.overhead_parts.fit_pairs import BLOCKS, Ratio
from tests.benchmarks.overhead_parts.played_card import played_card
from tests.benchmarks.overhead_parts.training_costs import Costs, measure
from tests.benchmarks.overhead_parts.trainings import ON_CPU, ON_GPU, TRAININGS

PROCESSOR_BAR: Final = 0.01
WALL_BARS: Final = dict(zip(BLOCKS, (0.04, 0.015), strict=True))
HALF_WIDTH: Final = 0.01
PAIRS, FEWER_PAIRS, QUICK_PAIRS = 40, 20, 2
HOOK_STEPS, QUICK_HOOK_STEPS = 8_000, 4_000


def judged(found: Mapping[str, Costs]) -> Iterator[Bar]:
    """Return the bars."""
    for name, one in found.items():
        if one.processor is not None:
            yield Bar(
                name=f"{name}: processor time of hooks and threads",
                value=one.processor,
                at_most=PROCESSOR_BAR,
            )
        for block, limit in WALL_BARS.items():
            change = one.ratios[f"{block}, wall time"]
            yield Bar(
                name=f"{name}: {block} longer, upper end",
                value=change.high,
                at_most=limit,
                is_judged=is_shown(change),
            )


def is_shown(change: Ratio) -> bool:
    """Whether there are enough pairs, and the interval is narrow enough, to judge a change."""
    return change.pairs >= PAIRS and change.half_width <= HALF_WIDTH


def table(found: Mapping[str, Costs]) -> str:
    """Return all measurements as text."""
    lines = [f"{'with the callback':<42}{'median':>9}{'95 % interval':>22}{'mean':>9}{'pairs':>7}"]
    for name, one in found.items():
        lines.append(f"{name}, step of {1e3 * one.step_s:.2f} ms")
        for what, change in one.ratios.items():
            interval = f"{change.low:+.2%} .. {change.high:+.2%}"
            note = "" if is_shown(change) else f"  not shown (+-{change.half_width:.1%})"
            lines.append(
                f"  {what:<40}{change.median:>+9.2%}{interval:>22}{change.mean:>+9.2%}"
                f"{change.pairs:>7}{note}"
            )
        lines.append(f"  {'fit returns later, s':<40}{one.fit_s:>9.2f}")
        hooks = "" if one.hooks_us is None else f"{one.hooks_us:.1f} us a step, "
        lines.append(
            f"  processor time: hooks {hooks}threads {sum(one.threads.values()):.2%} of a core "
            f"({sum(one.start_threads.values()):.2%} in the first 3 s)"
        )
        lines += [f"    {thread:<38}{share:>9.3%}" for thread, share in one.threads.items()]
    return "\n".join(lines)


def measured(name: str, pairs: int, *, is_quick: bool) -> Iterator[Costs]:
    """Measure one training in a process of its own; yield its costs after each pair."""
    command = [sys.executable, "-m", "tests.benchmarks.no_callback", "--child", name]
    command += ["--pairs", str(pairs), *(["--quick"] if is_quick else [])]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            yield Costs.read(json.loads(line))
        if process.wait():
            errors.seek(0)
            raise RuntimeError(f"the training {name} failed:\n{errors.read()[-3000:]}")


def child(name: str, pairs: int, hook_steps: int) -> int:
    """Measure one training in this process, and print its costs after each pair, one JSON a line.

    What others print goes to standard error.
    """
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for costs in measure(TRAININGS[name], pairs, hook_steps):
            print(json.dumps(asdict(costs)), file=out, flush=True)
    return 0


def main() -> int:
    """Print the table and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TRAININGS))
    parser.add_argument("--gpu", action="store_true", help="two trainings on a GPU with CUDA")
    parser.add_argument("--pairs", type=int, help="pairs of fits")
    parser.add_argument("--child", choices=TRAININGS, help="internal: train in this process")
    arguments = parser.parse_args()
    if arguments.child:
        hook_steps = QUICK_HOOK_STEPS if arguments.quick else HOOK_STEPS
        return child(arguments.child, arguments.pairs, hook_steps)
    names = arguments.names or default_names(is_gpu=arguments.gpu, is_quick=arguments.quick)
    if missing := [name for name in names if find_spec(TRAININGS[name].package) is None]:
        return bars.skip(arguments, f"the frameworks of {', '.join(missing)} are not installed")
    if arguments.gpu and not has_gpu():
        return bars.skip(arguments, "PyTorch finds no GPU")
    found: dict[str, Costs] = {}
    with contextlib.nullcontext() if arguments.gpu else played_card():
        for name in names:
            pairs = arguments.pairs or pairs_of(name, is_quick=arguments.quick)
            for costs in measured(name, pairs, is_quick=arguments.quick):
                found[name] = costs
                bars.write(arguments.json, {"trainings": figures(found)})
    print(f"load {os.getloadavg()[0]:.1f}\n{table(found)}")
    if arguments.quick:
        print(f"quick: {', '.join(names)} alone; wall time is not judged")
    return bars.finish("no_callback", arguments, list(judged(found)), trainings=figures(found))


def figures(found: Mapping[str, Costs]) -> dict[str, Any]:
    """Return all measurements for JSON."""
    return {name: asdict(costs) for name, costs in found.items()}


def pairs_of(name: str, *, is_quick: bool) -> int:
    """Return the number of pairs of a training, if the user has not chosen it."""
    if is_quick:
        return QUICK_PAIRS
    return FEWER_PAIRS if name in ("HuggingFace", "Keras") else PAIRS


def default_names(*, is_gpu: bool, is_quick: bool) -> list[str]:
    """Return the names of the trainings to measure."""
    names = [one.name for one in (ON_GPU if is_gpu else ON_CPU)]
    return names[:1] if is_quick else names


if __name__ == "__main__":
    sys.exit(main())
