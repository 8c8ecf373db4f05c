"""Figures of experiments: the same in each process."""

from pathlib import Path

from matplotlib.figure import Figure

from koalapy.experiments.files import write_figure


def test_the_last_bits_of_a_layout_are_not_in_a_figure(tmp_path: Path) -> None:
    """The solver's last bits differ from process to process, and an SVG is named by what it gets."""
    figure = Figure(figsize=(13, 6.3), layout="constrained")
    panels = figure.subplots(3, 1, sharex=True, gridspec_kw={"height_ratios": [2.5, 2.0, 0.8]})
    for panel in panels:
        panel.plot(range(10))
        panel.set_ylabel("cluster\n64 processors")
    png, svg = write_figure(figure, tmp_path / "a.b")
    assert [png.name, svg.name] == ["a.b.png", "a.b.svg"]
    assert png.stat().st_size > 0 < svg.stat().st_size
    for panel in panels:
        corners = panel.get_position().extents.tolist()
        assert corners == [round(each, 9) for each in corners]
