"""Matplotlib figures as SVG that belongs to the page: its fonts, its colours (light and dark), its size.

Figures are made without pyplot, so nothing global is opened or closed. Text stays text (it can be searched,
and a name from the data is escaped by the SVG writer); it is never parsed as TeX, whatever dollars a name
holds.
"""

from __future__ import annotations

import io
import re
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What figures draw with; `svg` turns each into the page's variable of that name, which has a light and a dark
# value. Blue, vermilion and green of Okabe and Ito stay apart under every common colour blindness.
COLOURS = {
    "ink": "#1b1f27",
    "muted": "#5b6573",
    "rule": "#d3d9e0",
    "soft": "#e9edf2",
    "accent": "#0b62a4",
    "shard": "#8fb3cf",
    "alarm": "#c8500a",
    "good": "#007a5a",
    "violet": "#8b3f9e",
    "ochre": "#9a7400",
    "rose": "#c2447d",
}
# Rules side by side: a colour and a dash each, so that neither alone has to tell them apart.
RULE_COLOURS = ("accent", "alarm", "good", "violet", "ochre", "rose")
RULE_DASHES: tuple[Any, ...] = ("solid", (0, (4, 1.5)), (0, (1.2, 1.2)))
FONT_SIZE = 8.0
WIDTH = 9.6  # inches; drawn at 96 pixels an inch this is the page's text width


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure, in inches, that writes SVG."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=72)
    FigureCanvasSVG(figure)
    figure.patch.set_alpha(0.0)
    return figure


def inches_axes(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes placed in inches from the upper left corner, with quiet spines."""
    total_width, total_height = figure.get_size_inches()
    axes = figure.add_axes(
        (left / total_width, 1 - (top + height) / total_height, width / total_width, height / total_height)
    )
    axes.patch.set_alpha(0.0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(COLOURS["muted"])
        axes.spines[side].set_linewidth(0.6)
    axes.tick_params(labelsize=FONT_SIZE - 0.5, colors=COLOURS["muted"], width=0.6, length=2.5, pad=2)
    return axes


def plain_ticks(axis: Any, most: int = 5, *, integer: bool = False, edge: float = 0.0) -> None:
    """Few ticks with plain numbers: no offsets, no powers of ten in a corner.

    ``edge`` is the share of the axis at either end that gets no tick, so that neighbours' numbers do not
    touch; the limits must have been set.
    """
    from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, MaxNLocator

    locator: Locator = MaxNLocator(
        most, steps=[1, 2, 5, 10] if integer else [1, 2, 2.5, 5, 10], integer=integer
    )
    if edge > 0:
        low, high = axis.get_view_interval()
        margin = edge * (high - low)
        inner = [tick for tick in locator.tick_values(low, high) if low + margin <= tick <= high - margin]
        locator = FixedLocator(inner)
    axis.set_major_locator(locator)
    axis.set_major_formatter(FuncFormatter(tick_text))


def tick_text(value: float, _position: int | None = None) -> str:
    """A tick's number.

    Examples
    --------
    >>> tick_text(0.30000000000000004), tick_text(-2.0), tick_text(25000.0), tick_text(3e-7)
    ('0.3', '−2', '25000', '3e−07')
    """
    text = format(value, ".7g" if abs(value) < 1e7 else ".4g")
    return ("0" if text == "-0" else text).replace("-", "−")


def label(axes: Axes, x: float, y: float, text: str, **options: Any) -> Any:
    """Text on axes, never read as TeX."""
    options = {"fontsize": FONT_SIZE, "color": COLOURS["ink"], "parse_math": False, **options}
    return axes.text(x, y, text, **options)


def title(axes: Axes, text: str, **options: Any) -> None:
    """Title of axes, on the left, never read as TeX."""
    options = {"fontsize": FONT_SIZE, "color": COLOURS["ink"], "loc": "left", "pad": 4, **options}
    axes.set_title(text, parse_math=False, **options)


def axis_label(axes: Axes, which: str, text: str) -> None:
    """Label of the x or y axis, never read as TeX."""
    setter = axes.set_xlabel if which == "x" else axes.set_ylabel
    setter(text, parse_math=False, fontsize=FONT_SIZE, color=COLOURS["muted"], labelpad=3)


def svg(figure: Figure, key: str, description: str) -> str:
    """Write a figure as an inline SVG element.

    Parameters
    ----------
    key
        Unique on the page: prefixes every id, because ids are shared by all pictures of a page.
    description
        What a reader who cannot see the picture is told (escaped text).
    """
    import matplotlib

    options: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": key,
        "font.family": ["sans-serif"],
        "path.simplify": True,
    }
    stream = io.StringIO()
    with matplotlib.rc_context(options), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing from"
        )  # measured only; the browser has the glyph
        figure.savefig(
            stream, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    return _as_part_of_page(text, key, description)


def _as_part_of_page(text: str, key: str, description: str) -> str:
    view_box = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
    assert view_box is not None
    width, height = (float(number) for number in view_box.groups())
    body = text[text.index(">") + 1 :]
    # Every tag is rewritten on its own, so that nothing between tags (names from the data) is ever touched.
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    body = re.sub(r"<[a-zA-Z][^<>]*>", lambda match: _tag(match.group(), key), body)
    body = re.sub(r">\s*\n\s*<", ">\n<", body)
    head = (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{description}" '
        f'style="max-width:{width * 96 / 72:.0f}px">'
    )
    return head + body.rstrip() + "\n"


def _tag(tag: str, key: str) -> str:
    tag = re.sub(r' d="([^"]*)"', lambda match: f' d="{_rounded(match.group(1))}"', tag)
    tag = re.sub(r' xmlns(:\w+)?="[^"]*"', "", tag)
    tag = re.sub(r' id="([^"]*)"', rf' id="{key}-\1"', tag)
    tag = re.sub(r'(xlink:)?href="#([^"]*)"', rf'href="#{key}-\2"', tag)
    tag = re.sub(r"url\(#([^)]*)\)", rf"url(#{key}-\1)", tag)
    tag = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", tag)
    for name, colour in COLOURS.items():
        tag = tag.replace(colour, f"var(--{name})")
    return tag


def _rounded(path: str) -> str:
    """Coordinates to a twentieth of a point, without spaces that the syntax does not need."""
    path = re.sub(
        r"-?\d+\.\d+(e-?\d+)?", lambda match: f"{float(match.group()):.1f}".removesuffix(".0"), path
    )
    return re.sub(r"\s*([MLQCzZ])\s*", r"\1", path)
