"""The functions that all charts share: style, panels, labels, and export as PNG and inline SVG.

No chart uses pyplot, so the state of the user's own plots does not change.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from energy_callbacks.core import extras, formatting
from energy_callbacks.core.units import JOULES_PER_WATT_HOUR
from energy_callbacks.report.charts.palette import CSS_VARIABLES, GRID, INK, PAPER, css_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_IN_INK = ("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor")
_LIKE_GRID = ("axes.edgecolor", "grid.color", "xtick.color", "ytick.color")
_OFF = (
    "text.parse_math",
    "axes.spines.top",
    "axes.spines.right",
    "legend.frameon",
    "path.simplify",
)
_STYLE: Mapping[str, Any] = {
    **dict.fromkeys(_IN_INK, INK),
    **dict.fromkeys(_LIKE_GRID, GRID),
    **dict.fromkeys(_OFF, False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor"), "none"),
    "svg.fonttype": "none",
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "legend.fontsize": 8.5,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 1.1,
}
# Maximum length of a label in a legend, in characters. Narrow charts have shorter labels.
LONG_LABEL = 28
# Charts narrower than this, in inches, are *narrow*: their layout is for a telephone.
NARROW_IN = 6.0


VectorFormat = Literal["svg", "pdf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart: its name, its title, and the function that draws it.

    Attributes:
        name: name of the chart in file names and in tags of TensorBoard.
        title: text above the chart.
        draw: function of the data and ``width_in`` (inches) that returns the figure, or ``None``
            if there is nothing to draw.
        data: data of the chart; ``None`` if the caller of ``figure`` passes the data.
    """

    name: str
    title: str
    draw: "Callable[..., Canvas | None]"
    data: Any = None

    def figure(self, shown: Any, width_in: float) -> "Canvas | None":
        """Draw the chart and return its figure; ``None`` if there is nothing to draw.

        Args:
            shown: data of the chart, such as the report; used only if ``data`` is ``None``.
            width_in: width of the figure in inches.
        """
        return self.draw(shown if self.data is None else self.data, width_in=width_in)


def why_left_out() -> str:
    """Return why pages have no charts; empty if matplotlib is installed."""
    if extras.is_installed("matplotlib"):
        return ""
    return f"Charts are left out: {extras.missing('matplotlib')}"


@contextmanager
def style(salt: str = "energy-report") -> Iterator[None]:
    """Use matplotlib's defaults and the settings of all charts in a ``with`` block.

    The user's settings of matplotlib are ignored in the block and restored at its end.

    Args:
        salt: seed of the ids in an SVG; the same salt results in the same ids.

    Raises:
        MissingExtraError: if matplotlib is not installed; the same applies to ``panels``.
    """
    with extras.requires("matplotlib"):
        import matplotlib as mpl
    with mpl.rc_context(), warnings.catch_warnings():
        # Matplotlib warns if the font has no glyph for a character of a name. The warning is
        # hidden: in an SVG, the browser draws the character in another font.
        warnings.filterwarnings("ignore", message="Glyph .* missing", category=UserWarning)
        mpl.rcdefaults()
        settings: Any = {**_STYLE, "svg.hashsalt": salt}
        mpl.rcParams.update(settings)
        yield


@contextmanager
def panels(
    width_in: float, height_in: float, rows: int = 1, columns: int = 1, **options: Any
) -> "Iterator[tuple[Canvas, list[Axes]]]":
    """Create a figure with the settings of ``style``; yield the figure and its panels, row by row.

    Args:
        width_in: width of the figure in inches.
        height_in: height of the figure in inches.
        rows: number of rows of panels.
        columns: number of columns of panels.
        **options: passed to ``matplotlib.figure.Figure.subplots``.
    """
    with style():
        from matplotlib.figure import Figure as Canvas

        canvas = Canvas(figsize=(width_in, height_in), layout="constrained")
        yield canvas, canvas.subplots(rows, columns, squeeze=False, **options).ravel().tolist()


def add_legend(axes: "Axes", columns: int, **options: Any) -> None:
    """Put the legend of a panel above the panel.

    Args:
        axes: the panel.
        columns: number of columns of the legend.
        **options: passed to ``axes.legend``.
    """
    place: Any = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.1}
    axes.legend(ncols=columns, **place | options)


def add_note(
    axes: "Axes",
    text: str,
    place: tuple[float, float],
    offset: tuple[float, float],
    fontsize: float,
    **options: Any,
) -> None:
    """Write a text near a point of a panel.

    Args:
        axes: the panel.
        text: the text.
        place: the point, in data coordinates unless ``options`` contains ``xycoords``.
        offset: distance of the text from ``place`` to the right and upwards, in points.
        fontsize: size of the text, in points.
        **options: passed to ``axes.annotate``.
    """
    axes.annotate(text, place, offset, textcoords="offset points", fontsize=fontsize, **options)


def name_rows(axes: "Axes", names: Sequence[str]) -> None:
    """Label the rows of a horizontal bar chart, with the first row on top."""
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0.0)


def time_unit(duration_s: float) -> tuple[float, str]:
    """Return the unit of a time axis of length ``duration_s``: its size in s, and its name."""
    if duration_s < 180.0:
        return 1.0, "s"
    if duration_s < 3.0 * 3600.0:
        return 60.0, "min"
    return 3600.0, "h"


def energy_unit(energy_j: float) -> tuple[float, str]:
    """Return the unit of an energy axis up to ``energy_j``: its size in J, and its name."""
    if energy_j < 0.1 * JOULES_PER_WATT_HOUR:
        return JOULES_PER_WATT_HOUR / 1e3, "mWh"
    if energy_j < 1e3 * JOULES_PER_WATT_HOUR:
        return JOULES_PER_WATT_HOUR, "Wh"
    return JOULES_PER_WATT_HOUR * 1e3, "kWh"


def short_name(name: str, length: int = LONG_LABEL) -> str:
    """Return a name on one line, without control characters, cut to ``length`` characters."""
    # Leading underscores are removed, because legends omit labels that begin with an underscore.
    clean = re.sub(r" +", " ", formatting.one_line(name)).strip().lstrip("_") or "unnamed"
    return clean if len(clean) <= length else clean[: length - 1] + "…"


def figure_png(fig: "Canvas", *, title: str = "", dpi: float = 100.0) -> bytes:
    """Return a figure as a PNG image on a light background.

    A legend of the whole figure is shown here, although it is hidden in SVG images.

    Args:
        fig: the figure.
        title: text above the figure, cut to the figure's width; ``""`` for none.
        dpi: dots per inch.
    """
    with style():
        if title:
            # A letter of 10 points is about a twelfth of an inch wide.
            longest = round(12 * fig.get_figwidth())
            fig.suptitle(short_name(title, longest), x=0.01, ha="left", fontsize=10.0)
        return _saved(fig, format="png", facecolor=PAPER, dpi=dpi)


def figure_vector(fig: "Canvas", kind: VectorFormat) -> bytes:
    """Return a figure as an SVG or PDF file for a paper, without a title and with fonts embedded.

    The same figure always results in the same bytes. A legend of the whole figure is shown.
    """
    import matplotlib as mpl

    dates = {"svg": ("Date",), "pdf": ("CreationDate",)}[kind]
    with style():
        # Type 42 are TrueType fonts; publishers refuse the default, Type 3.
        fonts: Any = {"svg.fonttype": "path", "pdf.fonttype": 42}
        mpl.rcParams.update(fonts)
        return _saved(fig, format=kind, facecolor="white", metadata=dict.fromkeys(dates))


def _saved(fig: "Canvas", **options: Any) -> bytes:
    """Return a figure as a file, with its legend; the options are those of ``savefig``."""
    buffer = io.BytesIO()
    for legend in fig.legends:
        legend.set(visible=True, in_layout=True)
    fig.savefig(buffer, **options)
    return buffer.getvalue()


def figure_svg(fig: "Canvas", *, name: str = "chart", title: str = "") -> str:
    """Return a figure as inline SVG, without a fixed size and with colours that CSS can replace.

    The same figure, name and title always result in the same text. A hidden legend of the whole
    figure is removed from it, because the layout would reserve space for the legend.

    Args:
        fig: the figure.
        name: name of the figure, unique on the page; makes the ids in the SVG unique.
        title: text for screen readers.
    """
    from markupsafe import escape
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    for legend in list(fig.legends):
        if not legend.get_visible():
            legend.remove()
    buffer = io.StringIO()
    with style(salt=name):
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        # ``fig.savefig`` would compute the layout twice.
        FigureCanvasSVG(fig).print_svg(buffer, metadata=metadata)  # type: ignore[no-untyped-call]
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r' d="[^"]*"', _shorter, svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    svg = re.sub(r' (?:x|y|transform)="[^"]*"', _rounded, svg)
    svg = re.sub(r">\s+<", "><", svg)
    svg = svg.replace("font-family: 'DejaVu Sans'; ", "")  # the font of the page is used
    for colour in CSS_VARIABLES:
        svg = svg.replace(colour, css_colour(colour))
    return svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}"', 1)


def _rounded(attribute: "re.Match[str]") -> str:
    return re.sub(r"(\.\d\d)\d+", r"\1", attribute[0])


def _shorter(path: "re.Match[str]") -> str:
    """Return the path of an SVG element with coordinates cut to 0.01 points.

    The removed digits are too small to be seen on a screen. In a path of straight lines,
    horizontal and vertical lines get one coordinate instead of two.
    """
    rounded = _rounded(path).replace("\n", "")
    before: tuple[str, str] | None = None

    def along_axis(point: "re.Match[str]") -> str:
        nonlocal before
        (command, x, y), last = point.groups(), before
        before = (x, y)
        if command == "L" and last is not None and x == last[0]:
            return f"V{y}"
        if command == "L" and last is not None and y == last[1]:
            return f"H{x}"
        return f"{command}{x} {y}"

    is_polygon = not re.search(r"[CQA]", rounded)
    return re.sub(r"([ML]) (\S+) ([^\s\"]+) ?", along_axis, rounded) if is_polygon else rounded
