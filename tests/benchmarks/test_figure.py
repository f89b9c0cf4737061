"""A picture of several charts: it stands alone, and shows all that it was given."""

from __future__ import annotations

from xml.etree import ElementTree

from benchmarks.figure import picture
from scaler.lab.chart import Band, Panel, Series

PANELS = [
    Panel("Requests <per second>", (Series("offered", [(0.0, 1.0), (60.0, 2.0)], "#999999", dashed=True),)),
    Panel("Load state", bands=[Band(0, 30, "idle", "#d9d9d9"), Band(30, 60, "high", "#fdae6b")]),
    Panel("P95, seconds", (Series("first token", [(0.0, 1.0), (60.0, 9.0)], "#8c564b"),), rule=("objective 6 s", 6.0)),
]


def test_a_picture_holds_every_panel_with_its_title_and_legend() -> None:
    root = ElementTree.fromstring(picture("A wave & its ebb", PANELS, 60.0))
    told = " ".join("".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text"))
    for expected in (
        "A wave & its ebb",
        "Requests <per second>",
        "offered",
        "idle",
        "high",
        "first token",
        "objective",
    ):
        assert expected in told


def test_panels_lie_under_each_other_within_the_picture() -> None:
    root = ElementTree.fromstring(picture("A wave", PANELS, 60.0))
    _, _, _, height = map(float, root.attrib["viewBox"].split())
    ends = [0.0]
    for panel in root.findall("{http://www.w3.org/2000/svg}svg"):
        assert float(panel.attrib["y"]) > ends[-1]
        ends.append(float(panel.attrib["y"]) + float(panel.attrib["height"]))
    assert len(ends) == 1 + len(PANELS)
    assert ends[-1] <= height
