"""A benchmark on a GPU with real processes: simulated NVML, and a stand-in for MPS's daemon."""

import csv
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.cli import main
from energy_callbacks.cli.powercap import open_bench
from energy_callbacks.inference.bench.predictors import configurations
from energy_callbacks.inference.bench.real_device import RealDevice, is_named
from energy_callbacks.inference.bench.tasks import Task, tasks
from energy_callbacks.inference.profile.open_device import LocalDevice
from energy_callbacks.inference.records import MeasuredWindow, Tenant
from energy_callbacks.inference.simulated.presets import simulated_gpu
from energy_callbacks.inference.traces import write
from tests.core.waiting import until
from tests.inference.profile import conftest
from tests.inference.profile.conftest import ROOT, STEADY, Machine
from tests.inference.profile.test_local_bench import AdminNvmlActuator, administrator, card_uuid
from tests.powercap.safety import conftest as safety

__all__ = ["administrator"]
machine, fake_nvml = conftest.machine, conftest.fake_nvml
H200 = LocalDevice(uuid="GPU-1", name="NVIDIA H200")


def device(gpu: str = "h200", **data: Path | None) -> RealDevice:
    """Return a GPU whose settings must not be changed."""
    return RealDevice(H200, gpu, data=data, settings=lambda: None, ranges={})


def task(number: int) -> Task:
    """Return a published task."""
    return tasks()[number - 1]


def profile() -> list[MeasuredWindow]:
    """Return a profile of the model of the tests, which is not measured because that takes long."""
    gpu = simulated_gpu("sim:h200")
    rows = [
        gpu.measure(one, window_s=5.0, warmup_s=3.0) for one in configurations("resnet50", (), 8)
    ]
    return [
        replace(
            row,
            source="measured",
            gpu_name=H200.name,
            dataset="noise (synthetic)",
            configuration=replace(
                row.configuration,
                tenants=tuple(
                    Tenant(model=STEADY, share_pct=one.share_pct, batch=one.batch)
                    for one in row.configuration.tenants
                ),
            ),
        )
        for row in rows
    ]


def command(machine: Machine, algorithm: str) -> list[str]:
    """Return the words of a benchmark with one short run, whose profile exists."""
    out, path = machine.folder / "out", machine.folder / "mine.toml"
    line = f'gpu = "h200", model = "{STEADY}", dataset = "noise", cap_w = 350'
    path.write_text(f"task = [{{ id = 1, {line} }}]")
    (out / "profiles").mkdir(parents=True)
    write(out / "profiles" / f"h200_{STEADY}_noise_infer.csv", profile())
    return [
        *("powercap", "bench", "--gpu", "0", "--tasks", str(path), "--out", str(out)),
        *("--algorithm", algorithm, "--iterations", "3", "--window", "0.3"),
        *("--data", "noise=synthetic"),
    ]


def test_settings_are_changed_with_consent_and_restored(
    administrator: AdminNvmlActuator, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --yes, a controller sets a limit; the value found is back at the end."""
    words = [*command(machine, "powercap"), "--yes"]
    assert main([*words, "--dry-run"]) == 0
    assert re.search(r"may change limit.* through nvml; the", capsys.readouterr().out)
    assert administrator.read(card_uuid(0), "limit") == 650.0
    assert main(words) == 0
    (path,) = machine.folder.glob("out/h200_powercap/*.csv")
    with path.open(newline="") as file:
        assert {line["power_limit_w"] for line in csv.DictReader(file)} == {"350.0"}
    assert administrator.read(card_uuid(0), "limit") == 650.0


def test_processes_serve_and_nothing_is_left(machine: Machine) -> None:
    """Rows are measured, with the power of the GPU; no setting is changed, no process is left."""
    words, out = command(machine, "morak"), machine.folder / "out"
    done = subprocess.run(
        [sys.executable, "-m", "energy_callbacks", *words, "--save-summary"],
        env=os.environ | machine.nvml.env(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "The share of the optimum is not known" in done.stdout
    with (out / "h200_morak" / f"1_{STEADY}_noise_350W.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [int(one["iter"]) for one in lines] == [0, 1, 2]
    for one in lines:
        assert (one["source"], one["gpu"]) == ("measured", "NVIDIA H200")
        assert one["dataset"] == "noise (synthetic)"
        assert float(one["power_avg"]) == pytest.approx(300.0, rel=0.05)
        assert not one["timestamp"].startswith("1970")
    # Not of each: the processes may have had no processor in a window.
    assert max(float(one["throughput_total"]) for one in lines) > 0.0
    assert lines[0]["degraded"]
    until(lambda: not machine.left())


def test_kill_9(administrator: AdminNvmlActuator, machine: Machine) -> None:
    """The limit found is back within two seconds, no process is left, and the run can resume."""
    words = [*command(machine, "powercap"), "--yes", "--iterations", "20"]
    path = machine.folder / "out" / "h200_powercap" / f"1_{STEADY}_noise_350W.csv"
    part = path.with_name(f"{path.name}.part")
    job = subprocess.Popen(
        [sys.executable, "-m", "tests.inference.serve.server_job", *words[1:]],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    machine.jobs.append(job)
    until(lambda: part.exists() and part.read_text().count("\n") > 2)
    assert administrator.read(card_uuid(0), "limit") == 350.0
    pids = safety.family(job.pid)
    os.killpg(job.pid, signal.SIGKILL)
    slept_s = safety.slept_until(lambda: administrator.read(card_uuid(0), "limit") == 650.0, *pids)
    assert slept_s < safety.RESTORED_S
    until(lambda: not machine.left())
    assert not path.exists()
    assert main([*words, "--resume"]) == 0
    with path.open(newline="") as file:
        assert [int(line["iter"]) for line in csv.DictReader(file)] == list(range(20))
    assert len(list(machine.folder.glob("out/interrupted/*.csv"))) == 1
    assert administrator.read(card_uuid(0), "limit") == 650.0


def test_names_of_gpus() -> None:
    """Tasks use the short names of presets."""
    for name, gpu in (
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA H200", "h200"),
        ("Tesla V100-SXM2-32GB", "v100"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx3080ti"),
    ):
        assert is_named(name, gpu)
        assert not is_named(name, "a10")
    assert is_named("NVIDIA A10", "a10")


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("NVIDIA GeForce RTX 3080 Ti", "rtx3080"),
        ("NVIDIA GeForce RTX 3080 Laptop GPU", "rtx3080"),
        ("NVIDIA GH200 480GB", "h200"),
        ("NVIDIA L40S", "l40"),
        ("NVIDIA A10G", "a10"),
    ],
)
def test_similar_names_are_other_gpus(name: str, gpu: str) -> None:
    """A task of one card does not run on a card with a longer name."""
    assert not is_named(name, gpu)


def test_a_task_of_another_card() -> None:
    """It does not run on this one, nor silently on a simulated one."""
    with pytest.raises(ValueError, match="task 20 is for a100, and --gpu is NVIDIA H200; use"):
        device("a100", imagenet=None).check(task(20))


def test_data_are_named(tmp_path: Path) -> None:
    """A task needs the images of its set of data, or consent to synthetic ones."""
    own = replace(task(27), gpu="h200")  # caltech256
    with pytest.raises(ValueError, match="task 27 needs images of caltech256; add --data"):
        device(imagenet=tmp_path).check(own)
    device(caltech256=None).check(own)
    assert device(caltech256=None).dataset(own) == "caltech256 (synthetic)"
    assert device(caltech256=tmp_path).dataset(own) == "caltech256"


def test_a_folder_without_images(tmp_path: Path) -> None:
    """It is an error before the first run, also if the folder does not exist."""
    own = replace(task(27), gpu="h200")
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileNotFoundError, match="there are no images"):
            device(caltech256=folder).check(own)
    (tmp_path / "1.png").touch()
    device(caltech256=tmp_path).check(own)


def test_a_model_that_does_not_exist() -> None:
    """The models of traces cannot run."""
    own = replace(task(20), gpu="h200", model="shufflenetv2")
    with pytest.raises(ValueError, match="there is no model 'shufflenetv2'; use one of"):
        device(imagenet=None).check(own)


def test_no_gpu_is_not_a_simulated_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Without a GPU, the message names the option for simulated ones."""
    monkeypatch.setattr(open_bench, "device", lambda _: LocalDevice(uuid=None, name="CPU"))
    assert main(["powercap", "bench", "--out", str(tmp_path / "out")]) == 2
    assert "there is no GPU that CUDA may use; use --gpu sim" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["imagenet", "=x", "imagenet="])
def test_wrong_data(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has the form and the value."""
    monkeypatch.setattr(open_bench, "device", lambda _: H200)
    assert main(["powercap", "bench", "--gpu", "0", "--data", word]) == 2
    assert f"--data must be NAME=DIR or NAME=synthetic, got {word!r}" in capsys.readouterr().err


def test_the_tasks_of_a_real_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tasks of other cards are left out; without --yes, no clock and no limit is changed."""
    monkeypatch.setattr(open_bench, "device", lambda _: replace(H200, name="NVIDIA A100-SXM4"))
    words = ["--gpu", "0", "--algorithm", "morak", "--dry-run", "--data"]
    data = ["imagenet=synthetic", "caltech256=synthetic"]
    assert main(["powercap", "bench", *words, *data]) == 0
    shown = capsys.readouterr().out
    assert "16 runs" in shown
    assert "controllers change shares, batches and pauses only; --yes allows" in shown
    assert ": bench/a100_morak/15_mnasnet_imagenet_70W.csv" in shown
