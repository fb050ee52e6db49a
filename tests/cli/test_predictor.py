"""``energy-callbacks powercap fit`` and ``predict``."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.cli import main
from energy_callbacks.inference.predictor import Predictor
from energy_callbacks.inference.traces import write
from tests.inference.predictor.law import equal, grid, measured

UNTRIED = equal("small", 4, 25.0, 4)
PREDICT = ["powercap", "predict", "--model", "small", "--share", "50", "50", "--batch", "16"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a folder with a trace of two datasets, and the predictor of one.

    One combination of settings, four tenants with a batch of 4, was not measured.
    """
    folder = tmp_path_factory.mktemp("fit")
    other = [replace(one, dataset="caltech256", power_mean_w=500.0) for one in grid()]
    windows = [one for one in grid() if one.configuration != UNTRIED]
    write(folder / "trace.csv", [*windows, *other])
    Predictor.fit_only(windows).save(folder / "predictor.json")
    return folder


def fit(folder: Path) -> list[str]:
    """Return the command that fits the trace in a folder."""
    files = [str(folder / "trace.csv"), "--out", str(folder / "predictor.json")]
    return ["powercap", "fit", *files]


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return the JSON that was printed."""
    return json.loads(capsys.readouterr().out)


def test_fit_prints_errors_and_what_to_measure_next(
    fitted: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors on windows that were left out are in the table and in the JSON."""
    command = [*fit(fitted), "--dataset", "imagenet"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "11 simulated windows" in text
    assert "one batch" in text
    assert "one number of tenants" in text
    assert "measure next: 4 x small, share 25 %, batch 4\n" in text
    written = Predictor.load(fitted / "predictor.json")
    monkeypatch.setattr(Predictor, "fit", lambda *_, **__: written)  # the same fit takes seconds
    assert main([*command, "--json"]) == 0
    found = printed(capsys)
    assert found["dataset"] == "imagenet"
    assert {one["setting"] for one in found["held_out"]} == {"batch", "share", "tenants"}
    assert found["next"]["tenants"] == [asdict(one) for one in UNTRIED.tenants]
    assert all(one["power_error"] < 0.2 for one in found["held_out"])


def test_several_datasets_are_refused(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --dataset the trace is not fitted."""
    assert main(fit(fitted)) == 2
    assert "several values of dataset: 'caltech256', 'imagenet'" in capsys.readouterr().err


def test_a_selection_without_windows_is_an_error(
    fitted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has what the first window has, so that a misspelt name is found."""
    assert main([*fit(fitted), "--dataset", "image-net"]) == 2
    assert "the first window has dataset 'imagenet', gpu_name" in capsys.readouterr().err


def test_predict(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Throughput, power and latency have intervals, and the source is named."""
    command = [*PREDICT, "--predictor", str(fitted / "predictor.json")]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert "from simulated windows of law" in text
    assert "small 50 %, batch 16" in text
    assert main([*command, "--json"]) == 0
    found = printed(capsys)["prediction"]
    true = measured(equal("small", 2, 50.0, 16)).power_mean_w
    assert found["power_w"]["value"] == pytest.approx(true, rel=0.05)
    assert found["power_w"]["low"] < found["power_w"]["value"] < found["power_w"]["high"]
    assert len(found["tenant_latencies_ms"]) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dataset", "caltech256"], "with dataset 'imagenet', not 'caltech256'"),
        (["--batch", "1", "2", "3"], "one for each tenant, got 1, 2 and 3 values"),
        (["--model", "vgg19"], "no window of vgg19 was measured"),
        (["--mem-mhz", "1215"], "with mem_mhz None, not 1215.0"),
        (["--share", "60", "60"], "at most 100 together, got [60.0, 60.0]"),
        (["--share", "nan"], "at most 100 together, got [nan]"),
        (["--batch", "0"], "batches must be at least 1"),
        (["--limit-w", "-5"], "must be positive and finite, got -5"),
    ],
)
def test_what_cannot_be_predicted_is_an_error(
    fitted: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    """The message says why."""
    assert main([*PREDICT, "--predictor", str(fitted / "predictor.json"), *options]) == 2
    assert message in capsys.readouterr().err
