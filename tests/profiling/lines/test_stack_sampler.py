"""Tests of the sampling of the main thread, and that it does not disturb the program."""

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
    """Run Python for this time."""
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        pass


def busy_until(is_over):
    """Run Python until a condition holds, which usually takes milliseconds."""
    end_s = time.monotonic() + 300.0
    while not is_over():
        assert time.monotonic() < end_s


class Samples:
    """Keeps samples; calls a function at the first one."""

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
def sampling():
    """Starts samplers, and stops them after the test."""
    begun = []

    def begin(look, rate_hz=200.0):
        begun.append(StackSampler(look, rate_hz))
        begun[-1].start()
        return begun[-1]

    yield begin
    for sampler in begun:
        sampler.stop()


def test_looks_come_on_the_main_thread_and_stand_for_all_the_time(sampling):
    """Samples are taken on the main thread and represent all the time without gaps."""
    samples = Samples()
    before_s = time.monotonic()
    sampler = sampling(samples)
    begun_s = time.monotonic()
    busy_until(lambda: len(samples.looks) > 20)
    sampler.stop()
    assert samples.threads == {threading.main_thread()}
    spans = [(look.since_s, look.until_s) for _, look in samples.looks]
    assert before_s <= spans[0][0] <= begun_s
    assert all(one[1] == other[0] for one, other in itertools.pairwise(spans))
    assert spans[-1][1] <= time.monotonic()
    assert sampler.looks == len(samples.looks)


def test_a_call_that_lasts_is_one_look_with_its_cpu_time(sampling):
    """A sleep is sampled at its end: one sample represents it, without CPU time."""
    samples = Samples()
    sampling(samples)

    def longest():
        return max((look for _, look in samples.looks), key=lambda one: one.until_s - one.asked_s)

    end_s = time.monotonic() + 300.0
    while not samples.looks or longest().until_s - longest().asked_s < 0.08:
        time.sleep(0.1)
        assert time.monotonic() < end_s
    assert longest().cpu < 0.1


def sampled_while_busy(sampling, number):
    """Run while a signal interrupts the first sample."""
    sampling(Samples(lambda: signal.raise_signal(number)))
    busy(30.0)


def test_what_a_handler_of_a_signal_raises_in_a_look_reaches_the_program(sampling):
    """The exception of a signal handler during a sample is raised in the program."""

    class Timeout(Exception):
        pass

    def handler(number, frame):
        raise Timeout("of the user")

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Timeout, match="of the user"):
            sampled_while_busy(sampling, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_ctrl_c_in_a_look_is_not_lost(sampling):
    """KeyboardInterrupt during a sample is raised in the program."""
    with pytest.raises(KeyboardInterrupt):
        sampled_while_busy(sampling, signal.SIGINT)


def test_a_bug_of_ours_ends_the_asking_alone(sampling, caplog):
    """Sampling ends with one warning; the program continues."""

    def bug():
        raise ZeroDivisionError("ours")

    samples = Samples(bug)
    sampler = sampling(samples)
    busy_until(lambda: caplog.records)
    sampler._thread.join(30.0)
    assert not sampler._thread.is_alive()
    busy(0.001)
    assert len(samples.looks) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_no_look_is_asked_for_during_a_look():
    """A second request would stop a traced program in the look.

    With a trace or profile function, CPython 3.11 repeats the entry of a Python function as long as
    a pending call waits, and pending calls wait for the end of the current one.
    """
    during = []

    def take(frame, look):
        busy(0.02)
        during.append(sampler._request.moment_s > look.asked_s)

    sampler = StackSampler(take, 1000.0)
    sampler.start()
    busy_until(lambda: len(during) > 3)
    sampler.stop()
    assert not any(during)


def test_no_handler_no_timer_and_the_users_random_numbers_stay(sampling):
    """Signal handlers, timers and random numbers of the process are unchanged."""
    import random

    random.seed(7)
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    samples = Samples()
    sampler = sampling(samples)
    busy_until(lambda: len(samples.looks) > 5)
    assert [signal.getsignal(number) for number in signal.valid_signals()] == handlers
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    sampler.stop()
    assert random.random() == random.Random(7).random()


def test_another_thread_than_the_main_one_is_refused():
    """The error says what to do."""
    said = []

    def begin():
        try:
            StackSampler(Samples(), 50.0)
        except RuntimeError as error:
            said.append(str(error))

    thread = threading.Thread(target=begin)
    thread.start()
    thread.join()
    assert "on the main thread" in said[0]


@pytest.fixture
def quick_collector():
    """Makes the garbage collector ignore objects that existed before the test."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("quick_collector")
def test_a_request_that_is_never_heard_in_time_does_nothing(sampling):
    """A sampler that was stopped and freed with a pending request takes no more samples."""
    samples = Samples()
    for _ in range(50):
        sampler = sampling(samples, rate_hz=1000.0)
        time.sleep(0.003)  # a request waits
        sampler.stop()
        before = len(samples.looks)
        del sampler
        gc.collect()
        busy(0.001)
        assert len(samples.looks) == before


def test_a_forked_child_is_not_asked(sampling):
    """A forked child takes no samples, not even for a pending request."""
    samples = Samples()
    sampler = sampling(samples)
    busy_until(lambda: samples.looks)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        samples.looks.clear()
        busy(0.1)
        bool(sampler._pending)  # what a request that was waiting asks
        os.write(write, str(len(samples.looks)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 10) == b"0"


@pytest.mark.parametrize("ending", ["pass", "sys.exit(3)", "raise KeyError('x')", "del sampler"])
def test_the_interpreter_ends_as_it_would(ending):
    """Sampling until the end changes neither the exit status nor the output."""
    program = (
        "import sys, time\n"
        "from energy_callbacks.profiling.lines.stack_sampler import StackSampler\n"
        "sampler = StackSampler(lambda frame, look: None, 1000.0)\n"
        "sampler.start()\n"
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
    """Run Python at a depth of the stack."""
    return down(depth - 1) if depth else busy(0.02)


def deepest():
    """Return the maximum depth from here."""
    depth = sys.getrecursionlimit()
    while True:
        try:
            down(depth)
        except RecursionError:
            depth -= 1
        else:
            return depth


def test_code_as_deep_as_it_may_be_is_left_alone(sampling):
    """At the maximum depth of the stack no sample is taken; later samples are."""
    most = deepest()
    samples = Samples()
    sampling(samples, rate_hz=500.0)
    for spare in range(15):
        down(most - spare)
    looks = len(samples.looks)
    busy_until(lambda: len(samples.looks) > looks)


@pytest.mark.parametrize(("meanwhile", "is_held"), [(busy, True), (time.sleep, False)])
def test_the_kernel_tells_who_waited_for_the_interpreter(meanwhile, is_held):
    """Beside busy Python, a thread sleeps more than once per moment."""
    found = []

    def wait():
        sleeps = ContextSwitches()
        for _ in range(40):
            time.sleep(0.005)
            found.append(sleeps.since_last())

    thread = threading.Thread(target=wait)
    thread.start()
    while thread.is_alive():
        meanwhile(0.1)
    thread.join()
    held = sum(count > 1 for count in found)
    assert held > 30 if is_held else held < 10
