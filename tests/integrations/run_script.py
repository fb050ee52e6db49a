"""``python -m tests.integrations.run_script MODULE ...`` runs a script without drawing charts.

With ``--fork-server MODULE ...`` it imports the modules, and then runs scripts in forks of itself,
as told on the standard input (see ``processes.Forking``): ``{"start": SCRIPT}`` is answered with
the id of a new process, ``{"ended": null}`` with the exit statuses of those that have ended since.
"""

import gc
import importlib
import json
import os
import runpy
import sys
from typing import Any

import pytest

from tests.charts import leave_out_charts


def serve() -> dict[str, Any]:
    """Answer questions; returns in each fork, with the script that it shall run.

    Raises:
        SystemExit: at the end of the questions.
    """
    for line in sys.stdin:
        question = json.loads(line)
        if "start" in question:
            pid = os.fork()
            if not pid:
                return question["start"]
            answer: Any = pid
        else:
            answer = ended()
        print(json.dumps(answer), flush=True)
    sys.exit()


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


if __name__ == "__main__":
    leave_out_charts(pytest.MonkeyPatch())
    sys.argv = sys.argv[1:]
    if sys.argv[0] == "--fork-server":
        for name in sys.argv[1:]:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()  # else each fork copies all memory when it ends and collects garbage: 2 s
        become(serve())
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
