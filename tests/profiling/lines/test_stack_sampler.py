"""The main thread reads its own stack when asked, and nothing of that harms what it runs."""

import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from energy_callbacks.profiling.lines.stack_sampler import (
    ContextSwitches,
    StackSample,
    StackSampler,
)


def busy(seconds):
    """Python for so long."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


def busy_until(is_over):
    """Python until something is so, which takes milliseconds on a machine of its own."""
    end_s = time.monotonic() + 300.0
    while not is_over():
        assert time.monotonic() < end_s


class Heard:
    """Keeps what it is told; does something meanwhile where asked to."""

    def __init__(self, then=lambda: None):
        self.looks: list[tuple[str, StackSample]] = []
        self.threads = set()
        self.then = then

    def __call__(self, frame, look):
        self.looks.append((frame.f_code.co_name, look))
        self.threads.add(threading.current_thread())
        then, self.then = self.then, lambda: None  # once
        then()


@pytest.fixture
def asking():
    """Starts askers, and stops them."""
    begun = []

    def begin(look, rate_hz=200.0):
        begun.append(StackSampler(look, rate_hz))
        begun[-1].start()
        return begun[-1]

    yield begin
    for asker in begun:
        asker.stop()


def test_looks_come_on_the_main_thread_and_stand_for_all_the_time(asking):
    """What looks stand for joins up without a gap, from the beginning to the last moment."""
    heard = Heard()
    before_s = time.monotonic()
    asker = asking(heard)
    begun_s = time.monotonic()
    busy_until(lambda: len(heard.looks) > 20)
    asker.stop()
    assert heard.threads == {threading.main_thread()}
    spans = [(look.since_s, look.until_s) for _, look in heard.looks]
    assert before_s <= spans[0][0] <= begun_s
    assert all(one[1] == other[0] for one, other in itertools.pairwise(spans))
    assert spans[-1][1] <= time.monotonic()
    assert asker.looks == len(heard.looks)


def test_a_call_that_lasts_is_one_look_with_its_cpu_time(asking):
    """A sleep is heard of at its end: a look stands for its moments, without CPU time."""
    heard = Heard()
    asking(heard)

    def longest():
        return max((look for _, look in heard.looks), key=lambda one: one.until_s - one.asked_s)

    end_s = time.monotonic() + 300.0
    while not heard.looks or longest().until_s - longest().asked_s < 0.08:
        time.sleep(0.1)
        assert time.monotonic() < end_s
    assert longest().cpu < 0.1


def asked_while_busy(asking, number):
    """The first look is interrupted by a signal."""
    asking(Heard(lambda: signal.raise_signal(number)))
    busy(30.0)


def test_what_a_handler_of_a_signal_raises_in_a_look_reaches_the_program(asking):
    """KeyboardInterrupt and exceptions of the user's handlers are raised where the program is."""

    class Timeout(Exception):
        pass

    def handler(number, frame):
        raise Timeout("of the user")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Timeout, match="of the user"):
            asked_while_busy(asking, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_ctrl_c_in_a_look_is_not_lost(asking):
    """The very exception comes out."""
    with pytest.raises(KeyboardInterrupt):
        asked_while_busy(asking, signal.SIGINT)


def test_a_bug_of_ours_ends_the_asking_alone(asking, caplog):
    """It is told once; the program runs on."""

    def bug():
        raise ZeroDivisionError("ours")

    heard = Heard(bug)
    asker = asking(heard)
    busy_until(lambda: caplog.records)
    asker._thread.join(30.0)
    assert not asker._thread.is_alive()
    busy(0.001)
    assert len(heard.looks) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_no_handler_no_timer_and_the_users_random_numbers_stay(asking):
    """Nothing of the process is changed."""
    import random

    random.seed(7)
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    heard = Heard()
    asker = asking(heard)
    busy_until(lambda: len(heard.looks) > 5)
    assert [signal.getsignal(number) for number in signal.valid_signals()] == handlers
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    asker.stop()
    assert random.random() == random.Random(7).random()


def test_another_thread_than_the_main_one_is_refused():
    """It says so, and what to do."""
    said = []

    def begin():
        try:
            StackSampler(Heard(), 50.0)
        except RuntimeError as error:
            said.append(str(error))

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert "on the main thread" in said[0]


@pytest.fixture
def quick_collector():
    """It looks at what the test makes, and at nothing that was there before."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("quick_collector")
def test_a_request_that_is_never_heard_in_time_does_nothing(asking):
    """Askers that were stopped and freed while their request waited leave nothing behind."""
    heard = Heard()
    for _ in range(50):
        asker = asking(heard, rate_hz=1000.0)
        time.sleep(0.003)  # a request waits
        asker.stop()
        before = len(heard.looks)
        del asker
        gc.collect()
        busy(0.001)
        assert len(heard.looks) == before


def test_a_forked_child_is_not_asked(asking):
    """Neither by the parent's thread, which it has not, nor by a request that was waiting."""
    heard = Heard()
    asker = asking(heard)
    busy_until(lambda: heard.looks)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        heard.looks.clear()
        busy(0.1)
        bool(asker._pending)  # what a request that was waiting asks
        os.write(write, str(len(heard.looks)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"0"


@pytest.mark.parametrize("ending", ["pass", "sys.exit(3)", "raise KeyError('x')", "del asker"])
def test_the_interpreter_ends_as_it_would(ending):
    """Asking to the very end changes neither the status nor what is printed."""
    program = (
        "import sys, time\n"
        "from energy_callbacks.profiling.lines.stack_sampler import StackSampler\n"
        "asker = StackSampler(lambda frame, look: None, 1000.0)\n"
        "asker.start()\n"
        "time.sleep(0.05)\n"
        f"{ending}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=600, check=False
    )
    expected = {"sys.exit(3)": 3, "raise KeyError('x')": 1}.get(ending, 0)
    assert done.returncode == expected, done.stderr
    assert (b"KeyError" in done.stderr) == (expected == 1)
    assert done.stderr.count(b"\n") <= (4 if expected == 1 else 0), done.stderr


def down(depth):
    """Busy so deep down."""
    return down(depth - 1) if depth else busy(0.02)


def deepest():
    """How deep that may be from here."""
    depth = sys.getrecursionlimit()
    while True:
        try:
            down(depth)
        except RecursionError:
            depth -= 1
        else:
            return depth


def test_code_as_deep_as_it_may_be_is_left_alone(asking):
    """A look needs frames of its own: where there are none it is not taken, and later ones are."""
    most = deepest()
    heard = Heard()
    asking(heard, rate_hz=500.0)
    for spare in range(15):
        down(most - spare)
    looks = len(heard.looks)
    busy_until(lambda: len(heard.looks) > looks)


@pytest.mark.parametrize(("meanwhile", "is_held"), [(busy, True), (time.sleep, False)])
def test_the_kernel_tells_who_waited_for_the_interpreter(meanwhile, is_held):
    """Beside busy Python a thread lies down more than once for each of its moments."""
    found = []

    def wait():
        rests = ContextSwitches()
        for _ in range(40):
            time.sleep(0.005)
            found.append(rests.since_last())

    thread = threading.Thread(target=wait)
    thread.start()
    while thread.is_alive():
        meanwhile(0.1)
    thread.join()
    held = sum(count > 1 for count in found)
    assert held > 30 if is_held else held < 10
