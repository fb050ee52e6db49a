"""Runs scripts without drawing charts, in this process or in forks of a server process.

``python -m tests.integrations.run_script MODULE ...`` runs a script. ``--fork-server MODULE ...``
imports the modules and then runs scripts in forks of this process. It reads JSON lines from the
standard input (see ``processes.Forking``). It answers ``{"start": SCRIPT}`` with the id of the new
process, and ``{"ended": null}`` with the exit statuses of the processes that have ended since the
previous ``{"ended": null}``.
"""

import ctypes
import importlib
import json
import logging
import os
import runpy
import sys
from importlib.util import find_spec
from typing import IO, Any, NoReturn

import pytest

from tests.charts import leave_out_charts
from tests.garbage import freeze
from tests.integrations.no_tensorflow import keep_tensorflow_out

# Modules that a training imports when it starts, and for its report.
_LATE = (
    "energy_callbacks.accounting.attempt",
    "energy_callbacks.sensing.discovery",
    "energy_callbacks.sensing.sources.allocator",
    "energy_callbacks.sensing.sources.codecarbon_models",
    "energy_callbacks.sensing.sources.estimate",
    "energy_callbacks.sensing.sources.host_memory",
    "energy_callbacks.sensing.sources.rapl",
    "jinja2",
    "psutil",
)


def import_late_modules() -> None:
    """Import what trainings import late, so that each fork of this process finds it there."""
    from energy_callbacks.report.model.schema import EnergyReport, adapter

    for name in _LATE:
        importlib.import_module(name)
    adapter(EnergyReport)  # made once in a process, in 0.2 s


def serve(questions: IO[str], answers: IO[str]) -> dict[str, Any] | None:
    """Answer questions until their stream is closed.

    Returns:
        In a fork, the script that it must run; in the server, ``None`` after the last question.
    """
    for line in questions:
        question = json.loads(line)
        if "start" in question:
            pid = os.fork()
            if not pid:
                return question["start"]
            answer: Any = pid
        else:
            answer = ended()
        print(json.dumps(answer), file=answers, flush=True)
    return None


def ended() -> dict[int, int]:
    """Return the exit status of each fork that ended since the last call, by process id."""
    found = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        found[pid] = os.waitstatus_to_exitcode(status)


def become(script: dict[str, Any]) -> None:
    """Set the streams, working directory, environment and arguments of this process."""
    os.chdir(script["folder"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number, stream in enumerate((nothing, output, output)):
        os.dup2(stream, number)
    os.environ.update(script["environment"])
    sys.argv = [script["module"], *script["arguments"]]
    if "FAKE_NVML_CONFIG" in os.environ:
        # The dynamic linker reads LD_LIBRARY_PATH only at the start of a process.
        from tests.fake_nvml.library import load_library

        load_library()


def serve_in_a_fork(questions: IO[str], answers: IO[str]) -> NoReturn:
    """Run the server, or a script in a fork of it; never returns to the calling test code."""
    leave_out_charts(pytest.MonkeyPatch())
    script = serve(questions, answers)
    if script is None:
        os._exit(0)
    questions.close()
    answers.close()
    become(script)
    # pytest has replaced the streams, and added import hooks and log handlers.
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", 1)
    sys.meta_path = [one for one in sys.meta_path if not _is_of_pytest(one)]
    logging.root.handlers = [one for one in logging.root.handlers if not _is_of_pytest(one)]
    # Run the script and exit as the interpreter does: traceback, exit status, exit hooks.
    python = ctypes.pythonapi
    failed = python.PyRun_SimpleString(b"from tests.integrations.run_script import run; run()")
    python.Py_Exit(1 if failed else 0)
    raise AssertionError("the interpreter has ended")


def _is_of_pytest(one: object) -> bool:
    return type(one).__module__.startswith("_pytest")


def run() -> None:
    """Run the module ``sys.argv[0]`` as a script, even if a test has already imported it."""
    sys.modules.pop(sys.argv[0], None)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if find_spec("matplotlib"):  # without it, the product leaves them out
        leave_out_charts(pytest.MonkeyPatch())
    sys.argv = sys.argv[1:]
    if sys.argv[0] == "--fork-server":
        keep_tensorflow_out()
        for name in sys.argv[1:]:
            importlib.import_module(name)
        import_late_modules()
        freeze()  # otherwise the end of each fork takes 2 s
        told = serve(sys.stdin, sys.stdout)
        if told is None:
            sys.exit()
        become(told)
    run()
