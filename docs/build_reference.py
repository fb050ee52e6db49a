"""Generates the reference pages from the code: ``python docs/build_reference.py``.

``tests/docs/test_reference.py`` fails if a page differs from the code.
"""

import argparse
import ast
import os
from collections.abc import Iterator
from pathlib import Path

from energy_callbacks.accounting.metrics.tags import INTERVALS, TAGS
from energy_callbacks.cli import build_parser
from energy_callbacks.report_process.pages import FINAL
from energy_callbacks.sensing.sources.sysfs import families
from energy_callbacks.sensing.sources.sysfs.family import Family, FileSensor

FOLDER = Path(__file__).parent / "reference"
ROOT = Path(__file__).parents[1]

FILES = """# Files

Each module of the source with the first line of its docstring.
[Architecture](../architecture.md) says how they depend on each other, and where a change goes.
{folders}"""

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
- `energy/*` and `emissions/*` are totals since the start of the run. To get the energy of a run, use the last value of `energy/*_wh`, not a sum over rows. Totals never fall: if later readings lower an energy, the last value is repeated until it is exceeded. The report has the corrected energy.
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

The following values are logged once, at the last step; unknown values are absent, as are those of energies that are not resolved.
They cover the whole run over all its attempts, unlike the last rows of the tags above; see [TensorBoard](../tensorboard.md).

| tag | meaning |
|---|---|
{final}
| `final/<name>` | the last value of your metric `<name>` |
"""

SENSORS = """# Sensors

This page lists the sensors that can be read, what their values include, and on what each was tested.
`energy-callbacks doctor` shows which of them this machine has.
[How it measures](../how-it-measures.md) describes how energy is computed from the readings.

| family | power and energy include | energy counter | power | error bound | tested on |
|---|---|---|---|---|---|
| NVIDIA GPU (NVML) | the whole card | yes | yes | 5 %; 10 % before Pascal | H100 and H200; older cards with a simulated NVML |
| CPU and memory (RAPL) | CPU packages, their memory | yes | no | 10 %; 20 % for memory | modelled files |
| CPU and memory (perf events) | CPU packages, their memory | yes | no | 10 %; 20 % for memory | simulated calls |
| Apple silicon (`powermetrics`) | CPU, GPU, Neural Engine | yes | no | 20 % | modelled output |
| Server (IPMI), [if you ask for it](../machine-power.md) | the whole server | no | yes | 10 % | modelled output |
| CPU and memory (estimate) | CPU and memory by CodeCarbon's models | no | model | 50 or 100 % | not on hardware |
{families}

*Modelled files* are folders with the files that the documentation of the Linux kernel describes, *modelled output* is text in the documented format of a command. Their values follow a known power, so that the measured energy can be compared with the exact one. They cannot show whether the sensor of a real device is accurate.
An error bound is the largest relative error of the sensor that is taken into account in the intervals of the report.

## Sensors in files of Linux

Each family below is read without libraries of the vendor, from files in `/sys`.
In a container, mount the folder `/sys` of the host to another path, and set the environment variable `ENERGY_CALLBACKS_SYSFS` to that path.

The same rules apply to all families:

- Power and energy are read every 0.8 s. For 8 s after a change of phase they are read every 0.05 s, or twice per period of a slower sensor. Without an energy counter, power is read once per period of its sensor, about every 0.05 to 0.8 s, or every 0.1 s if the period is not known. Other quantities are read every 1.6 s, limits every 4.8 s.
- A value that means "not available", such as `N/A` or all bits set, is no reading. It never counts as zero.
- A counter that continues at 0 after the end of its range loses nothing; the report has a note. If a counter is reset, the energy in the interval of the reset is not known, which lowers the coverage.
- A counter that has stopped has no readings until it counts again. For this, the family must state how long a value of the counter can stay the same.
- A device that is gone is opened again within a second after it is back.
- Files that the user must not read are named in the report, with what to do about it.
{tables}
## Adding a vendor

A family needs three things:

1. A file in `energy_callbacks/sensing/sources/sysfs/` with a `Family`: a function that finds the devices below `/sys`, and a table with a `FileSensor` for each quantity. Each row names the files, the unit, and the document in which the unit is stated.
2. A line in `families.py`, in the list of GPUs or of sensors of the machine.
3. A case in `tests/sensing/sources/conformance/`: a function that makes a tree of files for a device, and the values that its gauges have. The file `acme.py` there has a made-up family with its cases. The suite then tests the family with wraps, resets, missing values, missing files, missing permissions, stopped counters, two devices, and devices that are unplugged while they are read.

The same suite tests all other sources: NVML, RAPL, perf events, `amdsmi`, `ipmitool` and `powermetrics`. Each case states which of these faults cannot occur at its sensor, and why; a source without a case fails the suite.

`python docs/build_reference.py` adds the family to this page.
"""
QUANTITIES = {
    "utilisation": "load",
    "memory_used": "memory used",
    "power_limit": "power limit",
    "throttled": "throttled time",
}


def metrics() -> str:
    """Return the page of metrics, which defines their names and units."""
    rows = "\n".join(f"| `{tag}` | {meaning} |" for tag, meaning in TAGS.items())
    final = "\n".join(f"| `{tag}` | {meaning} |" for tag, meaning in FINAL.items())
    named = [f"`{tag}`" for tag in INTERVALS]
    intervals = ", ".join(named[:-1]) + " and " + named[-1]
    return METRICS.format(rows=rows, intervals=intervals, final=final)


def sensors() -> str:
    """Return the page of sensors, with the tables of all families of sensors in files."""
    known = (*families.GPU_FAMILIES, *families.HOST_FAMILIES, *families.NAMED_FAMILIES)
    return SENSORS.format(
        families="\n".join(map(_family_row, known)), tables="".join(map(_sensor_table, known))
    )


def _family_row(family: Family) -> str:
    errors = {row.relative_error for row in family.sensors if row.quantity in ("power", "energy")}
    bounds = " or ".join(f"{100 * error:g} %" for error in sorted(errors))
    has = {row.quantity for row in family.sensors}
    counter, power = ("yes" if quantity in has else "no" for quantity in ("energy", "power"))
    return f"| {family.name} | {family.covers} | {counter} | {power} | {bounds} | modelled files |"


def _sensor_table(family: Family) -> str:
    rows = "\n".join(map(_sensor_row, family.sensors))
    return f"""
### {family.name}

| quantity | file | updated every | source |
|---|---|---|---|
{rows}

- No permission: {family.permission_fix.rstrip(".")}.
- No sensor: {family.absence_fix.rstrip(".")}.
"""


def _sensor_row(row: FileSensor) -> str:
    files = " or ".join(f"`{pattern}`" for pattern in row.files)
    if row.times:
        files += " times " + " or ".join(f"`{pattern}`" for pattern in row.times)
    if row.plus:
        files += " plus " + " or ".join(f"`{pattern}`" for pattern in row.plus)
    period = "not known" if row.period_s is None else f"{row.period_s:g} s"
    quantity = QUANTITIES.get(row.quantity, row.quantity.replace("_", " "))
    return f"| {quantity} | {files} | {period} | {row.citation} |"


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


def files() -> str:
    """Return the page of all modules, by folder."""
    tops = [ROOT / "energy_callbacks", *sorted((ROOT / "integrations").glob("energy_callbacks_*"))]
    inits = [init for top in tops for init in sorted(top.rglob("__init__.py"))]
    return FILES.format(folders="".join(_folder(init.parent) for init in inits))


def _folder(folder: Path) -> str:
    modules = [one for one in sorted(folder.glob("*.py")) if one.name != "__init__.py"]
    rows = [f"- `{one.name}`: {_first_line(one)}" for one in modules]
    title = f"## `{folder.relative_to(ROOT)}/`"
    return "\n".join(["", title, "", _first_line(folder / "__init__.py"), "", *rows, ""])


def _first_line(path: Path) -> str:
    found = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return found.partition("\n")[0].replace("``", "`")


PAGES = {"metrics.md": metrics, "cli.md": cli, "sensors.md": sensors, "files.md": files}


if __name__ == "__main__":
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), encoding="utf-8")
