#!/usr/bin/env python3
"""Solves the 2-D Poisson equation by red-black Gauss-Seidel, one process per processor, over one or many clusters."""
# The nodes' python3 runs this file: Python 3.6 and numpy must do, hence the older spelling of types.
# ruff: noqa: E402, UP006, UP032, UP035, UP045

import time

FIRST_INSTRUCTION = time.time()

import argparse
import contextlib
import hashlib
import hmac
import itertools
import json
import os
import select
import socket
import struct
import subprocess
import sys
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

# Every processor has a process of its own already; numpy reads these when it is imported.
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(_library + "_NUM_THREADS", "1")

try:
    import numpy as np
except ImportError:
    sys.exit("poisson: {} has no numpy. Install it, or load it with the component's `setup`.".format(sys.executable))

RED, BLACK = 0, 1
MAGIC = b"KPOISSON"
HELLO = struct.Struct("!8sI32s")  # magic, rank of the sender, proof that it knows the job's key
NUMBER = struct.Struct("<d")


class Failure(Exception):
    """What ends this process with status 1: a sentence of what is wrong and one of what to do."""


class World(NamedTuple):
    """The processes of the job; `components` and `addresses` have one entry per rank."""

    rank: int
    components: List[str]
    addresses: List[str]


class Settings(NamedTuple):
    """What all processes must agree on; the values of rank 0 hold for all."""

    grid: int
    omega: float
    tolerance: float
    max_iterations: int
    check_every: int


class Rectangle(NamedTuple):
    """Rows top..bottom-1 and columns left..right-1 of the interior points."""

    top: int
    bottom: int
    left: int
    right: int


class Border(NamedTuple):
    """One colour's points along the border with one other process: views into this process's values."""

    peer: int
    edge: np.ndarray  # mine, to be sent
    halo: np.ndarray  # my copy of theirs


class Tree(NamedTuple):
    """This process's place in the tree that reduces and gathers."""

    parent: Optional[int]
    children: List[int]
    subtree: List[int]  # this process first


def main() -> int:
    options = parse_arguments()
    rank = 0
    try:
        world = read_world(os.environ)
        rank = world.rank
        if options.times:
            record_start(options.times, rank)
        run(world, options)
    except (Failure, OSError) as error:
        sys.stderr.write("poisson: rank {}: {}\n".format(rank, error))
        return 1
    return 0


def run(world: World, options: argparse.Namespace) -> None:
    settings = Settings(*(getattr(options, name) for name in Settings._fields))
    sizes = component_sizes(world.components)
    with contextlib.ExitStack() as stack:
        meeting = Meeting(world, settings, options.timeout, stack) if len(world.components) > 1 else None
        settings = meeting.settings if meeting else settings
        rectangles = decompose(settings.grid, sizes)
        tree = tree_of(world.rank, sizes)
        peers = set(neighbours(world.rank, rectangles)) | set(tree.children)
        peers |= set() if tree.parent is None else {tree.parent}
        links = Links(meeting.connect(peers) if meeting else {}, options.timeout)
        print(place_line(world, rectangles[world.rank], sorted(peers)), flush=True)
        compute(world, settings, rectangles, tree, links, options.output)


def compute(
    world: World, settings: Settings, rectangles: List[Rectangle], tree: Tree, links: "Links", output: str
) -> None:
    """Iterates, gathers, writes; no process returns before the result is on rank 0's disk."""
    started = time.perf_counter()
    block = Block(rectangles, world.rank, settings)
    iterations, change = iterate(block, links, tree, settings)
    seconds = time.perf_counter() - started
    gathered = gather(block.values[1:-1, 1:-1].astype("<f8").tobytes(), rectangles, links, tree)
    if tree.parent is None:
        solution = assemble(gathered, settings.grid, [rectangles[rank] for rank in tree.subtree])
        write_result(output, solution)
        print(summary(world, settings, iterations, change, solution, seconds), flush=True)
    send_down(b"written.", links, tree)


# Arguments, environment and files


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, epilog="The first five options of rank 0 hold for all ranks.")
    parser.add_argument("--grid", type=number(int, 1, 100000), default=64, help="N of the N x N interior points")
    parser.add_argument("--omega", type=number(float, 0.01, 1.99), default=1.0, help="over-relaxation, 1 for none")
    parser.add_argument("--tolerance", type=number(float, 0, 1), default=1e-6, help="stop at this greatest change")
    parser.add_argument("--max-iterations", type=number(int, 1, 10**9), default=100000)
    parser.add_argument("--check-every", type=number(int, 1, 10**9), default=10, help="iterations between two tests")
    parser.add_argument("--output", default="result.npy", help="the N x N solution, written by rank 0")
    parser.add_argument("--times", metavar="DIRECTORY", help="write the time of the first instruction to start.RANK")
    parser.add_argument("--timeout", type=number(float, 0.1, 86400), default=60.0, help="seconds to wait for a peer")
    return parser.parse_args()


def number(kind: type, least: float, most: float):
    def convert(text: str):
        value = kind(text)
        if not least <= value <= most:
            raise argparse.ArgumentTypeError("{} is not between {} and {}".format(text, least, most))
        return value

    convert.__name__ = kind.__name__
    return convert


def read_world(environ: Mapping[str, str]) -> World:
    """Without KOALA_RANK this is a process by itself."""
    if "KOALA_RANK" not in environ:
        return World(0, ["0"], ["127.0.0.1"])
    with open(environ["KOALA_HOSTS"], encoding="utf-8") as hosts:
        pairs = [line.split() for line in hosts if line.strip()]
    rank, size = int(environ["KOALA_RANK"]), int(environ["KOALA_SIZE"])
    if len(pairs) != size or any(len(pair) != 2 for pair in pairs) or not 0 <= rank < size:
        raise Failure(
            "{} does not have `component address` for each of {} ranks. Start this program as a job of koala, or "
            "without any KOALA_ variable.".format(environ["KOALA_HOSTS"], size)
        )
    return World(rank, [component for component, _ in pairs], [address for _, address in pairs])


def record_start(directory: str, rank: int) -> None:
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, "start.{}".format(rank)), "w", encoding="ascii") as file:
        file.write("{:.6f}\n".format(FIRST_INSTRUCTION))


def write_result(path: str, solution: np.ndarray) -> None:
    """Whoever finds the file finds all of it."""
    with open(path + ".part", "wb") as file:
        np.save(file, solution)
    os.replace(path + ".part", path)


def place_line(world: World, mine: Rectangle, peers: List[int]) -> str:
    return "poisson: rank {} of {}, component {}: rows {}-{}, columns {}-{}, peers {}".format(
        world.rank, len(world.components), world.components[world.rank],
        mine.top, mine.bottom - 1, mine.left, mine.right - 1, " ".join(map(str, peers)) or "none",
    )  # fmt: skip


def summary(
    world: World, settings: Settings, iterations: int, change: float, solution: np.ndarray, seconds: float
) -> str:
    return "poisson: {} after {} iterations, change {:.3e}, error {:.3e}, {:.3f} s, {} processes, {} components".format(
        "converged" if change <= settings.tolerance else "not converged", iterations, change,
        float(abs(solution - exact_solution(settings.grid)).max()), seconds,
        len(world.components), len(component_sizes(world.components)),
    )  # fmt: skip


# The problem: -(u_xx + u_yy) = f on the unit square, u = 0 on its edge, u(x, y) = g(x) g(y)


def profile(grid: int) -> Tuple[np.ndarray, np.ndarray]:
    """g(x) = x - 2 x^3 + x^4 and -g''(x) = 12 x (1 - x) at the interior points.

    Polynomials, since sums and products are the same to the last bit on every machine; a sine is not. The fourth
    derivative does not vanish, so the discretisation has an error to show: it falls with the square of the step.
    """
    x = np.arange(1, grid + 1) / (grid + 1.0)
    return x * (1.0 - x * x * (2.0 - x)), 12.0 * x * (1.0 - x)


def exact_solution(grid: int) -> np.ndarray:
    g, _ = profile(grid)
    return np.multiply.outer(g, g)


def scaled_source(grid: int, part: Rectangle) -> np.ndarray:
    """f times the square of the step, at the points of one rectangle."""
    g, curvature = profile(grid)
    rows, columns = slice(part.top, part.bottom), slice(part.left, part.right)
    source = np.multiply.outer(curvature[rows], g[columns]) + np.multiply.outer(g[rows], curvature[columns])
    return source / (grid + 1.0) / (grid + 1.0)


# Decomposition: vertical strips, one per component, each a grid of processes numbered in column-major order


def component_sizes(components: Iterable[str]) -> List[int]:
    return [len(list(members)) for _, members in itertools.groupby(components)]


def decompose(grid: int, sizes: Sequence[int]) -> List[Rectangle]:
    """The rectangle of every rank; a strip is as wide as its component's share of the processes."""
    return [part for strip in strips(grid, sizes) for part in divide(*strip)]


def strips(grid: int, sizes: Sequence[int]) -> Iterator[Tuple[Rectangle, int]]:
    ends = list(itertools.accumulate(sizes))
    for end, size in zip(ends, sizes):
        yield Rectangle(0, grid, grid * (end - size) // ends[-1], grid * end // ends[-1]), size


def divide(strip: Rectangle, size: int) -> List[Rectangle]:
    height, width = strip.bottom - strip.top, strip.right - strip.left
    shapes = [(rows, size // rows) for rows in range(1, size + 1) if size % rows == 0]
    shapes = [(rows, columns) for rows, columns in shapes if rows <= height and columns <= width]
    if not shapes:
        raise Failure(
            "a strip of {} x {} points cannot be split among {} processes. Give a larger --grid or fewer "
            "processes.".format(height, width, size)
        )
    rows, columns = min(shapes, key=lambda shape: (shape[0] - 1) * width + (shape[1] - 1) * height)
    return [
        Rectangle(
            strip.top + height * row // rows, strip.top + height * (row + 1) // rows,
            strip.left + width * column // columns, strip.left + width * (column + 1) // columns,
        )
        for column in range(columns)
        for row in range(rows)
    ]  # fmt: skip


def neighbours(rank: int, rectangles: Sequence[Rectangle]) -> Dict[int, Tuple[Rectangle, Rectangle]]:
    """Per rank that shares a border: my points along it, and theirs. Strips cut differently share partial sides."""
    mine, found = rectangles[rank], {}
    for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        beyond = shifted(mine, down, right)
        for peer, other in enumerate(rectangles):
            theirs = intersection(beyond, other)
            if peer != rank and theirs.top < theirs.bottom and theirs.left < theirs.right:
                found[peer] = (shifted(theirs, -down, -right), theirs)
    return found


def shifted(part: Rectangle, down: int, right: int) -> Rectangle:
    return Rectangle(part.top + down, part.bottom + down, part.left + right, part.right + right)


def intersection(a: Rectangle, b: Rectangle) -> Rectangle:
    return Rectangle(max(a.top, b.top), min(a.bottom, b.bottom), max(a.left, b.left), min(a.right, b.right))


def tree_of(rank: int, sizes: Sequence[int]) -> Tree:
    """A binary tree within each component and one over the components' first ranks, so that few links are long."""
    firsts = [0, *itertools.accumulate(sizes)]
    parents = {}  # type: Dict[int, Optional[int]]
    for component, size in enumerate(sizes):
        parents[firsts[component]] = firsts[(component - 1) // 2] if component else None
        parents.update({firsts[component] + i: firsts[component] + (i - 1) // 2 for i in range(1, size)})
    children = [child for child in parents if parents[child] == rank]
    return Tree(parents[rank], children, subtree(rank, parents))


def subtree(rank: int, parents: Mapping[int, Optional[int]]) -> List[int]:
    children = [child for child in parents if parents[child] == rank]
    return [rank] + [member for child in children for member in subtree(child, parents)]


# Sweeps


class Block:
    """One process's values with a ring of copies (or of the zeros at the edge of the square) around them."""

    def __init__(self, rectangles: Sequence[Rectangle], rank: int, settings: Settings) -> None:
        mine = rectangles[rank]
        self.values = np.zeros((mine.bottom - mine.top + 2, mine.right - mine.left + 2))
        source = scaled_source(settings.grid, mine)
        self.sweeps = [list(sweep_views(self.values, source, mine, colour)) for colour in (RED, BLACK)]
        sides = neighbours(rank, rectangles)
        self.borders = [
            [
                Border(peer, line(self.values, mine, own, colour), line(self.values, mine, theirs, colour))
                for peer, (own, theirs) in sides.items()
            ]
            for colour in (RED, BLACK)
        ]


def sweep_views(
    values: np.ndarray, source: np.ndarray, mine: Rectangle, colour: int
) -> Iterator[Tuple[np.ndarray, ...]]:
    """The points of a colour as two regular lattices (even rows, odd rows): centre, four neighbours, source."""
    height, width = source.shape
    for i in (0, 1):
        j = (mine.top + i + mine.left + colour) % 2
        rows, columns = slice(1 + i, height + 1, 2), slice(1 + j, width + 1, 2)
        yield (
            values[rows, columns],
            values[i:height:2, columns], values[2 + i : height + 2 : 2, columns],
            values[rows, j:width:2], values[rows, 2 + j : width + 2 : 2],
            source[i::2, j::2],
        )  # fmt: skip


def line(values: np.ndarray, mine: Rectangle, segment: Rectangle, colour: int) -> np.ndarray:
    """The points of a colour in a segment one point wide, in `mine` or in the ring around it."""
    top, left = segment.top - mine.top + 1, segment.left - mine.left + 1
    height, width = segment.bottom - segment.top, segment.right - segment.left
    skip = (segment.top + segment.left + colour) % 2
    if width == 1:
        return values[top + skip : top + height : 2, left]
    return values[top, left + skip : left + width : 2]


def iterate(block: Block, links: "Links", tree: Tree, settings: Settings) -> Tuple[int, float]:
    """(iterations, greatest change of any point in the last); the same in every process, however many there are."""
    for iteration in itertools.count(1):
        change = 0.0
        for colour in (RED, BLACK):
            share(block.borders[1 - colour], links)
            change = max(change, relax(block.sweeps[colour], settings.omega))
        last = iteration == settings.max_iterations
        if last or iteration % settings.check_every == 0:
            change = greatest(change, links, tree)
            if last or change <= settings.tolerance:
                return iteration, change
    raise AssertionError("unreachable")


def relax(lattices: List[Tuple[np.ndarray, ...]], omega: float) -> float:
    """Each point gets the same operations in the same order wherever it lies, so its bits do not depend on the cut."""
    change = 0.0
    for centre, north, south, west, east, source in lattices:
        step = omega * (0.25 * ((north + south) + (west + east) + source) - centre)
        centre += step
        change = max(change, float(abs(step).max())) if step.size else change
    return change


# Communication


def share(borders: List[Border], links: "Links") -> None:
    received = links.exchange(
        {border.peer: border.edge.astype("<f8").tobytes() for border in borders},
        {border.peer: 8 * border.halo.size for border in borders},
    )
    for border in borders:
        border.halo[:] = np.frombuffer(received[border.peer], "<f8")


def greatest(value: float, links: "Links", tree: Tree) -> float:
    received = links.exchange({}, {child: NUMBER.size for child in tree.children})
    value = max([value] + [NUMBER.unpack(data)[0] for data in received.values()])
    send_up(NUMBER.pack(value), links, tree)
    return float(NUMBER.unpack(send_down(NUMBER.pack(value), links, tree))[0])
