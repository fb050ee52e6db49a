"""Measures a command at several settings of the GPUs, such as power limits.

A sweep is a matrix whose parameter is the setting. Its jobs run one after the other, because all
use the same GPUs, and in random order, so that a drift over time, such as warming, is not mistaken
for an effect of the setting.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from energy_callbacks.matrix.attempts import Results
from energy_callbacks.matrix.engines.local import LocalEngine
from energy_callbacks.matrix.plan import MatrixJob, MatrixPlan
from energy_callbacks.matrix.progress import JobProgress
from energy_callbacks.powercap.safety.changed_cards import ChangedCards
from energy_callbacks.powercap.settings import Knob, Setting

PARAMETERS: Final[dict[Knob, str]] = {"limit": "limit_w", "clock": "clock_mhz"}
"""Names of the parameter, by knob."""

UNLOCKED: Final = "unlocked"


def plan(
    command: Sequence[str],
    settings: Sequence[Setting],
    *,
    baseline: Setting | None,
    repeats: int,
    cool_down_s: float,
    folder: Path,
) -> MatrixPlan:
    """Return the plan of a sweep.

    Args:
        command: program and arguments.
        settings: settings of one knob. The command finds the value in the environment variable
            ``SWEEP_LIMIT_W`` or ``SWEEP_CLOCK_MHZ``.
        baseline: the setting to compare the others with, which is measured, too; ``None`` compares
            with the setting of the lowest energy.
        repeats: number of runs of each setting.
        cool_down_s: pause before each run but the first, s.
        folder: working directory of the command.

    Raises:
        ValueError: if there are fewer than two settings, or if a value is invalid.
    """
    every = [*([] if baseline is None else [baseline]), *settings]
    values = list(dict.fromkeys(map(_text, every)))
    if len(values) < 2:
        raise ValueError(f"a sweep needs at least two settings, got {', '.join(values) or 'none'}")
    parameter = PARAMETERS[settings[0].knob]
    return MatrixPlan(
        name=f"sweep-{parameter}",
        command=[word.replace("{", "{{").replace("}", "}}") for word in command],
        parameters={parameter: values},
        repeats=repeats,
        cool_down_s=cool_down_s,
        baseline=None if baseline is None else {parameter: _text(baseline)},
        graphs=False,
        env={f"SWEEP_{parameter.upper()}": f"{{{parameter}}}"},
        folder=folder,
    )


def run(
    sweep: MatrixPlan, results: Results, cards: ChangedCards, progress: JobProgress
) -> int | None:
    """Run the jobs that have not succeeded yet, each at its setting.

    Returns:
        The number of the signal that interrupted the jobs; ``None`` if they were not interrupted.

    Raises:
        PowerCapError: if a setting cannot be changed, for example because another program has
            changed it; no further job runs.
    """
    missing = results.missing(_shuffled(sweep))
    for job in missing:
        results.check_free(job)
    engine = LocalEngine(gpus=None)
    for number, job in enumerate(missing):
        time.sleep(results.cool_down_s if number else 0.0)
        cards.set(_setting(job))
        if (signal_number := engine.run([job], results, progress)) is not None:
            return signal_number
    return None


def _shuffled(sweep: MatrixPlan) -> list[MatrixJob]:
    """Return all jobs repeat by repeat, with each repeat in random order."""
    return sorted(sweep.jobs(), key=lambda job: (job.repeat, random.random()))  # noqa: S311


def _text(setting: Setting) -> str:
    return UNLOCKED if setting.value is None else f"{setting.value:g}"


def _setting(job: MatrixJob) -> Setting:
    [(parameter, text)] = job.parameters.items()
    knob: Knob = next(knob for knob, name in PARAMETERS.items() if name == parameter)
    return Setting(knob=knob, value=None if text == UNLOCKED else float(text))
