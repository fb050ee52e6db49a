"""``powercap profile`` and ``powercap verify`` on simulated GPUs and in dry runs."""

import json
import re
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.cli import main
from energy_callbacks.cli.powercap import open_bench
from energy_callbacks.inference.planner.plan import Margin, Plan
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.profile import cleaner
from energy_callbacks.inference.profile.open_device import LocalDevice
from energy_callbacks.inference.profile.verify import verify
from energy_callbacks.inference.records import Configuration, Interval, Prediction, Tenant
from energy_callbacks.inference.simulated.presets import simulated_gpu
from energy_callbacks.inference.traces import read

PROFILE = ["powercap", "profile", "--gpu", "sim:h200", "--model", "resnet50"]
SIM = ["--gpu", "sim:h200", "--model", "resnet50"]
PACKAGE = Path(cleaner.__file__).parents[2]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Provide the path of a file of rows."""
    return tmp_path / "rows.csv"


@pytest.mark.parametrize(
    ("words", "phase", "count"),
    [
        (["--share", "50", "25", "--batch", "16"], "anchor", 1),
        (["--sweep", "anchor", "--share-step", "50", "--batch", "8", "16"], "anchor", 6),
        (["--sweep", "anchor", "--points", "5"], "anchor", 5),
        (["--sweep", "clock", "--sm-mhz", "1200", "1605"], "clock", 18),
        (["--sweep", "clock", "--limit-w", "400", "--batch", "8"], "clock", 3),
        (["--sweep", "static", "--batch", "8", "--iterations", "2"], "static", 6),
        (["--sweep", "idle", "--mem-mhz", "3201"], "idle", 1),
    ],
)
def test_every_sweep(words: list[str], phase: str, count: int, out: Path) -> None:
    """It has a row for each window, marked as simulated."""
    assert main([*PROFILE, *words, "--window", "1", "--warmup", "0", "--out", str(out)]) == 0
    rows = read(out)
    assert [(row.phase, row.source) for row in rows] == [(phase, "simulated")] * count


def test_out_of_memory_is_a_row(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its figures are unknown, not zero, and the sweep goes on."""
    words = ["--share-step", "10", "--tenants", "1", "10", "--batch", "16", "100000"]
    assert main([*PROFILE, *words, "--window", "1", "--out", str(out)]) == 0
    rows = read(out)
    failed = [row for row in rows if row.status == "oom"]
    assert failed
    assert all(row.throughput_per_s is row.power_mean_w is None for row in failed)
    assert rows[-2].status == "ok"
    assert "oom (simulated)" in capsys.readouterr().err


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_profile_without_figures_has_failed(
    more: list[str], out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 1, and the message has the note of a row; so it is if nothing is left."""
    words = [*PROFILE, "--share", "100", "--batch", "100000", "--window", "1", "--out", str(out)]
    for again in ([], ["--resume"]):
        assert main([*words, *again, *more]) == 1
        shown = capsys.readouterr()
        assert f"{out}: no row has figures; the last one: oom, {read(out)[-1].note}" in shown.err
        assert shown.out


def test_the_cpu_is_not_measured_silently(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], out: Path
) -> None:
    """A message says so if no GPU was found."""
    monkeypatch.setattr(open_bench, "device", lambda _: LocalDevice(uuid=None, name="CPU"))
    stand_in = nullcontext(simulated_gpu("sim:h200"))
    monkeypatch.setattr(open_bench, "LocalBench", lambda *_, **__: stand_in)
    words = ["--model", "resnet50", "--share", "50", "--window", "1", "--out", str(out)]
    assert main(["powercap", "profile", *words]) == 0
    assert "no GPU that CUDA may use was found; the CPU is measured" in capsys.readouterr().err


def test_a_file_is_continued_only_if_asked(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows of two profiles are not mixed by accident."""
    words = [*PROFILE, "--share", "50", "--window", "1", "--out", str(out)]
    assert main(words) == 0
    assert main(words) == 2
    assert "add --resume" in capsys.readouterr().err
    assert main([*words, "--resume", "--iterations", "3"]) == 0
    assert len(read(out)) == 3
    assert "[3/3]" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["sim:v100", "cpu"])
def test_a_file_of_another_gpu_is_not_continued(
    device: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of a simulated GPU do not count as measured, and files are not mixed."""
    assert main([*PROFILE, "--share", "50", "--window", "1", "--out", str(out)]) == 0
    before = out.read_bytes()
    words = ["--gpu", device, "--model", "resnet50", "--share", "50", "--out", str(out)]
    assert main(["powercap", "profile", *words, "--resume"]) == 2
    assert "has rows of NVIDIA H200 (simulated) with synthetic data" in capsys.readouterr().err
    assert out.read_bytes() == before


def test_an_incomplete_line(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is removed, with a warning, and its configuration is measured again."""
    words = [*PROFILE, "--share", "50", "--window", "1", "--out", str(out), "--iterations", "2"]
    assert main(words) == 0
    out.write_bytes(out.read_bytes()[:-20])
    assert main([*words, "--resume"]) == 0
    assert "the last line is incomplete" in capsys.readouterr().err
    assert len(read(out)) == 2


def test_a_file_that_is_no_trace_is_not_shortened(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last line has no end, as the last line of many files of users."""
    out.write_text("my notes\nabout this card")
    assert main([*PROFILE, "--share", "50", "--out", str(out), "--resume"]) == 2
    assert f"{out} is no trace" in capsys.readouterr().err
    assert out.read_text() == "my notes\nabout this card"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpu", "sim:h200"], "profile needs --model"),
        (["--gpu", "sim:h200", "--model", "unknown"], "has no model 'unknown'; it has"),
        (["--gpu", "cpu", "--model", "resnet51"], "there is no model 'resnet51'; use one of"),
        (["--gpu", "cpu", "--model", "zoo:vgg"], "there is no model 'zoo:vgg'; use one of"),
        (["--gpu", "cpu", "--model", "resnet50", "--share", "60", "60"], "at most 100 together"),
        (["--gpu", "cpu", "--model", "resnet50", "--sweep", "clock"], "needs --sm-mhz"),
        (["--gpu", "cpu", "--model", "resnet50", "--data", "/nowhere"], "there are no images"),
        ([*SIM, "--data", "images"], "sim:h200 reads no images; remove --data images"),
        (["--gpu", "5", "--model", "resnet50"], ""),
        ([*SIM, "--share-step", "0"], "step between shares must be above 0"),
        ([*SIM, "--batch", "0"], "batches must be at least 1, got [0]"),
        ([*SIM, "--sweep", "clock", "--sm-mhz", "1200", "--batch", "0"], "batches must be"),
        ([*SIM, "--sm-mhz", "1395", "1400"], "clock must be one of the card's values, got 1400"),
        ([*SIM, "--limit-w", "5"], "limit must be between 200 and 700 W, got 5"),
        ([*SIM, "--tenants", "0"], "numbers of tenants must be at least 1, got [0]"),
        ([*SIM, "--points", "0"], "--points must be at least 1, got 0"),
        ([*SIM, "--share", "nan"], "shares must be positive"),
    ],
)
def test_wrong_arguments(
    words: list[str], message: str, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is measured, and the message says what to change."""
    assert main(["powercap", "profile", *words, "--out", str(out)]) in (1, 2)
    assert message in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["profile", *SIM, "--window", "nan"], "must be a positive number of seconds, got 'nan'"),
        (["profile", *SIM, "--warmup=-1"], "must be 0 or a positive number of seconds, got '-1'"),
        (["verify", "plan.json", "--warmup", "x"], "must be 0 or a positive number of seconds"),
        (["profile", *SIM, "--load-timeout=-1"], "must be a positive number of seconds, got '-1'"),
    ],
)
def test_wrong_times(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The option is named, and what it must be."""
    with pytest.raises(SystemExit):
        main(["powercap", *words])
    assert message in capsys.readouterr().err


def test_a_dry_run(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints each configuration, and each change of a setting where it would happen."""
    words = ["--sweep", "clock", "--sm-mhz", "1200", "1605", "--batch", "8", "--dry-run"]
    assert main([*PROFILE, *words, "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].split(" ")[0] for line in lines] == [
        *("privileged", "[1/6]", "[2/6]", "[3/6]"),
        *("privileged", "[4/6]", "[5/6]", "[6/6]", "privileged", "6"),
    ]
    assert lines[0] == "privileged: set clock 1200 MHz"
    assert lines[-2] == "privileged: restore clock"
    assert not out.exists()


def plan(*, rate: float, power_w: float, cap_w: float) -> Plan:
    """Return a plan for two tenants with a prediction of 5 % to both sides."""
    tenant = Tenant(model="resnet50", share_pct=50.0, batch=32)
    rates, powers = (Interval(x, 0.95 * x, 1.05 * x) for x in (rate, power_w))
    return Plan(
        problem=Problem(models=("resnet50",), cap_w=cap_w),
        configuration=Configuration(tenants=(tenant, tenant)),
        prediction=Prediction(throughput_per_s=rates, power_w=powers, source="simulated"),
        method="enumeration",
        value=rate,
        bound=rate,
        bound_reason="",
        margin=Margin(sigma_w=1.0, sensor_error_w=1.0),
    )


def test_verify(tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan holds if both means are in their intervals and power keeps the cap."""
    rates = {"rate": 1.0, "power_w": 1.0, "cap_w": 1000.0}
    gpu = simulated_gpu("sim:h200")
    first = verify(plan(**rates), gpu, seconds=5, warmup_s=1.0)
    assert first.throughput is not None
    assert first.power is not None
    assert not first.holds(0.95)
    rate, power_w = first.throughput.measured, first.power.measured
    path = tmp_path / "plan.json"
    words = ["powercap", "verify", str(path), "--gpu", "sim:h200", "--seconds", "5"]
    for cap_w, code in ((1.05 * power_w, 0), (0.9 * power_w, 1)):
        plan(rate=rate, power_w=power_w, cap_w=cap_w).write(path)
        assert main([*words, "--json", "--out", str(out)]) == code
        found = json.loads(capsys.readouterr().out)
        assert found["share_within_cap"] == 1.0 - code
        assert found["source"] == "simulated"
        assert main(words) == code
        assert "on a simulated GPU" in capsys.readouterr().out
    assert [row.phase for row in read(out)] == ["online"] * 10


def test_verify_of_a_plan_that_cannot_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failure ends the verification, and the plan does not hold; nothing unknown is printed."""
    one = plan(rate=1.0, power_w=1.0, cap_w=1000.0)
    tenant = Tenant(model="resnet50", share_pct=50.0, batch=10**6)
    broken = replace(one, configuration=Configuration(tenants=(tenant,)))
    found = verify(broken, simulated_gpu("sim:h200"), seconds=5, warmup_s=0.0)
    assert found.windows == 0
    assert found.failure.startswith("oom")
    assert not found.holds(0.0)
    path = tmp_path / "plan.json"
    broken.write(path)
    assert main(["powercap", "verify", str(path), "--gpu", "sim:h200"]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first == "0 windows of 1 s on a simulated GPU"
    assert second.startswith("failed with status oom")
    assert last == "the plan does not hold"


def test_verify_measures_the_mode_of_the_plan(
    tmp_path: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan without a mode is of an earlier version: it is for inference, or what --mode names."""
    path, one = tmp_path / "plan.json", plan(rate=1.0, power_w=1.0, cap_w=1000.0)
    words = ["powercap", "verify", str(path), "--gpu", "sim:h200", "--seconds", "1"]
    for mode in ("train", "infer", None):
        replace(one, prediction=replace(one.prediction, mode=mode)).write(path)
        main([*words, "--out", str(out)])
    main([*words, "--mode", "train", "--out", str(out)])
    assert [row.mode for row in read(out)] == ["train", "infer", "infer", "train"]
    replace(one, prediction=replace(one.prediction, mode="train")).write(path)
    assert main([*words, "--mode", "infer"]) == 2
    assert f"{path} is for training, not for inference; use" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("field", "names", "text"),
    [
        (
            "gpu_name",
            ("NVIDIA H200", "NVIDIA H200 (simulated)", ""),
            "is for NVIDIA H200, but --gpu sim:h200 is NVIDIA H200 (simulated); name",
        ),
        (
            "dataset",
            ("caltech256", "synthetic", ""),
            "is for caltech256 data, but this command uses synthetic data; choose",
        ),
    ],
)
def test_verify_refuses_a_plan_for_another_gpu_or_other_data(
    field: str,
    names: tuple[str, ...],
    text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first name is another one, which the message has; earlier versions wrote none."""
    path, one = tmp_path / "plan.json", plan(rate=1.0, power_w=1.0, cap_w=1000.0)
    words = ["powercap", "verify", str(path), "--gpu", "sim:h200", "--seconds", "1"]
    for name, code in zip(names, (2, 1, 1), strict=True):
        replace(one, prediction=replace(one.prediction, **{field: name})).write(path)
        assert main(words) == code
        assert (f"{path} {text}" in capsys.readouterr().err) is (code == 2)


def test_verify_refuses_models_that_do_not_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message comes before a process is started."""
    path = tmp_path / "plan.json"
    tenant = Tenant(model="resnet51", share_pct=50.0, batch=1)
    one = plan(rate=1.0, power_w=1.0, cap_w=1000.0)
    replace(one, configuration=Configuration(tenants=(tenant,))).write(path)
    assert main(["powercap", "verify", str(path), "--gpu", "cpu"]) == 2
    assert "there is no model 'resnet51'" in capsys.readouterr().err


def test_no_file_or_message_is_run_as_code() -> None:
    """Predictors, plans, traces and answers of tenants are data: JSON or CSV."""
    sources = [
        path for part in ("inference", "cli/powercap") for path in PACKAGE.glob(f"{part}/**/*.py")
    ]
    assert len(sources) > 50
    unsafe = re.compile(
        r"pickle|joblib|(?<![.\w])(?:eval|exec)\(|torch\.load|shell=True|os\.system"
    )
    assert {path.name for path in sources if unsafe.search(path.read_text())} == set()


def test_nothing_asks_for_input_or_ends_processes_by_name() -> None:
    """No code of the power cap waits for a person, takes a password, or kills by a name."""
    folders = (PACKAGE / "inference", PACKAGE / "powercap", PACKAGE / "cli" / "powercap")
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    assert len(sources) > 50
    wanted = re.compile(r"\binput\(|getpass|sudo.*-S\b|pkill|killall")
    found = {path.name: wanted.findall(path.read_text()) for path in sources}
    assert {name: words for name, words in found.items() if words} == {}
