"""Tests of ``energy-callbacks run`` with commands that fail, fork, or ignore signals."""

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import psutil
import pytest

from energy_callbacks.cli import main, run
from energy_callbacks.cli.common.child import Child
from energy_callbacks.core.errors import EnergyCallbacksError
from energy_callbacks.core.signals import SignalHold
from energy_callbacks.report import EnergyReport, build, load
from energy_callbacks.report.charts import catalogue
from energy_callbacks.report.model.schema import from_json
from energy_callbacks.report.render import html
from energy_callbacks.sensing.sources.nvidia.processes import CardProcess
from tests.core.waiting import until
from tests.fake_nvml import Constant, Scenario, env, fixtures, h200
from tests.integrations.processes import SHARED, Forking, Running, Script, wait

fake_nvml = fixtures.fake_nvml

POWER_W = 300.0
MIB = 2**20
RUN = (sys.executable, "-m", "energy_callbacks", "run")
RUN_SCRIPT = (sys.executable, "-m", "tests.integrations.run_script")
STATUS = ("grep", "-E", "Sig(Blk|Ign|Cgt)", "/proc/self/status")


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Provide a machine with one card of constant power."""
    folder = tmp_path_factory.mktemp("card")
    return env(Scenario(cards=(h200(Constant(POWER_W)),)).write(folder / "scenario"))


@pytest.fixture
def measured(
    tmp_path: Path, surroundings: dict[str, str], forking: Forking
) -> Iterator["Measured"]:
    """Start commands inside ``run``."""
    one = Measured(tmp_path, surroundings, forking)
    yield one
    one.close()


class Measured:
    """Runs commands inside ``run``, in forks of one process, with one run folder."""

    def __init__(self, folder: Path, surroundings: dict[str, str], forking: Forking) -> None:
        self.folder = folder
        self.out = folder / "run"
        self._surroundings = surroundings
        self._forking = forking
        self._script: Script | None = None
        self._running: Running | None = None

    def __call__(self, *command: str, **surroundings: str) -> Running:
        self._script = Script(
            module="tests.cli.command",
            folder=self.folder,
            arguments=("run", "--out", str(self.out), "--", *command),
            environment=self._surroundings | surroundings,
        )
        self._running = self._forking.start(self._script)
        return self._running

    def piped(self, *command: str) -> BinaryIO:
        """Start a command whose output goes to a pipe, and return the pipe."""
        os.mkfifo(self.folder / "output")
        self(*command)
        return (self.folder / "output").open("rb")

    def wait(self) -> int:
        """Wait for the end of the command, and return the exit status of ``run``."""
        assert self._running is not None
        return wait(self._running)

    def python(self, script: str, *arguments: str) -> Running:
        """Run a Python program."""
        return self(sys.executable, "-u", "-c", script, *arguments)

    @property
    def output(self) -> str:
        """The output of the command and of ``run``, both streams."""
        assert self._script is not None
        return self._script.output

    def wait_for(self, line: str) -> None:
        """Wait until the command has printed a whole line.

        A program that does not buffer writes the end of a line by itself. A signal before it would
        put the handler's output into the same line.
        """
        until(lambda: f"\n{line}\n" in f"\n{self.output}")

    @property
    def report(self) -> EnergyReport:
        """The report that was saved at the end."""
        return load(self.out / "energy_report.json")

    def close(self) -> None:
        """Kill a process that a failed test has left."""
        if self._running is not None and self._running.poll() is None:
            os.kill(self._running.pid, signal.SIGKILL)


def test_exit_code_and_output_are_the_commands_own(tmp_path: Path) -> None:
    """Both streams, the input and the exit code are unchanged; our summary is on standard error."""
    script = "cat; printf 'a\\377b'; printf err >&2; sleep 1; exit 7"
    ended = subprocess.run(
        [*RUN, "--out", tmp_path / "run", "--", "sh", "-c", script],
        env=os.environ | SHARED, input=b"typed\n", capture_output=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 7
    assert ended.stdout == b"typed\na\xffb"
    assert ended.stderr.startswith(b"errenergy: failed")
    assert ended.stderr.count(b"\n") == 1
    report = load(tmp_path / "run" / "energy_report.json")
    assert (report.run.status, report.run.error) == ("failed", "ChildProcessError: exit code 7")
    assert report.run.name == "sh"


def test_the_energy_is_that_of_the_whole_command(measured: Measured) -> None:
    """It covers the command from start to end, in one phase without steps."""
    assert wait(measured("sleep", "3")) == 0
    report = measured.report
    [phase] = report.phases
    assert phase.name == "command"
    assert report.run.duration_s >= 3.0
    gpu = report.energy.gpu
    assert gpu.energy_j == pytest.approx(POWER_W * report.run.duration_s, abs=gpu.error_j)
    assert phase.total.energy_j == report.energy.total.energy_j
    assert report.throughput.steps == 0
    assert (report.run.framework, report.run.status) == ("command", "finished")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_command_that_a_signal_ends(measured: Measured, number: signal.Signals) -> None:
    """The caller of ``run`` sees the same signal; the report names it."""
    assert wait(measured("sh", "-c", f"kill -{number.name[3:]} $$")) == -number
    assert number.name in (measured.report.run.error or "")
    expected = "interrupted" if number == signal.SIGTERM else "failed"
    assert measured.report.run.status == expected


def test_sigterm_reaches_a_command_that_ignores_it(measured: Measured) -> None:
    """``run`` does not end before the command, and returns the exit code of the command."""
    process = measured.python(
        "import signal, time\n"
        "heard = []\n"
        "def hear(*_):\n"
        "    heard.append(1)\n"
        "    print('heard', len(heard))\n"
        "signal.signal(signal.SIGTERM, hear)\n"
        "print('ready')\n"
        "while len(heard) < 2: time.sleep(0.01)\n"
        "time.sleep(0.5)\n"
    )
    measured.wait_for("ready")
    for count in (1, 2):
        os.kill(process.pid, signal.SIGTERM)
        measured.wait_for(f"heard {count}")
    assert wait(process) == 0
    assert measured.report.run.status == "finished"


def test_a_signal_before_the_command_has_begun(measured: Measured) -> None:
    """It arrives while sensors open: the command never starts."""
    sent = measured.folder / "sent"
    process = measured("sh", "-c", "touch began; sleep 30", BEGINS_AFTER=str(sent))
    until(lambda: list(measured.out.glob("attempts/1/*.jsonl")))
    os.kill(process.pid, signal.SIGTERM)
    sent.touch()
    assert wait(process) == -signal.SIGTERM
    assert not (measured.folder / "began").exists()


@pytest.fixture
def _is_ignored() -> Iterator[None]:
    """This process ignores SIGINT, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_is_ignored")
def test_a_signal_that_our_parent_ignores() -> None:
    """As in a background job of a shell: the command starts, and ignores the signal."""
    hold = SignalHold((signal.SIGINT,))
    with hold.held():
        os.kill(os.getpid(), signal.SIGINT)
        hold.wait(0.0)
        assert hold.first is None
        process = Child(["sleep", "0.2"], os.environ, hold.mask_before)
    process.send_signal(signal.SIGINT)
    until(lambda: process.poll() == 0)


def test_the_terminals_signal_arrives_once(tmp_path: Path) -> None:
    """Ctrl-C reaches all programs of the terminal: a signal passed on would be a second one."""
    master, slave = pty.openpty()
    script = (
        "import signal, time\n"
        "heard = []\n"
        "signal.signal(signal.SIGINT, lambda *_: heard.append(1))\n"
        "print('ready', flush=True)\n"
        "while not heard: time.sleep(0.01)\n"
        "time.sleep(1.0)\n"
        "print('heard', len(heard), flush=True)\n"
    )
    # ``setsid --ctty`` makes it the session leader of the terminal.
    words = ["setsid", "--ctty", "--wait", *RUN_SCRIPT, "energy_callbacks", "run"]
    process = subprocess.Popen(
        [*words, "--out", tmp_path / "run", "--", sys.executable, "-c", script],
        env=os.environ | SHARED, stdin=slave, stdout=slave, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    said = b""
    is_sent = False
    while True:
        try:
            said += os.read(master, 4096)
        except OSError:  # the last program has ended
            break
        if b"ready" in said and not is_sent:
            os.write(master, b"\x03")
            is_sent = True
    os.close(master)
    assert process.wait(timeout=600.0) == 0, said
    assert b"heard 1" in said


def test_much_output_passes(measured: Measured) -> None:
    """A thousand times the capacity of a pipe arrives unchanged, before our summary."""
    with measured.piped("head", "-c", str(64 * MIB), "/dev/zero") as output:
        for _ in range(4):
            assert output.read(16 * MIB) == bytes(16 * MIB)
        assert output.read().startswith(b"energy: ")
    assert measured.wait() == 0


def test_a_reader_that_goes_away(measured: Measured) -> None:
    """As in ``yes | head``: the command ends by SIGPIPE, and so does ``run``."""
    with measured.piped("yes") as output:
        output.read(10)
    assert measured.wait() == -signal.SIGPIPE


def test_a_command_finds_the_signals_as_without_us(measured: Measured) -> None:
    """None is blocked or ignored because of ``run``; two signals of glibc itself do not count."""

    def signals(out: str) -> list[int]:
        lines = [line for line in out.splitlines() if line.startswith("Sig")]
        return [int(line.split()[1], 16) & 2**31 - 1 for line in lines]

    assert wait(measured(*STATUS)) == 0
    alone = subprocess.run(STATUS, capture_output=True, check=True, text=True).stdout
    assert signals(measured.output) == signals(alone)
    assert len(signals(alone)) == 3


def test_a_command_that_forks(measured: Measured) -> None:
    """Memory is that of the whole process tree; a child that outlives it delays nothing."""
    process = measured.python(
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    if os.fork() == 0:\n"
        f"        held = bytearray(300 * {MIB})\n"
        "        for _ in range(6000):\n"
        "            if os.path.exists('seen'): break\n"
        "            time.sleep(0.01)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "if os.fork() == 0:\n"
        "    os.close(1), os.close(2)\n"
        "    time.sleep(60.0)\n"
    )
    until(lambda: _peak_bytes(measured.out) > 300 * MIB)
    (measured.folder / "seen").touch()
    assert wait(process) == 0
    peak_bytes = measured.report.memory.host_rss_peak_bytes
    assert peak_bytes is not None
    assert 300 * MIB < peak_bytes < 400 * MIB


def test_kill_9_of_the_measuring_process(measured: Measured) -> None:
    """What was written is kept, no energy is added, and the command continues.

    ``tests/test_crash.py`` tests how much may be unwritten at any moment.
    """
    process = measured("sleep", "600")
    wrapper = psutil.Process(process.pid)
    until(lambda: [one for one in wrapper.children() if one.name() == "sleep"])
    [child] = wrapper.children()
    until(lambda: _known_j(measured.out) > 3.0 * POWER_W)
    known_j = _known_j(measured.out)
    os.kill(process.pid, signal.SIGKILL)
    assert wait(process) == -signal.SIGKILL
    ended_unix_s = time.time()
    assert child.is_running()
    child.kill()
    report = build(measured.out, now_unix_s=time.time() + 60.0)
    assert report.run.status == "cut off"
    lived_s = ended_unix_s - report.run.started_unix_s
    assert report.run.duration_s <= lived_s
    assert known_j <= report.energy.gpu.energy_j <= POWER_W * lived_s


def _peak_bytes(folder: Path) -> int:
    """Return the largest memory of processes in a report of the run so far."""
    with contextlib.suppress(EnergyCallbacksError):  # no journal exists yet
        return build(folder).memory.host_rss_peak_bytes or 0
    return 0


def _known_j(folder: Path) -> float:
    """Return the energy of the GPUs in a report of the run so far."""
    with contextlib.suppress(EnergyCallbacksError):  # no journal exists yet
        return build(folder).energy.gpu.energy_j or 0.0
    return 0.0


TRAININGS = """
import collections, json, sys, time
from energy_callbacks import EnergyConfig, EnergyMeter

inside_s, around_s = collections.Counter(), collections.Counter()

def train(steps):
    config = EnergyConfig(report_dir="ignored", country="DEU", devices=[0])
    with EnergyMeter(config=config) as meter:
        for phase, count in (("train", steps), ("validation", steps // 2)):
            before_s = time.monotonic()
            with meter.phase(phase):
                start_s = time.monotonic()
                for _ in range(count):
                    time.sleep(0.05)
                    if phase == "train":
                        meter.step(samples=8)
                inside_s[phase] += time.monotonic() - start_s
            around_s[phase] += time.monotonic() - before_s

time.sleep(1.0)
for steps in map(int, sys.argv[1:]):
    train(steps)
    time.sleep(1.0)
print(json.dumps([inside_s, around_s]))
"""


def test_trainings_inside_lead_the_phases_and_each_device_counts_once(measured: Measured) -> None:
    """Steps and phases are those of both trainings; energy is that of the whole command."""
    assert wait(measured.python(TRAININGS, "40", "20")) == 0, measured.output
    report = measured.report
    [attempt] = report.attempts
    assert attempt.steps == report.throughput.steps == 60
    assert report.throughput.samples == 8 * 60
    gpu = report.energy.gpu
    truth_j = POWER_W * report.run.duration_s
    assert gpu.energy_j == pytest.approx(truth_j, abs=gpu.error_j)
    phases = {phase.name: phase for phase in report.phases}
    inside_s, around_s = json.loads(measured.output.splitlines()[0])
    for name in ("train", "validation"):
        assert inside_s[name] <= phases[name].duration_s <= around_s[name]
    assert phases["command"].duration_s >= 3.0  # between the trainings, before and after them
    for phase in phases.values():
        if phase.duration_s > 1.0:
            assert phase.gpu.energy_j == pytest.approx(
                POWER_W * phase.duration_s, abs=phase.gpu.error_j + 0.02 * truth_j
            )
    assert sum(phase.duration_s for phase in phases.values()) == pytest.approx(
        report.run.duration_s, rel=1e-6
    )
    assert sum(phase.total.energy_j or 0.0 for phase in phases.values()) == pytest.approx(
        report.energy.total.energy_j, rel=1e-9
    )
    ratio = report.efficiency.gpu.j_per_sample
    assert ratio is not None
    assert ratio.low_j <= POWER_W * phases["train"].duration_s / 480 <= ratio.high_j
    assert [span.phase for span in report.timeline if span.phase != "idle"] == [
        "command", "train", "validation", "command", "train", "validation", "command"
    ]  # fmt: skip
    ends_s = [span.end_s for span in report.timeline]
    assert all(s.start_s >= e - 0.002 for s, e in zip(report.timeline[1:], ends_s, strict=False))
    assert report.emissions is not None
    assert report.emissions.place == "Germany"
    assert not (measured.folder / "ignored").exists()


# ``meet`` waits until it was called in two processes; their arguments begin with a folder.
MEETING = """
import os, pathlib
folder = pathlib.Path(sys.argv.pop(1))

def meet():
    (folder / f"{os.getpid()}.ready").touch()
    while len(list(folder.glob("*.ready"))) < 2:
        time.sleep(0.01)

"""


def test_trainings_at_once_are_said(measured: Measured, tmp_path: Path) -> None:
    """Energy is counted once for all; a warning says which training the phases are of."""
    python = f'{sys.executable} -c "$0" "$1" 30'
    inside = "for _ in range(count):"
    trainings = MEETING.join(TRAININGS.split("time.sleep(1.0)\n", 1)).replace(
        inside, f"meet()\n                {inside}"
    )
    wait(measured("sh", "-c", f"{python} & {python}; wait", trainings, str(tmp_path)))
    report = measured.report
    assert "trainings_at_once" in [warning.code for warning in report.warnings]
    assert report.throughput.steps == 30
    gpu = report.energy.gpu
    assert gpu.energy_j == pytest.approx(POWER_W * report.run.duration_s, abs=gpu.error_j)


def test_a_card_on_which_nothing_of_the_command_was_seen(
    fake_nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of two visible cards counts; if no use was seen on any, both count."""
    fake_nvml(Scenario(cards=(h200(Constant(100.0)), h200(Constant(POWER_W)))), virtual=False)
    cards, asked = {}, tmp_path / "asked"
    until_asked = f"until rm {asked} 2>/dev/null; do sleep 0.1; done; sleep 1"
    command = ("timeout", "60", "sh", "-c", until_asked)
    for name, seen_on in (("one", "1"), ("both", "none")):

        def processes(uuid: str, on: str = seen_on) -> tuple[CardProcess, ...]:
            if uuid.endswith("1"):
                asked.touch()
            mine = psutil.Process().children() if uuid.endswith(on) else ()
            return tuple(CardProcess(pid=one.pid, name=None, memory_bytes=None) for one in mine)

        monkeypatch.setattr(run, "card_processes", processes)
        assert main(["run", "--out", str(tmp_path / name), "--", *command]) == 0
        report = load(tmp_path / name / "energy_report.json")
        cards[name] = [device.key for device in report.devices if device.kind == "gpu"]
    assert cards == {"one": ["gpu1"], "both": ["gpu0", "gpu1"]}
    notes = load(tmp_path / "one" / "energy_report.json").method_notes
    assert any(
        "gpu0: not included, because no process of the command used it" in note for note in notes
    )


def test_the_report_as_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """--json prints the report; the command's output is on standard error; no page is written."""
    out = tmp_path / "run"
    command = ("sh", "-c", "echo from the command; exit 4")
    assert main(["run", "--json", "--no-html", "--out", str(out), "--", *command]) == 4
    told = capfd.readouterr()
    report = from_json(told.out)
    assert report == load(out / "energy_report.json")
    assert report.run.error == "ChildProcessError: exit code 4"
    assert "from the command\n" in told.err
    assert "energy: failed" in told.err
    assert (out / "energy_report.txt").exists()
    assert not (out / "energy_report.html").exists()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with an older run and a file that is not executable."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").write_text("no program")
    (tmp_path / "used/attempts/1").mkdir(parents=True)
    (tmp_path / "used/attempts/1/host-0.jsonl").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--", "no-such-program"], 127, "command not found\n"),
        (["--", "train.py"], 127, "command not found; write: python train.py\n"),
        (["--", "./plain"], 126, "permission denied"),
        ([], 2, "write it after --"),
        (["--pue", "0.5", "--", "true"], 2, "pue"),
        (["--out", "used", "--", "true"], 2, "already contains a run"),
    ],
)
def test_what_cannot_be_run(
    folder: Path, capfd: pytest.CaptureFixture[str], words: Sequence[str], code: int, says: str
) -> None:
    """The exit code and message are those of a shell, or say what to do; no file is left."""
    assert main(["run", *words]) == code
    said = capfd.readouterr()
    assert said.out == ""
    assert says in said.err
    assert not (folder / "energy_runs").exists()


def test_inside_a_launcher(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of several ranks would count the host."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert main(["run", "--", "true"]) == 2
    assert "run -- torchrun" in capsys.readouterr().err


def test_a_run_inside_a_run_only_runs(measured: Measured) -> None:
    """Only the outer one measures; none does if everything is disabled."""
    assert wait(measured(*RUN, "--", "sh", "-c", "exit 5")) == 5
    assert measured.output.count("energy:") == 1
    assert len(list(measured.out.glob("attempts/*/*.jsonl"))) == 1
    assert wait(measured("sh", "-c", "exit 6", ENERGY_CALLBACKS_DISABLED="1")) == 6
    assert measured.output == ""


def test_a_report_that_cannot_be_written(measured: Measured) -> None:
    """The exit code is still that of the command, and the message names the journal."""
    script = f"mkdir {measured.out}/energy_report.html; exit 9"
    assert wait(measured("sh", "-c", script)) == 9
    assert str(measured.out) in measured.output
    assert "Traceback" not in measured.output


def test_names_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is named after script and time; names are unique and stay inside the folder."""
    monkeypatch.chdir(tmp_path)
    assert run._name_of(["python", "-u", "sub/train.py", "--lr=1"]) == "train"
    assert run._name_of(["/usr/bin/time", "x"]) == "time"
    names = [run._new_folder(name).name for name in ("train", "train", "../../etc/x y", "…")]
    assert names[1] == f"{names[0]}-2" or names[1] > names[0]
    assert names[2].startswith("etc_x_y-")
    assert names[3].startswith("run-")


def test_the_journal_of_a_command(measured: Measured) -> None:
    """The header of the journal has the command."""
    wait(measured("true", "--flag"))
    [path] = measured.out.glob("attempts/1/*.jsonl")
    header = json.loads(path.read_text().splitlines()[0])
    assert header["framework"] == "command"
    assert header["environment"]["command"].endswith("-- true --flag")


@pytest.mark.charts
def test_files_beside_the_report(
    fake_nvml, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Samples, their summary and plot, the charts, and the comparison with an older run exist."""
    fake_nvml(Scenario(cards=(h200(Constant(POWER_W)),)), virtual=False)
    for module in (catalogue, html):
        monkeypatch.setattr(module, "CHARTS", catalogue.CHARTS[:1])
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, options in ((old, []), (new, ["--graphs", "--compare-with", str(old)])):
        words = ["--name", "my run", "--out", str(folder), *options, "--", "sleep", "2"]
        assert main(["run", *words]) == 0
    said = capfd.readouterr().err
    names = sorted(path.name for path in new.iterdir())
    stats = [name for name in names if name.startswith("gpu_stats_my_run_20")]
    assert [name.rpartition("_")[2] for name in stats if "json" not in name] == [
        "plot.png", "summary.txt"
    ]  # fmt: skip
    samples = json.loads((new / next(name for name in stats if "json" in name)).read_text())
    known = [sample for sample in samples if sample["power"] is not None]
    assert known[-1]["power"] == pytest.approx(POWER_W, rel=0.02)
    assert known[-1]["training_metadata"]["phase"] == "command"
    assert 0.0 < known[-1]["memory_percent"] < 100.0
    assert "energy_report_power.png" in names
    assert (new / "comparison.txt").read_text() in said
    assert "now / before" in said


def test_a_script_in_the_path_without_an_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a shell, which finds it in the PATH and reads it itself."""
    script = tmp_path / "bin/no-first-line"
    script.parent.mkdir()
    script.write_text('[ "$1" = word ] && exit 7\n')
    script.chmod(0o755)
    path = f"{script.parent}:{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    process = Child(["no-first-line", "word"], os.environ)
    until(lambda: process.poll() is not None)
    assert process.poll() == 7


def test_a_parent_that_ignores_the_end_of_its_children() -> None:
    """``SIGCHLD`` is ignored, which programs inherit: the exit code is known all the same."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with SignalHold((signal.SIGINT,)).held():
            process = Child(["sh", "-c", "exit 3"], os.environ)
            until(lambda: process.poll() is not None)
        assert process.poll() == 3
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGCHLD, before)
