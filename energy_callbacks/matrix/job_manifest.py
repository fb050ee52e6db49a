"""A file of jobs for another machine, independent of later changes of the TOML file."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from energy_callbacks.matrix.attempts import Results, write_json
from energy_callbacks.matrix.plan import MatrixJob


def write(path: Path, results: Results, jobs: Sequence[MatrixJob]) -> None:
    """Jobs, and what is needed to run each of them by its number."""
    content = {"results": asdict(results), "jobs": [asdict(job) for job in jobs]}
    write_json(path, content)


def read(path: Path) -> tuple[Results, list[MatrixJob]]:
    """Read a file of ``write``.

    Raises:
        ValueError: if it is no such file, or not to be seen on this machine.
    """
    if not path.is_file():
        raise ValueError(
            f"{path} is not to be seen on this machine; put the results on a file system that all "
            "machines share, by --out"
        )
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        kept = content["results"]
        for name in ("folder", "working_folder"):
            kept[name] = Path(kept[name])
        jobs = [MatrixJob(**{**one, "words": tuple(one["words"])}) for one in content["jobs"]]
        return Results(**kept), jobs
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} holds no jobs of a matrix ({error!r}); run the matrix again"
        ) from error
