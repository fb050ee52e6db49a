"""Text, pictures and numbers as TensorBoard's own pages show them."""

import subprocess
import sys
from pathlib import Path

from matplotlib.figure import Figure
from tensorboard.plugin_util import markdown_to_safe_html

from energy_callbacks.outputs import summaries
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks.report.charts.drawing import figure_png
from tests.outputs.tensorboard_view import TensorBoardView
from tests.outputs.test_tensorboard import read

HOSTILE = "Energy  1 Wh\n\n```\n<script>alert(1)</script>\n* no list\n# no heading\n"
PNG = figure_png(Figure(figsize=(3.0, 2.0)), dpi=10.0)


def write(folder: Path, summary: object) -> TensorBoardView:
    """A file with one summary."""
    output = TensorBoardOutput(folder / "run")
    output.add(summary, 3)
    output.close()
    return TensorBoardView(folder)


def test_text_is_shown_as_it_is(tmp_path: Path) -> None:
    """No line of the text is interpreted as Markdown or HTML."""
    view = write(tmp_path, summaries.verbatim("report", HOSTILE))
    [text] = view.texts("run", "report")
    page = markdown_to_safe_html(text)
    assert page.startswith("<pre><code>Energy  1 Wh\n\n```\n&lt;script&gt;")
    assert "<li>" not in page
    assert "<h1>" not in page


def test_a_picture_comes_back_with_its_size(tmp_path: Path) -> None:
    """The bytes of the PNG are unchanged; width and height are read from its first chunk."""
    view = write(tmp_path, summaries.image("power", PNG))
    assert view.images("run") == {"power": [PNG]}
    [event] = read(tmp_path / "run").Images("power") or [None]
    assert (event.width, event.height, event.step) == (30, 20, 3)


def test_numbers_are_classic_scalars(tmp_path: Path) -> None:
    """Every reader of event files supports them."""
    write(tmp_path, summaries.scalars({"b": 2.0, "a": 1.0}))
    found = read(tmp_path / "run")
    assert [(tag, found.Scalars(tag)[0].value) for tag in ("a", "b")] == [("a", 1.0), ("b", 2.0)]


PROBE = """
import sys
from energy_callbacks.outputs import hparams, layout, summaries
assert "tensorboard" not in sys.modules, "import"
layout.layout(["power/gpu_w"])
hparams.session_start({"a": 1.0}, 1.0)
hparams.experiment({"a": 1.0}, ["b"], 1.0)
hparams.session_end(1.0, is_success=True)
summaries.verbatim("a", "b")
print(sorted({"torch", "tensorflow"} & set(sys.modules)))
"""


def test_no_framework_is_imported(tmp_path: Path) -> None:
    """Layout, parameters and text import neither TensorFlow nor PyTorch if both are installed."""
    for name in ("tensorflow", "torch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    start = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    for extra, expected in (("", "[]"), ("import torch", "['torch']")):
        answer = subprocess.run(
            [sys.executable, "-c", f"{start}{extra}\n{PROBE}"],
            check=True, capture_output=True, text=True, timeout=600.0,
        )  # fmt: skip
        assert answer.stdout.strip() == expected
