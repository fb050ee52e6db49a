import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.sensing.frameworks import cuda_driver
from energy_callbacks.sensing.gpus.nvidia_finder import NvidiaFinder
from energy_callbacks.sensing.gpus.used_gpus import KnownUse, UsedGpus
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource
from energy_callbacks.sensing.sources.protocol import DiscoveredSources
from energy_callbacks.testing import FakeClock
from tests.fake_nvml import Card, Constant, FakeNvml, Fault, Process, Scenario, card_uuid, h200

# No process has this number: Linux numbers processes from 1 to 4194304 (proc(5), pid_max).
HIDDEN_PID = 2**22 + 1
SECOND_FIRST = (card_uuid(1)[4:], card_uuid(0)[4:])

Play = Callable[..., FakeNvml]


@pytest.fixture(autouse=True)
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``cuda(*ordinals, driver=...)``: contexts of this process, and the devices that CUDA lists.

    At first there are no masks, and CUDA is not initialised.
    """
    for variable in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LOCAL_RANK"):
        monkeypatch.delenv(variable, raising=False)

    def play(*ordinals: int, driver: tuple[str, ...] | None = None) -> None:
        monkeypatch.setattr(cuda_driver, "uuids", lambda: driver)
        monkeypatch.setattr(cuda_driver, "active_ordinals", lambda: ordinals)

    play()
    return play


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    """``play(card, ..., faults=...)``: these cards are in the machine."""
    with ExitStack() as stack:

        def load(*cards: Card, faults: tuple[Fault, ...] = ()) -> FakeNvml:
            nvml = FakeNvml(Scenario(cards=cards, faults=faults), tmp_path)
            stack.callback(nvml.close)
            return nvml

        yield load


@pytest.fixture(scope="module")
def child() -> Iterator[psutil.Process]:
    """A child process of a child process of this one."""
    shell = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE)
    assert shell.stdout is not None
    grandchild = psutil.Process(int(shell.stdout.readline()))
    yield grandchild
    grandchild.kill()
    shell.wait()
    shell.stdout.close()


def card(*pids: int) -> Card:
    """A card that these processes use."""
    processes = tuple(Process(pid=pid, used_bytes=2**30) for pid in pids)
    return h200(Constant(100.0), processes=processes)


def opened(used: tuple[int, ...] | None = None, **settings: bool) -> tuple[UsedGpus, FakeClock]:
    """The open source and its clock."""
    clock = FakeClock(start_s=100.0)
    names = None if used is None else [f"cuda:{ordinal}" for ordinal in used]
    finder = NvidiaFinder(clock, KnownUse(devices=names, **settings))
    source = UsedGpus(clock, finder, set(), uses_none=used == ())
    assert source.open() == ()
    return source, clock


def look(source: UsedGpus) -> DiscoveredSources:
    """What a look finds."""
    assert source.read() == ()
    return source.found()


def names(found: DiscoveredSources) -> list[str]:
    """Names of the sources."""
    return [source.name for source in found.sources]


def name(index: int) -> str:
    """The name of a card's source."""
    return NvmlSource(FakeClock(), card_uuid(index)).name


def test_gpus_of_the_framework(play: Play) -> None:
    """The GPUs that the framework names are found at the first look, for the whole run."""
    play(card(), card(), card())
    source, _ = opened((1, 2))
    found = look(source)

    assert names(found) == [name(1), name(2)]
    assert found.since_s == float("-inf")
    assert names(look(source)) == []


def test_contexts_of_this_process(play: Play, cuda: Callable[..., None]) -> None:
    """The driver says which cards the contexts are on; a later one counts since the look before."""
    play(card(), card())
    cuda(0, driver=SECOND_FIRST)
    source, clock = opened()
    assert names(look(source)) == [name(1)]
    clock.advance(0.8)
    assert names(look(source)) == []
    clock.advance(0.8)
    cuda(0, 1, driver=SECOND_FIRST)
    found = look(source)

    assert names(found) == [name(0)]
    assert found.since_s == pytest.approx(100.8)


def test_contexts_beside_those_of_the_framework(play: Play, cuda: Callable[..., None]) -> None:
    """A context on a card that the framework does not name counts too."""
    play(card(), card())
    source, _ = opened((0,))
    assert names(look(source)) == [name(0)]
    cuda(0, 1, driver=SECOND_FIRST[::-1])
    assert names(look(source)) == [name(1)]


@pytest.mark.parametrize("knows_cuda", [True, False])
def test_local_rank_without_contexts(
    play: Play, cuda: Callable[..., None], monkeypatch: pytest.MonkeyPatch, *, knows_cuda: bool
) -> None:
    """The second process of torchrun uses the second visible card, or the only one."""
    play(card(), card())
    monkeypatch.setenv("LOCAL_RANK", "1")
    cuda(driver=SECOND_FIRST[::-1] if knows_cuda else None)
    assert names(look(opened()[0])) == [name(1)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    cuda(driver=SECOND_FIRST[1:])
    assert names(look(opened()[0])) == []
    cuda(0, driver=SECOND_FIRST[1:])
    assert names(look(opened()[0])) == [name(0)]


def test_descendants_count(play: Play, child: psutil.Process) -> None:
    """Cards on which a descendant runs are used by the run, those of other programs are not."""
    play(card(os.getppid(), 1), card(os.getppid(), child.pid), card())

    assert names(look(opened()[0])) == [name(1)]


def test_this_process_counts_without_a_primary_context(play: Play) -> None:
    """A card on which NVML lists this process is used by the run."""
    play(card(), card(os.getpid()))

    assert names(look(opened(follow_children=False)[0])) == [name(1)]


def test_ranks_do_not_count_as_children(play: Play, child: psutil.Process) -> None:
    """If child processes are ranks, their cards are left to them."""
    play(card(), card(child.pid))
    source, _ = opened((0,), follow_children=False)

    assert names(look(source)) == [name(0)]


@pytest.mark.parametrize("cards", [1, 2])
def test_hidden_processes(play: Play, cards: int) -> None:
    """In a container that hides processes, the only visible GPU counts; one of two does not."""
    play(*(card(HIDDEN_PID) for _ in range(cards)))

    assert names(look(opened()[0])) == ([name(0)] if cards == 1 else [])


def test_visible_gpus_are_listed_once(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every visible GPU is listed at the first look; the report leaves out those in use."""
    play(card(), card(), card())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    source, _ = opened((1,))

    assert [(source, fix) for source, _, fix in look(source).unavailable] == [
        ("gpu2", ""),
        ("gpu0", ""),
    ]
    assert look(source).unavailable == ()


def test_run_that_uses_no_gpu(play: Play) -> None:
    """A run that used no GPU by its end says so; a run on the CPU says so at its start."""
    play(card())
    source, _ = opened()
    look(source)
    source.finish()
    ((_, reason, fix),) = source.found().unavailable
    assert reason == "no GPU was seen in use by this run"
    assert "devices=" in fix
    with pytest.raises(SourceUnavailable, match="this run uses no GPU"):
        opened(())


def test_run_with_a_gpu_has_no_such_entry(play: Play) -> None:
    """The last look of a run with a GPU adds nothing."""
    play(card())
    source, _ = opened((0,))
    look(source)
    source.finish()

    assert source.found().unavailable == ()


def test_ambiguous_mask(
    play: Play,
    cuda: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A mask that does not say which card is in use is reported once, until the driver says it."""
    play(card(), h200(Constant(100.0), name="another GPU"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    source, _ = opened((0,))
    found = [look(source), look(source)]

    assert [len(one.unavailable) for one in found] == [1, 0]
    assert "CUDA orders different cards" in found[0].unavailable[0][1]
    assert caplog.text.count("is not measured") == 1
    cuda(0, driver=SECOND_FIRST[:1])
    assert names(look(source)) == [name(1)]


@pytest.mark.parametrize("used", [None, (0,)])
def test_machine_without_a_gpu(
    play: Play, used: tuple[int, ...] | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a GPU the source is unavailable; a warning is logged if the run needs one."""
    play()
    with pytest.raises(SourceUnavailable):
        opened(used)

    assert ("is not measured" in caplog.text) == (used is not None)


def test_card_that_comes_back_later(play: Play, cuda: Callable[..., None]) -> None:
    """A card that was off the bus at the start is found when it is back."""
    off = Fault(group="bus", kind="error", start_s=0.0, end_s=1.0, card=0)
    nvml = play(card(), card(), faults=(off,))
    cuda(0, driver=SECOND_FIRST[1:])
    source, _ = opened()
    assert names(look(source)) == []
    nvml.time.advance(1.0)
    look(source)
    assert names(look(source)) == [name(0)]


def test_cards_of_another_program(
    play: Play, cuda: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another program is measured, all cards that the mask shows count from the start."""
    play(card(), card(), card())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,0")
    monkeypatch.setenv("LOCAL_RANK", "0")
    source, _ = opened(takes_visible=True)
    found = look(source)

    assert names(found) == [name(2), name(0)]
    assert found.since_s == float("-inf")
    assert names(look(source)) == []


def test_look_that_fails(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU that is found after a look that failed counts since the last look that did not fail."""
    play(card())
    source, clock = opened((0,))
    with monkeypatch.context() as patch:
        patch.setattr(cuda_driver, "active_ordinals", lambda: pytest.fail("a fault"))
        with pytest.raises(pytest.fail.Exception):
            source.read()
    clock.advance(0.8)
    found = look(source)

    assert names(found) == [name(0)]
    assert found.since_s == float("-inf")


def test_ambiguous_mask_of_a_run_without_gpu(
    play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As long as no GPU is in use, it does not matter what a mask means."""
    play(card(), h200(Constant(100.0), name="another GPU"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")

    assert look(opened()[0]) == DiscoveredSources()
    assert caplog.text == ""
