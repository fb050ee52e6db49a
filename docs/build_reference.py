"""Generates the reference pages from the code: ``python docs/build_reference.py``.

``tests/docs/test_reference.py`` fails if a page differs from the code.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from energy_callbacks.accounting.metrics.tags import INTERVALS, TAGS
from energy_callbacks.cli import build_parser
from energy_callbacks.report_process.pages import FINAL

FOLDER = Path(__file__).parent / "reference"

METRICS = """# Metrics

These metrics are logged during the training, under the same names (tags) in every framework.
The end of a name is its unit: `_w` watt, `_wh` watt-hour, `_j` joule, `_g` gram of CO2 equivalent, `_gib` 2**30 bytes, `_s` second, `_c` degree Celsius, `_mhz` megahertz, `_fraction` 0 to 1.
A *run* is a training from its first start to its last end. Each start is an *attempt*, so a run that was resumed has several.

| tag | meaning |
|---|---|
{rows}

Unknown values are absent: on a machine without a GPU there is no `power/gpu_w`, not even with the value zero.

## Intervals

{intervals} also have tags with the suffixes `_lo` and `_hi`.
These are the ends of the 95 % interval. It includes noise (1.96 standard errors), the error from the edges of time spans, and the systematic bound of the sensor or model.
If the location of the machine is not set, `emissions/total_g` is absent, but its interval is logged.

## The time that a value covers

- A value that is logged at step N covers the time since the previous value, up to the newest complete readings. Sensors are delayed by up to about a second, and no hook waits for them.
- `energy/*` and `emissions/*` are totals since the start of the run. To get the energy of a run, use the last value of `energy/*_wh`, not a sum over rows.
- If there are no new readings since the previous row, its values are repeated.
- The last values of a run cover it up to its end.
- With several processes, values are those of the first host: all its GPUs, and the samples of all ranks.

`efficiency/*` cover a longer time: earlier steps of the same phase are included, up to a minute, until the random part of the 95 % interval is at most 5 %.
So successive values may share steps, and show a change later than `power/*` and `throughput/*`.
If a minute is not enough, the value is logged with its wide interval. The report then has one note, `short_span`, with the error that was reached and what would help.
The systematic bound is the same share of every time span, so it does not affect this choice.
If CUDA events measure the ends of steps (`step_events=True`), the random error includes the mean power times the error bound of each end. Otherwise the error of the ends is not known, and nothing is added.

The energy of waiting for data has no tag, because short waits are not sufficient to measure it. The report has it for the whole run, with its interval, as `throughput.data_wait` (see [the report](report.md#waiting-for-data)).

## At the end of the training

The following values are logged once, at the last step; unknown values are absent.
They cover the whole run over all its attempts, unlike the last rows of the tags above; see [TensorBoard](../tensorboard.md).

| tag | meaning |
|---|---|
{final}
| `final/<name>` | the last value of your metric `<name>` |
"""


def metrics() -> str:
    """Return the page of metrics, which defines their names and units."""
    rows = "\n".join(f"| `{tag}` | {meaning} |" for tag, meaning in TAGS.items())
    final = "\n".join(f"| `{tag}` | {meaning} |" for tag, meaning in FINAL.items())
    named = [f"`{tag}`" for tag in INTERVALS]
    intervals = ", ".join(named[:-1]) + " and " + named[-1]
    return METRICS.format(rows=rows, intervals=intervals, final=final)


def cli() -> str:
    """Return the page of commands, with the help of each."""
    os.environ["COLUMNS"] = "88"
    parser = build_parser()
    return "\n".join(["# Commands\n", _help(parser), *_commands(parser, "##")])


def _commands(parser: argparse.ArgumentParser, heading: str) -> Iterator[str]:
    """Yield heading and help of each command of a parser, and of its actions."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public access to its commands
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                yield from (f"{heading} `{command.prog}`\n", _help(command))
                yield from _commands(command, f"{heading}#")


def _help(parser: argparse.ArgumentParser) -> str:
    return f"```text\n{parser.format_help()}```\n"


PAGES = {"metrics.md": metrics, "cli.md": cli}


if __name__ == "__main__":
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")
