"""A training in real time with a run of W&B: ``python -m tests.trackers.wandb_script END``.

The run is opened after the meter has started, as by Hugging Face's callback. ``END`` is one of:

- ``exits``: the script ends, and W&B finishes the run at the exit of the interpreter.
- ``finishes``: the script finishes the run at once, before there is a report.
- ``waits``: the script waits for the report, then finishes the run.
"""

import sys
from pathlib import Path

import wandb

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.dashboard import Dashboard
from energy_callbacks.outputs.wandb_run import WandbRun
from tests.accounting.interrupted import Steady


def main(end: str) -> None:
    """Train for a step, and end in one of the three ways."""
    config = EnergyConfig(report_dir=Path("energy"))
    meter = EnergyMeter(config=config, sources=[Steady()]).start()
    run = wandb.init(project="ours")
    dashboard = Dashboard(meter, runs=lambda: [WandbRun(run, step="step")])
    meter.enter("train")
    assert meter._wait_until_seen(meter.now_s(), 60.0)
    meter.step(samples=4)
    with meter.ending() as ending:
        dashboard.row(meter.log(1), 1)
        ending.pages = dashboard.pages(dict, 1)
    if end == "waits":
        assert meter.wait_for_report() is not None
    if end != "exits":
        run.finish()


if __name__ == "__main__":
    main(sys.argv[1])
