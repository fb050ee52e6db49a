"""Commands in a real terminal of 80 columns: with colours, without, and in a dumb terminal."""

import re
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fake_nvml import Constant, Process, Scenario, fixtures, h200
from tests.report.journals import CPU, GPU, GPU1, PROCESS, TRAIN, Attempt, write
from tests.terminal import Terminal, terminal

pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux on this machine"),
]
fake_nvml = fixtures.fake_nvml
COMMAND = (sys.executable, "-m", "energy_callbacks")
COLOURS = re.compile(r"\x1b\[[\d;]*\b(3[0-7]|38|9[0-7])[\d;]*m")
# A usual terminal, one without colours, and one without any control sequences.
KINDS = ({}, {"NO_COLOR": "1"}, {"TERM": "dumb"})


@pytest.fixture
def cards(fake_nvml: Callable) -> dict[str, str]:
    """Provide two cards with processes; return the environment in which they are visible."""
    processes = tuple(Process(pid=2**22 + n, used_bytes=(n + 1) * 2**32) for n in range(5))
    card = h200(Constant(650.0), processes=processes)
    long = replace(card, name="NVIDIA H200 with a name that no table has room for")
    return fake_nvml(Scenario(cards=(card, long)), virtual=False).env()


def look(shown: Terminal, kind: dict[str, str]) -> str:
    """Return the screen; check that no line is too wide and that colours are as expected."""
    text = "\n".join(shown.lines)
    assert shown.wrapped == 0
    assert "Traceback" not in text
    if kind.get("TERM") == "dumb":
        assert "\x1b" not in shown.raw
    else:
        assert bool(COLOURS.search(shown.raw)) == ("NO_COLOR" not in kind)
    return text


def test_the_check_of_widths_can_fail(tmp_path: Path) -> None:
    """A line of 81 characters takes two lines of the screen, one of 80 does not."""
    with terminal(("printf", "%080d\\n%081d\\n", "1", "2"), tmp_path) as shown:
        assert shown.wait() == 0
        assert (len(shown.lines), shown.wrapped) == (3, 1)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_report(kind: dict[str, str], tmp_path: Path) -> None:
    """The report of many ranks on hosts with long names fits."""
    for rank in range(4):
        host = f"node-{rank // 2}.rack-17.cluster.example.org"
        cards = tuple(replace(card, uuid=f"{card.uuid}-{host}") for card in (GPU, GPU1))
        power_w = {"gpu0": 500.0, "gpu1": 480.0, "cpu0": 100.0}
        one = Attempt(
            rank=rank, host=host, world_size=4, run_name="a run with a name " * 9, launch="one",
            devices=(*cards, replace(CPU, name="Xeon " * 12), PROCESS),
            stretches=(replace(TRAIN, power_w=power_w),),
            unavailable=(("RAPL", "no counter " * 12, "load the module " * 12),),
        )  # fmt: skip
        write(tmp_path / "run", one)
    command = (*COMMAND, "report", "run", "--format", "txt")
    with terminal(("env", "-C", str(tmp_path), *command), tmp_path / "t", **kind) as shown:
        assert shown.wait() == 0
        text = look(shown, kind)
    for words in ("Total energy", "Devices", "Ranks", "run/energy_report.txt"):
        assert words in text


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_doctor(kind: dict[str, str], cards: dict[str, str], tmp_path: Path) -> None:
    """Cards, estimates with notes, and unavailable sensors with hints fit."""
    command = (*COMMAND, "doctor", "--country", "DEU")
    with terminal(command, tmp_path, environment=cards, **kind) as shown:
        assert shown.wait() == 0
        text = look(shown, kind)
    assert re.search(r"power +650 W  nvmlDeviceGetSamples", text)
    assert re.search(r"utilisation +\d+ %", text)
    assert "Germany, 381 g/kWh" in text


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_monitor(kind: dict[str, str], cards: dict[str, str], tmp_path: Path) -> None:
    """The table is updated in place until Ctrl-C; a dumb terminal gets one table after another."""
    command = (*COMMAND, "monitor", "--interval", "0.5")
    with terminal(command, tmp_path, environment=cards, **kind) as shown:
        until_s = time.monotonic() + 600.0
        # The power of the card, and an estimate, which is marked with a colour.
        for seen in (r"gpu0.* 6[45]\d W", r"~\d"):
            while not re.search(seen, "\n".join(shown.lines)):
                assert time.monotonic() < until_s, shown.lines
                time.sleep(0.2)
        tables = shown.raw.count("Press Ctrl-C")
        while shown.raw.count("Press Ctrl-C") == tables:
            assert time.monotonic() < until_s, shown.lines
            time.sleep(0.2)
        shown.tmux("send-keys", "C-c")
        assert shown.wait() == 0
        text = look(shown, kind)
    tables = text.count("gpu0 NVIDIA")
    assert tables > 1 if kind.get("TERM") == "dumb" else tables == 1
    assert "and 2 more" in text
    assert "20.0 GiB" in text
