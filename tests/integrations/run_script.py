"""Processes that run scripts without drawing charts, and servers that fork such processes.

``python -m tests.integrations.run_script MODULE ...`` runs a script. With ``--fork-server MODULE
...`` it imports the modules, and then runs scripts in forks of itself, as told on the standard
input (see ``processes.Forking``): ``{"start": SCRIPT}`` is answered with the id of a new process,
``{"ended": null}`` with the exit statuses of those that have ended since.
"""

import ctypes
import importlib
import json
import logging
import os
import runpy
import sys
from typing import IO, Any, NoReturn

import pytest

from tests.charts import leave_out_charts
from tests.garbage import freeze


def serve(questions: IO[str], answers: IO[str]) -> dict[str, Any] | None:
    """Answer questions to their end; returns in each fork, with the script that it shall run."""
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
    """Exit statuses of forks that nobody has asked for."""
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
    """Give this process the streams, folder, environment and arguments of a script."""
    os.chdir(script["folder"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for number, stream in enumerate((nothing, output, output)):
        os.dup2(stream, number)
    os.environ.update(script["environment"])
    sys.argv = [script["module"], *script["arguments"]]
    if "FAKE_NVML_CONFIG" in os.environ:
        # The linker of this process has read LD_LIBRARY_PATH long ago.
        from tests.fake_nvml.library import load_library

        load_library()


def serve_in_a_fork(questions: IO[str], answers: IO[str]) -> NoReturn:
    """Be a server although functions of the tests have called this one: none of them goes on."""
    leave_out_charts(pytest.MonkeyPatch())
    script = serve(questions, answers)
    if script is None:
        os._exit(0)
    questions.close()
    answers.close()
    become(script)
    # pytest has put its own in their places.
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w", 1)
    sys.meta_path = [one for one in sys.meta_path if not _is_of_pytest(one)]
    logging.root.handlers = [one for one in logging.root.handlers if not _is_of_pytest(one)]
    # As the interpreter runs a script and ends: traceback, exit status, exit hooks.
    python = ctypes.pythonapi
    failed = python.PyRun_SimpleString(b"from tests.integrations.run_script import run; run()")
    python.Py_Exit(1 if failed else 0)
    raise AssertionError("the interpreter has ended")


def _is_of_pytest(one: object) -> bool:
    return type(one).__module__.startswith("_pytest")


def run() -> None:
    """Run the script that ``sys.argv`` names, also where a test has imported it."""
    sys.modules.pop(sys.argv[0], None)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    leave_out_charts(pytest.MonkeyPatch())
    sys.argv = sys.argv[1:]
    if sys.argv[0] == "--fork-server":
        for name in sys.argv[1:]:
            importlib.import_module(name)
        freeze()  # else the end of each fork takes 2 s
        told = serve(sys.stdin, sys.stdout)
        if told is None:
            sys.exit()
        become(told)
    run()
