"""A fake Slurm: ``sbatch``, ``squeue`` and ``scontrol`` as executables in a folder.

``sbatch`` keeps the script; its tasks wait in the queue until ``Cluster.work`` runs them.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.matrix.lab import Lab

PROGRAM = f"""#!{sys.executable}
import json, re, sys
from pathlib import Path

folder = Path(__file__).parent
program, words = Path(__file__).name, sys.argv[1:]
state = folder / "state.json"
jobs = json.loads(state.read_text()) if state.exists() else {{}}
if program == "scontrol":
    print("Configuration data\\nMaxArraySize            = SIZE\\nMaxJobCount = 10000")
elif program == "squeue":
    number = next(word for word in words if word.startswith("--jobs=")).split("=")[1]
    asked = next((word for word in words if word.startswith("--clusters=")), "")
    if number not in jobs or asked.partition("=")[2] != jobs[number].get("cluster", ""):
        sys.exit("slurm_load_jobs error: Invalid job id specified")
    assert "--format=%K" in words and "--array" in words
    if asked:
        print("CLUSTER: " + jobs[number]["cluster"])
    print("\\n".join(map(str, jobs[number]["tasks"])))
else:
    [script] = [word for word in words if not word.startswith("--")]
    text = Path(script).read_text()
    if "--partition=wrong" in text:
        sys.exit("sbatch: error: invalid partition specified: wrong")
    first, last = map(int, re.search(r"--array=(\\d+)-(\\d+)", text).groups())
    assert last < SIZE, "sbatch: error: Invalid job array specification"
    number = str(100 + len(jobs))
    # With this option, the output has the name of the cluster (sbatch(1), --parsable).
    found = re.search(r"--clusters=(\\w+)", text)
    cluster = found[1] if found else ""
    tasks = list(range(first, last + 1))
    jobs[number] = {{"script": script, "tasks": tasks, "cluster": cluster}}
    state.write_text(json.dumps(jobs))
    assert "--parsable" in words
    print(number + (f";{{cluster}}" if cluster else ""))
"""


class Cluster:
    """The folder with the programs of Slurm.

    Args:
        folder: an empty folder.
        max_array_size: ``MaxArraySize`` of the cluster.
    """

    def __init__(self, folder: Path, max_array_size: int = 1001) -> None:
        self.folder = folder
        folder.mkdir()
        for name in ("sbatch", "squeue", "scontrol"):
            program = folder / name
            program.write_text(PROGRAM.replace("SIZE", str(max_array_size)), encoding="utf-8")
            program.chmod(0o755)

    @property
    def jobs(self) -> dict[str, Any]:
        """Job number to its script and the tasks that have not run."""
        state = self.folder / "state.json"
        found: dict[str, Any] = json.loads(state.read_text()) if state.exists() else {}
        return found

    def work(self, run: Callable[[str, int], None], only: Sequence[int] | None = None) -> None:
        """Run queued tasks one after another, and remove them from the queue.

        Args:
            run: takes the path of a script and the index of a task.
            only: indices of the tasks to run; ``None`` for all.
        """
        jobs = self.jobs
        for job in jobs.values():
            for task in [one for one in job["tasks"] if only is None or one in only]:
                run(job["script"], task)
                job["tasks"].remove(task)
        (self.folder / "state.json").write_text(json.dumps(jobs), encoding="utf-8")


def run_here(lab: Lab) -> Callable[[str, int], None]:
    """Return a function that runs a task in this process, by the last line of its script."""

    def run(script: str, task: int) -> None:
        line = Path(script).read_text(encoding="utf-8").splitlines()[-1]
        words = shlex.split(line.replace("$SLURM_ARRAY_TASK_ID", str(task)))
        assert words[:6] == ["exec", sys.executable, "-P", "-m", "energy_callbacks", "matrix"]
        lab.call(*words[6:])

    return run


def run_by_bash(lab: Lab) -> Callable[[str, int], None]:
    """Return a function that runs the script of a task, with output to the file it names."""

    def run(script: str, task: int) -> None:
        found = re.search(r"--output=(.*)", Path(script).read_text(encoding="utf-8"))
        assert found is not None
        with Path(found[1].replace("%a", str(task))).open("wb") as output:
            subprocess.run(
                ["/bin/bash", script],
                env={**os.environ, **lab.environment, "SLURM_ARRAY_TASK_ID": str(task)},
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=600.0,
            )

    return run
