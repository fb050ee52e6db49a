"""Compiles LaTeX that this package writes; tests are skipped if pdflatex is not installed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

# Latin Modern has outlines; without it, pdfLaTeX makes bitmaps of its fonts, which takes seconds.
_DOCUMENT = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\IfFileExists{lmodern.sty}{\usepackage{lmodern}}{}
\usepackage{booktabs}
\usepackage{url}
\begin{document}
%s
\bibliographystyle{plain}
\bibliography{sources}
\end{document}
"""


def compiled(folder: Path, body: str, bibtex: str = "") -> str:
    """Compile a document with its bibliography, and return the log of the last run.

    If the environment variable REQUIRE_PDFLATEX is set, a missing pdflatex is an error.
    """
    if shutil.which("pdflatex") is None or shutil.which("bibtex") is None:
        if os.environ.get("REQUIRE_PDFLATEX"):
            pytest.fail("REQUIRE_PDFLATEX is set, but pdflatex or bibtex is not installed")
        pytest.skip("no pdflatex on this machine")
    (folder / "paper.tex").write_text(_DOCUMENT % body, encoding="utf-8")
    (folder / "sources.bib").write_text(bibtex, encoding="utf-8")
    latex = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper"]
    _run(folder, latex)
    if bibtex:
        _run(folder, ["bibtex", "paper"])
        _run(folder, latex)
    _run(folder, latex)
    assert (folder / "paper.pdf").read_bytes().startswith(b"%PDF")
    return (folder / "paper.log").read_text(encoding="latin-1").replace("\n", "")


def _run(folder: Path, command: list[str]) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout.decode("latin-1")[-2000:]
