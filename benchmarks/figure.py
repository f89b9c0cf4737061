"""Charts of the lab (:mod:`scaler.lab.chart`) stacked into one picture that stands alone, for a page of ``docs``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from scaler.lab.chart import WIDTH, Panel, draw

CAPTION = 20.0
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#333}.caption{font-weight:600}.tick{fill:#777}"
    ".grid{stroke:#e4e4e4}.rule{stroke:#b00020;stroke-dasharray:6 4}text.rule{fill:#b00020;stroke:none}"
)


def picture(title: str, panels: Sequence[Panel], seconds: float) -> str:
    """One SVG on white ground, its panels under each other over one time axis of ``seconds``."""
    parts, y = [], 30.0
    for panel in panels:
        drawn = re.search(r'<svg viewBox="0 0 [\d.]+ ([\d.]+)"[^>]*>(.*)</svg>', draw(panel, seconds), re.DOTALL)
        assert drawn is not None
        height = float(drawn[1])
        parts.append(_caption(panel, y + 14))
        parts.append(f'<svg y="{y + CAPTION:g}" width="{WIDTH:g}" height="{height:g}">{drawn[2]}</svg>')
        y += CAPTION + height + 6
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {y:g}" role="img">'
    ground = f'<rect width="{WIDTH:g}" height="{y:g}" fill="#fff"/>'
    name = f'<title>{escape(title)}</title><text class="caption" x="8" y="18">{escape(title)}</text>'
    return f"{head}<style>{STYLE}</style>{ground}{name}{''.join(parts)}</svg>\n"


def _caption(panel: Panel, y: float) -> str:
    """The panel's title and its legend, in one line."""
    parts, x = [f'<text class="caption" x="8" y="{y:g}">{escape(panel.title)}</text>'], 24 + 7.2 * len(panel.title)
    for series in panel.series:
        dash = ' stroke-dasharray="5 3"' if series.dashed else ""
        parts.append(
            f'<line x1="{x:g}" x2="{x + 18:g}" y1="{y - 4:g}" y2="{y - 4:g}" stroke="{series.colour}" '
            f'stroke-width="3"{dash}/><text x="{x + 23:g}" y="{y:g}">{escape(series.name)}</text>'
        )
        x += 40 + 6.6 * len(series.name)
    for name, colour in dict.fromkeys((band.name, band.colour) for band in panel.bands):
        parts.append(
            f'<rect x="{x:g}" y="{y - 10:g}" width="12" height="12" fill="{colour}"/>'
            f'<text x="{x + 17:g}" y="{y:g}">{escape(name)}</text>'
        )
        x += 32 + 6.6 * len(name)
    return "".join(parts)
