"""Tests of ``energy-callbacks profile`` with scripts that do not import this package."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from energy_callbacks.cli import main
from energy_callbacks.report import EnergyReport, load
from tests.core.waiting import until
from tests.fake_nvml import Constant, Scenario, env, h200
from tests.integrations.processes import SHARED, Forking, Running, Script, wait

POWER_W = 300.0
HOST_ONLY = ("--no-kernels", "--no-lines", "--host")


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Provide a machine with one card of constant power."""
    folder = tmp_path_factory.mktemp("card")
    scenario = Scenario(cards=(h200(Constant(POWER_W)),)).write(folder / "scenario")
    return env(scenario) | SHARED


class Profiled:
    """Runs scripts inside ``profile``, in forks of one process, with one run folder."""

    def __init__(self, folder: Path, surroundings: dict[str, str], forking: Forking) -> None:
        self.folder = folder
        self.surroundings = surroundings
        self._forking = forking
        self._script: Script | None = None
        self._running: Running | None = None

    def start(self, script: str, *arguments: str, options: tuple[str, ...] = HOST_ONLY) -> Running:
        """Start a script from a folder below the working directory."""
        path = self.folder / "project" / "script.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(script))
        return self.command(*options, "--", str(path), *arguments)

    def command(self, *words: str) -> Running:
        """Start ``profile`` with any arguments."""
        self._script = Script(
            module="tests.cli.command",
            folder=self.folder,
            arguments=("profile", "--out", str(self.folder / "run"), *words),
            environment=self.surroundings,
        )
        self._running = self._forking.start(self._script)
        return self._running

    @property
    def output(self) -> str:
        """The output of the script and of ``profile``, both streams."""
        assert self._script is not None
        return self._script.output

    @property
    def said(self) -> list[str]:
        """The lines of ``output`` without our summary."""
        return [one for one in self.output.splitlines() if not one.startswith("energy: ")]

    @property
    def report(self) -> EnergyReport:
        """The report that was saved at the end."""
        return load(self.folder / "run" / "energy_report.json")

    def close(self) -> None:
        """Kill a process that a failed test has left."""
        if self._running is not None and self._running.poll() is None:
            os.kill(self._running.pid, signal.SIGKILL)


@pytest.fixture
def profiled(tmp_path: Path, surroundings: dict[str, str], forking: Forking) -> Iterator[Profiled]:
    """Start scripts inside ``profile``."""
    one = Profiled(tmp_path, surroundings, forking)
    yield one
    one.close()


SEEN = """
import sys, os, pickle
class Kept: pass
print(__name__, os.path.basename(__file__), sys.argv[1:], os.path.basename(sys.path[0]))
print(type(pickle.loads(pickle.dumps(Kept()))) is Kept, __spec__, __package__)
import beside, json
print(beside.there, json.dumps(1))
os.chdir("/")
print(os.path.isfile(__file__), __annotations__)
sys.exit(7)
"""


def test_a_script_finds_what_python_would_give_it(profiled: Profiled) -> None:
    """Its name, file, arguments and import path are those of plain Python, and classes pickle.

    ``__file__`` exists after a ``chdir``, and the working folder hides no module.
    """
    (profiled.folder / "json.py").write_text("raise OSError('the working folder was searched')")
    project = profiled.folder / "project"
    project.mkdir()
    (project / "beside.py").write_text("there = 'beside'")
    (project / "python_train.py").write_text(SEEN)
    words = ("project/python_train.py", "--lr", "-x")
    code = wait(profiled.command(*HOST_ONLY, "--", *words))
    plain = subprocess.run(
        [sys.executable, *words],
        cwd=profiled.folder, env=profiled.surroundings, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert profiled.said == plain.stdout.splitlines()
    assert code == plain.returncode == 7
    assert profiled.said[-2:] == ["beside 1", "True {}"]
    assert profiled.report.run.name == "python_train"
    assert profiled.report.run.error == "ChildProcessError: exit code 7"


def test_a_script_that_breaks(profiled: Profiled) -> None:
    """The traceback shows its own line, the exit code is 1, and the report has the calls so far."""
    process = profiled.start(
        "def breaks():\n    sum(range(10**7))\n    raise KeyError('own')\nbreaks()"
    )
    assert wait(process) == 1
    assert "raise KeyError('own')" in profiled.output
    assert profiled.output.count("Traceback") == 1
    calls = profiled.report.profile.host.calls  # type: ignore[union-attr]
    assert any(one.name.startswith("breaks") for one in calls.functions)  # type: ignore[union-attr]
    assert (profiled.folder / "run" / "profile" / "host.prof").is_file()


def test_a_module(profiled: Profiled) -> None:
    """``-m package.module`` supports relative imports, as ``python -m`` does."""
    package = profiled.folder / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "other.py").write_text("word = 'other'")
    (package / "train.py").write_text(
        "import sys\nfrom .other import word\nprint(__name__, __package__, word, sys.argv[1:])"
    )
    process = profiled.command(*HOST_ONLY, "--", "python", "-m", "pack.train", "--lr")
    assert (wait(process), profiled.said) == (0, ["__main__ pack other ['--lr']"])
    assert profiled.report.run.name == "pack.train"


SPAWNS = r"""
import multiprocessing, os, sys
os.write(1, f"imported as {__name__}\n".encode())
def work(number):
    return number * number
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(work, range(3)), flush=True)
"""


def test_spawned_children_do_not_begin_again(profiled: Profiled) -> None:
    """Children import the script as multiprocessing does, and start no second journal."""
    wait(profiled.start(SPAWNS))
    said = profiled.said
    assert said.count("[0, 1, 4]") == said.count("imported as __main__") == 1, said
    # If the first child is fast, the pool ends the second one before it has started.
    assert 1 <= said.count("imported as __mp_main__") <= 2, said
    journals = list((profiled.folder / "run").rglob("*.jsonl"))
    assert len(journals) == 2, "one of the command, one of the launcher"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_as_ever(profiled: Profiled, number: signal.Signals) -> None:
    """The signal ends the script and ``profile``."""
    process = profiled.start("import time\nprint('ready', flush=True)\ntime.sleep(60)")
    until(lambda: "ready" in profiled.output)
    os.kill(process.pid, number)
    assert wait(process) == -number
    assert profiled.report.run.status == "interrupted"


# The compiler of PyTorch takes seconds to import, and compiles nothing here.
TORCH = """
import sys, time, torch, types
if __name__ == "__main__":
    time.sleep(0.5)  # BEFORE_S
    torch._dynamo = sys.modules["torch._dynamo"] = types.SimpleNamespace(
        disable=lambda function, *_, **__: function, graph_break=lambda: None
    )
    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
    for _ in range(40):
        net(torch.ones(4, 8)).sum().backward()
        optimizer.step()
        time.sleep(0.05)  # LEAST_STEP_S
"""
BEFORE_S, LEAST_STEP_S = 0.5, 0.05


def test_steps_of_pytorch_are_seen(profiled: Profiled) -> None:
    """All 40 steps are counted, the window is profiled, and the time before is no training."""
    if not find_spec("torch"):
        pytest.skip("torch is not installed")
    assert wait(profiled.start(TORCH)) == 0, profiled.output
    report = profiled.report
    assert report.throughput.steps == 40
    train_s = report.throughput.train_s
    assert 39 * LEAST_STEP_S <= train_s <= report.run.duration_s - BEFORE_S
    calls = report.profile.host.calls  # type: ignore[union-attr]
    assert calls is not None
    assert (calls.first_step, calls.steps) == (10, 20)
    assert 19 * LEAST_STEP_S <= calls.duration_s <= train_s - 19 * LEAST_STEP_S
    gpu = report.energy.gpu
    assert gpu.energy_j == pytest.approx(POWER_W * report.run.duration_s, abs=gpu.error_j)


OWN_METER = """
import time
from energy_callbacks import EnergyMeter
with EnergyMeter() as meter, meter.phase("train"):
    for _ in range(40):
        time.sleep(0.05)
        meter.step(samples=3)
"""


def test_a_meter_of_the_scripts_own_takes_over(profiled: Profiled) -> None:
    """Its steps and samples count, its window is profiled, and each device counts once."""
    assert wait(profiled.start(OWN_METER)) == 0, profiled.output
    report = profiled.report
    assert (report.throughput.steps, report.throughput.samples) == (40, 120)
    calls = report.profile.host.calls  # type: ignore[union-attr]
    assert calls is not None
    assert (calls.first_step, calls.steps) == (10, 20)
    gpu = report.energy.gpu
    assert gpu.energy_j == pytest.approx(POWER_W * report.run.duration_s, abs=gpu.error_j)
    assert not [one for one in report.warnings if "at the same time" in one.message]


def test_switched_off_only_the_script_runs(profiled: Profiled) -> None:
    """With ENERGY_CALLBACKS_DISABLED=1 there is no run folder and no profiler."""
    profiled.surroundings = profiled.surroundings | {"ENERGY_CALLBACKS_DISABLED": "1"}
    wait(profiled.start("import sys; print(sys.getprofile())"))
    assert profiled.output == "None\n"
    assert not (profiled.folder / "run").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "there is no script"),
        (["python", "-m"], "there is no script"),
        (["nowhere.py"], "'nowhere.py' is not a Python file"),
        (["python", "-c", "pass"], "'-c' is not a Python file"),
    ],
)
def test_what_is_no_script_is_refused(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message comes before anything is opened, and says what to do."""
    assert main(["profile", "--", *words]) == 2
    assert said in capsys.readouterr().err
