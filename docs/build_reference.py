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

These tags are the same in every framework.
The unit is the end of the name: `_w` watt, `_wh` watt-hour, `_j` joule, `_g` gram of CO2 equivalent, `_gib` 2**30 bytes, `_s` second, `_c` degree Celsius, `_mhz` megahertz, `_fraction` 0 to 1.

A tag is absent where its figure is not known: on a machine without a GPU there is no `power/gpu_w`, not even as zero.
A value that is logged at step N covers the newest span that was fully seen since the value before it; sensors lag behind by up to about a second, and no hook waits for them.
`efficiency/*` reach back beyond that span, over earlier steps of the same phase and up to a minute, until the random part of their 95 % interval is 5 % or less: so neighbouring values may share steps, and a change shows up a little later in them than in `power/*` and `throughput/*`.
Where a minute is not enough, the value stands there with its wide interval, and the report has one notice, `short_span`, with what was reached and what would help.
The systematic bound is a share of every span alike, so it neither widens a span nor shrinks with it.
Where CUDA events date the steps (`step_events=True`), mean power times the bound of each end's error is part of the random error; the error of a host mark is not known and adds nothing.
Where nothing new has been seen since the row before, its values stand there again: so do not sum rows, take `energy/*_wh`.
The last value of a run reaches to its very end.
With several processes the figures are those of the first host: all its GPUs, and the samples of all its ranks.
The energy of waiting for data has no tag, because waits of a few seconds tell too little of it: the report has it for the whole run, `throughput.data_wait`, with its interval (see [the report](report.md#waiting-for-data)).

| tag | meaning |
|---|---|
{rows}

{intervals} have `_lo` and `_hi` beside them: the ends of the 95 % interval, from noise (1.96 standard errors), the error from the edges of time spans, and the systematic bound of the sensor or model.
`emissions/total_g` itself is absent where nobody said which place the machine stands at; its interval is there all the same.

At the end of a training these stand once, at the last step; what is not known is absent.
They cover the whole run, over all its attempts, unlike the last rows of the tags above; see [TensorBoard](../tensorboard.md).

| tag | meaning |
|---|---|
{final}
| `final/<name>` | the last value of your own metric `<name>` |
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
