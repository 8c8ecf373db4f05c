"""The figure of a replay: processors over time, cluster by cluster, and below them the processors waited for.

The engine only counts processors; jobs are assigned to them here. Up to a few thousand blocks are drawn one by one.
With more, every pixel shows the part of it that is taken, and by whom. The same record gives the same bytes.
"""

import heapq
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from koalapy.experiments.files import write_figure
from koalapy.experiments.replay.comparison import backlog
from koalapy.experiments.replay.record import NEVER, Column, Record
from koalapy.model.errors import OurError
from koalapy.model.units import DAY, HOUR, MINUTE, Duration


class Block(NamedTuple):
    """Processors from `low` to below `high`, taken by a job from `start` to `end`. `row`: its row in the record."""

    row: int
    start: int
    end: int
    low: int
    high: int


class Use(NamedTuple):
    """Processors in use from `start` to `end`. `row`: the job's row in the record."""

    start: int
    end: int
    row: int
    processors: int


def blocks(uses: Iterable[Use], size: int) -> Iterator[Block]:
    """Yield the blocks of the uses, which are ordered by their start. Each gets the lowest adjacent free processors.

    If there are not enough adjacent ones, a use has several blocks. Raises OurError if more processors are used at one
    time than there are.
    """
    free = [(0, size)]
    ends: list[tuple[int, int, int]] = []
    for use in uses:
        while ends and ends[0][0] <= use.start:
            _, low, high = heapq.heappop(ends)
            _give(free, low, high)
        for low, high in _take(free, use.processors):
            heapq.heappush(ends, (use.end, low, high))
            yield Block(use.row, use.start, use.end, low, high)


def _take(free: list[tuple[int, int]], processors: int) -> list[tuple[int, int]]:
    for index, (low, high) in enumerate(free):
        if high - low >= processors:
            free[index : index + 1] = [(low + processors, high)] if high - low > processors else []
            return [(low, low + processors)]
    return _take_apart(free, processors)


def _take_apart(free: list[tuple[int, int]], processors: int) -> list[tuple[int, int]]:
    taken: list[tuple[int, int]] = []
    while processors:
        if not free:
            raise OurError("overbooked", "A replay gave out more processors than there are.", "Report this.")
        low, high = free.pop(0)
        cut = min(high, low + processors)
        if cut < high:
            free.insert(0, (cut, high))
        taken.append((low, cut))
        processors -= cut - low
    return taken


def _give(free: list[tuple[int, int]], low: int, high: int) -> None:
    """Put processors back in order, and join them with adjacent free ones."""
    index = bisect(free, (low, low))
    if index < len(free) and free[index][0] == high:
        high = free.pop(index)[1]
    if index and free[index - 1][1] == low:
        low = free.pop(index - 1)[0]
        index -= 1
    free.insert(index, (low, high))


By = Literal["user", "group", "queue"]
MOST_DRAWN = 3_000  # components; more are painted
_MOST_LABELLED = 60
_AT_ONCE = 10_000  # uses converted at once, since there may be a million
_ACROSS, _DOWN = 1400, 400  # largest size of a painted image in pixels
_COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#44bb99", "#bbcc33")
_OTHERS, _LOGGED = "#a0a0a0", "#ee6677"
_UNITS = ((4 * DAY, DAY, "days"), (4 * HOUR, HOUR, "hours"), (0, MINUTE, "minutes"))


def draw(record: Record, title: str, by: By, base: Path, logged: Record | None = None) -> list[Path]:
    """Write the files `base`.png and `base`.svg, and return their paths.

    `by`: the users, groups or queues with most work have a colour each. `logged`: what became of the jobs in the trace;
    its backlog is drawn beside that of the replay.
    """
    return write_figure(_figure(record, title, by, logged), base)


def _figure(record: Record, title: str, by: By, logged: Record | None) -> Figure:
    heights = [*_heights(list(record.sizes.values())), 0.8]
    figure = Figure(figsize=(13, sum(heights) + 1.4), layout="constrained")
    panels = figure.subplots(len(heights), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    span = max(1, int(record.job("ended").max(initial=0)), int(record.job("submitted").max(initial=0)))
    unit, word = next((unit, word) for least, unit, word in _UNITS if span >= least)
    colours, legend = _colours(record, by)
    draw_cluster = _draw_blocks if len(record.place("row")) <= MOST_DRAWN else _paint_blocks
    for index, (name, size) in enumerate(record.sizes.items()):
        draw_cluster(panels[index], blocks(_uses(record, index), size), size, colours, span, unit)
        _settle(panels[index], size)
        if len(record) <= _MOST_LABELLED:
            _label(panels[index], blocks(_uses(record, index), size), record.job("number").tolist(), unit)
        panels[index].set_ylabel(f"{name}\n{size:,} processors", fontsize=8)
    _draw_backlog(panels[-1], record, logged, span, unit)
    panels[-1].set_xlabel(f"{word} from the first submission on", fontsize=8)
    panels[-1].set_xlim(0, span / unit)
    figure.suptitle(title, fontsize=10)
    if len(legend) > 1:
        figure.legend(handles=legend, loc="outside lower center", ncols=len(legend), fontsize=7, frameon=False)
    return figure


def _heights(sizes: Sequence[int]) -> list[float]:
    """Return heights in inches: larger clusters are higher, but less than in proportion, so that small ones are
    legible.
    """
    roots = [size**0.5 for size in sizes]
    room = max(3.5, 1.1 * len(sizes))
    return [max(0.7, room * root / sum(roots)) for root in roots]


def _uses(record: Record, cluster: int) -> Iterator[Use]:
    """Yield the uses of a cluster by their start, then by their end."""
    here = record.place("cluster") == cluster
    rows, processors = record.place("row")[here], record.place("processors")[here]
    starts, ends = record.job("started")[rows], record.job("ended")[rows]
    ran = (starts != NEVER) & (ends != NEVER)
    columns = [column[ran] for column in (starts, ends, rows, processors)]
    order = numpy.lexsort((columns[2], columns[1], columns[0]))
    for first in range(0, len(order), _AT_ONCE):
        some = order[first : first + _AT_ONCE]
        yield from (Use(*each) for each in zip(*(column[some].tolist() for column in columns), strict=True))


# ---- colours


def _colours(record: Record, by: By) -> tuple[list[str], list[Patch]]:
    """Return the colour of each job by its row, and the legend, which begins with most work."""
    names = {"user": record.users, "group": record.groups, "queue": record.queues}[by].texts
    numbers = record.job(by)
    order = _by_work(record, numbers, len(names))
    own = dict(zip(order, _COLOURS, strict=False))
    legend = [Patch(color=own[number], label=f"{by} {names[number] or 'unknown'}") for number in own]
    if len(order) > len(own):
        legend.append(Patch(color=_OTHERS, label=f"{len(order) - len(own):,} others"))
    return [own.get(number, _OTHERS) for number in numbers.tolist()], legend


def _by_work(record: Record, numbers: Column, count: int) -> list[int]:
    started, ended = record.job("started"), record.job("ended")
    work = numpy.where((started == NEVER) | (ended == NEVER), 0, (ended - started) * record.job("processors"))
    total = numpy.bincount(numbers, weights=work.astype(numpy.float64), minlength=count)
    return [int(number) for number in numpy.argsort(-total, kind="stable") if total[number] > 0]


# ---- a cluster


def _settle(axes: Axes, size: int) -> None:
    axes.set_ylim(0, size)
    axes.tick_params(labelsize=7)
    axes.locator_params(axis="y", nbins=4, integer=True)
    axes.yaxis.set_major_formatter("{x:,.0f}")


def _paint_blocks(
    axes: Axes, found: Iterable[Block], size: int, colours: Sequence[str], span: int, unit: Duration
) -> None:
    image = paint(found, size, colours, span)
    axes.imshow(image, extent=(0, span / unit, 0, size), origin="lower", aspect="auto", interpolation="nearest")


def _draw_blocks(
    axes: Axes, found: Iterable[Block], size: int, colours: Sequence[str], span: int, unit: Duration
) -> None:
    each = list(found)
    corners = [
        [(left, block.low), (left, block.high), (right, block.high), (right, block.low)]
        for block in each
        for left, right in [(block.start / unit, block.end / unit)]
    ]
    width = 0.6 if len(each) <= _MOST_LABELLED else 0.15
    filled = [colours[block.row] for block in each]
    axes.add_collection(PolyCollection(corners, facecolors=filled, edgecolors="white", linewidths=width))


def _label(axes: Axes, found: Iterable[Block], numbers: Sequence[int], unit: Duration) -> None:
    for block in found:
        middle = ((block.start + block.end) / 2 / unit, (block.low + block.high) / 2)
        axes.annotate(str(numbers[block.row]), middle, ha="center", va="center", fontsize=6, clip_on=True)


def paint(found: Iterable[Block], size: int, colours: Sequence[str], span: float) -> NDArray[numpy.float64]:
    """Return an image (rows, columns, RGB) whose pixels have the mean colour of their blocks, and white for idle
    processors.
    """
    down = min(size, _DOWN)
    image = numpy.ones((down, _ACROSS, 3))
    shades = {colour: 1 - numpy.array(to_rgb(colour)) for colour in set(colours)}
    for block in found:
        across, columns = _covered(block.start, block.end, _ACROSS / span, _ACROSS)
        upwards, rows = _covered(block.low, block.high, down / size, down)
        image[upwards, across] -= rows[:, None, None] * columns[None, :, None] * shades[colours[block.row]]
    return numpy.clip(image, 0.0, 1.0)


def _covered(low: float, high: float, scale: float, most: int) -> tuple[slice, NDArray[numpy.float64]]:
    """Return the pixels of an interval, and the part of each that it covers."""
    low, high = low * scale, high * scale
    first, last = min(int(low), most - 1), min(most, max(int(low) + 1, int(numpy.ceil(high))))
    edges = numpy.arange(first, last + 1, dtype=numpy.float64)
    return slice(first, last), numpy.clip(numpy.minimum(edges[1:], high) - numpy.maximum(edges[:-1], low), 0.0, 1.0)


# ---- the backlog


def _draw_backlog(axes: Axes, record: Record, logged: Record | None, span: int, unit: Duration) -> None:
    edges = numpy.linspace(0, span, _ACROSS + 1)
    across = edges[:-1] / unit
    axes.fill_between(across, _most_waiting(record, edges), step="post", color="#555555", linewidth=0, label="replayed")
    if logged is not None:
        axes.step(across, _most_waiting(logged, edges), where="post", color=_LOGGED, linewidth=0.8, label="as logged")
        axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("processors\nwaited for", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.locator_params(axis="y", nbins=3, integer=True)
    axes.yaxis.set_major_formatter("{x:,.0f}")


def _most_waiting(record: Record, edges: NDArray[numpy.float64]) -> NDArray[numpy.int64]:
    """Return the maximum between each two edges. Values after the last edge are left out."""
    times, waiting = backlog(record)
    before = numpy.concatenate(([0], waiting))[numpy.searchsorted(times, edges[:-1], side="left")]
    seen = times <= edges[-1]
    stretch = numpy.clip(numpy.searchsorted(edges, times[seen], side="right") - 1, 0, len(edges) - 2)
    numpy.maximum.at(before, stretch, waiting[seen])
    return before
