#!/usr/bin/env python3
"""Solves the 2-D Poisson equation by red-black Gauss-Seidel, one process per processor, on one or more clusters."""
# The nodes' own python3 runs this file: 3.6 and numpy must do, hence the older spelling of the types.
# ruff: noqa: B905, E402, UP006, UP035, UP045

import time

FIRST_INSTRUCTION = time.time()

import hashlib
import itertools
import json
import os
import select
import socket
import struct
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

for _library in ("OMP", "OPENBLAS", "MKL"):  # numpy reads these at import; each processor has its process already
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")
try:
    import numpy as np
except ImportError:
    sys.exit(f"poisson: {sys.executable} has no numpy. Install it, or load it in the component's `setup`.")

RED, BLACK = 0, 1
SHARED = ("grid", "omega", "tolerance", "max_iterations", "check_every")  # rank 0's options that hold for all ranks
NUMBER = struct.Struct("<d")

Outcome = Tuple[np.ndarray, int, float]  # a process's values, the iterations, the greatest change in the last one
Tree = Tuple[Optional[int], List[int]]  # parent and children of a process, for reducing the stopping criterion
Lattice = Tuple[np.ndarray, ...]  # every second point of every second row: centre, its four neighbours, source
Border = Tuple[int, np.ndarray, np.ndarray]  # one colour's points: the peer, those it needs, the copies of its own


class Failure(Exception):
    """Ends this process with status 1; a sentence of what is wrong and one of what to do."""


class Rectangle(NamedTuple):
    """Rows top..bottom-1 and columns left..right-1 of the interior points, counted from 0."""

    top: int
    bottom: int
    left: int
    right: int


def main() -> None:
    options = parse_arguments()
    rank = os.environ.get("KOALA_RANK", "0")
    try:
        if options.times:
            os.makedirs(options.times, exist_ok=True)
            with open(os.path.join(options.times, f"start.{rank}"), "w", encoding="ascii") as file:
                file.write(f"{FIRST_INSTRUCTION:.6f}\n")
        run(*read_world(), options=options)
    except (Failure, OSError, MemoryError) as error:
        sys.exit(f"poisson: rank {rank}: {error}")


def run(rank: int, components: Sequence[str], addresses: Sequence[str], options: Namespace) -> None:
    """Components and addresses have one entry per rank. No process returns before rank 0 has written the result."""
    sizes = [len(list(members)) for _, members in itertools.groupby(components)]
    links, tree = Links({}, options.timeout), tree_of(rank, sizes)
    listener, key = meet(rank, addresses[rank], options) if len(components) > 1 else (None, "")
    rectangles = decompose(options.grid, sizes)
    mine, sides = rectangles[rank], neighbours(rank, rectangles)
    if listener:
        peers = {*sides, *tree[1], tree[0], 0} if rank else set(range(1, len(components)))
        links = connect(rank, peers, listener, key, options.timeout)
    place = f"rows {mine.top}-{mine.bottom - 1}, columns {mine.left}-{mine.right - 1}, neighbours {sorted(sides)}"
    print(f"poisson: rank {rank} of {len(components)}: component {components[rank]}, {place}", flush=True)

    started = time.perf_counter()
    values, iterations, change = solve(mine, sides, options, links, tree)
    seconds = time.perf_counter() - started
    solution = gather(rank, values, rectangles, links)
    if rank == 0:
        with open(options.output, "wb") as file:
            np.save(file, solution)
        outcome = "converged" if change <= options.tolerance else "did not converge"
        g, _ = profile(options.grid)
        error = abs(solution - np.multiply.outer(g, g)).max()
        print(f"poisson: {outcome} in {iterations} iterations, change {change:.3e}, error {error:.3e}, {seconds:.3f} s,"
              f" {len(components)} processes, {len(sizes)} components", flush=True)  # fmt: skip
    greatest(change, links, tree)


def parse_arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__, epilog="The first five options of rank 0 hold for all ranks.")
    parser.add_argument("--grid", type=int, default=64, help="N, of N x N interior points")
    parser.add_argument("--omega", type=float, default=1.0, help="over-relaxation, below 2; 1 is none")
    parser.add_argument("--tolerance", type=float, default=1e-6, help="stop at this greatest change of a point")
    parser.add_argument("--max-iterations", type=int, default=100000)
    parser.add_argument("--check-every", type=int, default=10, help="iterations from one test to the next")
    parser.add_argument("--output", default="result.npy", help="where rank 0 writes the N x N solution")
    parser.add_argument("--times", metavar="DIRECTORY", help="write the time of the first instruction to start.RANK")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds to wait for another process")
    options = parser.parse_args()
    above_zero = (options.grid, options.max_iterations, options.check_every, options.timeout, options.omega)
    if not (all(0 < value <= 1e9 for value in above_zero) and options.omega < 2 and options.tolerance >= 0):
        parser.error("--omega must be below 2, --tolerance at least 0, all other numbers from above 0 to 1e9")
    return options


def read_world() -> Tuple[int, Sequence[str], Sequence[str]]:
    """The rank, and every rank's component and address; without KOALA_RANK this process is alone."""
    if "KOALA_RANK" not in os.environ:
        return 0, ["0"], ["127.0.0.1"]
    try:
        rank, size, path, _ = (os.environ[f"KOALA_{name}"] for name in ("RANK", "SIZE", "HOSTS", "RENDEZVOUS"))
        with open(path, encoding="utf-8") as hosts:
            components, addresses = zip(*[line.split() for line in hosts if line.strip()])
        if not 0 <= int(rank) < int(size) == len(components):
            raise ValueError(f"rank {rank} of {size}, but {len(components)} hosts")
    except (KeyError, ValueError, OSError) as error:
        raise Failure(f"the KOALA_ environment is wrong: {error!r}. Start it as a job, or unset KOALA_RANK.") from error
    return int(rank), components, addresses


# The problem: -(u_xx + u_yy) = f on the unit square, u = 0 on its edge; the solution is g(x) g(y).
def profile(grid: int) -> Tuple[np.ndarray, np.ndarray]:
    """g(x) = x - 2 x^3 + x^4 and -g''(x) at the interior points.

    A polynomial, since sums and products are the same to the last bit on every machine, and sines are not; of
    degree four, since only then has the five-point scheme an error to show (it falls with the square of the step).
    """
    x = np.arange(1, grid + 1) / (grid + 1.0)
    return x * (1.0 - x * x * (2.0 - x)), 12.0 * x * (1.0 - x)


def scaled_source(grid: int, mine: Rectangle) -> np.ndarray:
    """f times the square of the step, at the points of one rectangle."""
    g, bend = profile(grid)
    rows, columns = slice(mine.top, mine.bottom), slice(mine.left, mine.right)
    source = np.multiply.outer(bend[rows], g[columns]) + np.multiply.outer(g[rows], bend[columns])
    return source / (grid + 1.0) / (grid + 1.0)


# Decomposition: a vertical strip per component, in each a grid of processes numbered in column-major order.
def decompose(grid: int, sizes: Sequence[int]) -> List[Rectangle]:
    """The rectangle of every rank; a strip is as wide as its component's share of the processes."""
    rectangles = []  # type: List[Rectangle]
    for size in sizes:
        left, right = (grid * end // sum(sizes) for end in (len(rectangles), len(rectangles) + size))
        rectangles += divide(Rectangle(0, grid, left, right), size)
    return rectangles


def divide(strip: Rectangle, size: int) -> List[Rectangle]:
    """Of the process grids that fit, the one with the shortest borders."""
    height, width = strip.bottom - strip.top, strip.right - strip.left
    shapes = [(rows, size // rows) for rows in range(1, height + 1) if size % rows == 0 and size // rows <= width]
    if not shapes:
        raise Failure(f"{height} x {width} points are too few for {size} processes. Give a larger --grid.")
    rows, cols = min(shapes, key=lambda shape: (shape[0] - 1) * width + (shape[1] - 1) * height)
    tops = [strip.top + height * row // rows for row in range(rows + 1)]
    lefts = [strip.left + width * col // cols for col in range(cols + 1)]
    return [Rectangle(*tops[i : i + 2], *lefts[j : j + 2]) for j in range(cols) for i in range(rows)]


def neighbours(rank: int, rectangles: Sequence[Rectangle]) -> Dict[int, Tuple[Rectangle, Rectangle]]:
    """Per rank that shares a border, or a part of one: the points along it, of this rank and of that one."""
    sides = {}
    for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
        step = (down, down, right, right)
        a = Rectangle(*np.add(rectangles[rank], step))
        for peer, b in enumerate(rectangles):
            theirs = Rectangle(max(a.top, b.top), min(a.bottom, b.bottom), max(a.left, b.left), min(a.right, b.right))
            if peer != rank and theirs.top < theirs.bottom and theirs.left < theirs.right:
                sides[peer] = (Rectangle(*np.subtract(theirs, step)), theirs)
    return sides


def tree_of(rank: int, sizes: Sequence[int]) -> Tree:
    """A binary tree within each component, and one over their first ranks, so that few links cross between clusters."""
    firsts = [0, *itertools.accumulate(sizes)]
    parents = []  # type: List[Optional[int]]
    for number, size in enumerate(sizes):
        parents.append(firsts[(number - 1) // 2] if number else None)
        parents.extend(firsts[number] + (local - 1) // 2 for local in range(1, size))
    return parents[rank], [child for child, parent in enumerate(parents) if parent == rank]


# Sweeps: all red points first, then all black ones.
def solve(mine: Rectangle, sides: Dict, options: Namespace, links: "Links", tree: Tree) -> Outcome:
    """Iterations and change are the same in all processes, and however many they are."""
    values = np.zeros((mine.bottom - mine.top + 2, mine.right - mine.left + 2))  # with a ring around them
    source = scaled_source(options.grid, mine)
    sweeps = [list(lattices(values, source, mine, colour)) for colour in (RED, BLACK)]
    borders = [
        [(peer, *(line(values, mine, part, colour) for part in pair)) for peer, pair in sides.items()]
        for colour in (RED, BLACK)
    ]
    for iteration in range(1, options.max_iterations + 1):
        change = 0.0
        for colour in (RED, BLACK):
            share(borders[1 - colour], links)
            change = max([change, *(relax(lattice, options.omega) for lattice in sweeps[colour])])
        if iteration % options.check_every == 0 or iteration == options.max_iterations:
            change = greatest(change, links, tree)
            if change <= options.tolerance:
                break
    return values[1:-1, 1:-1], iteration, change


def lattices(values: np.ndarray, source: np.ndarray, mine: Rectangle, colour: int) -> Iterator[Lattice]:
    """The points of a colour: those in even rows and those in odd rows."""
    height, width = source.shape
    for i in (0, 1):
        j = (mine.top + i + mine.left + colour) % 2
        rows, cols = slice(1 + i, height + 1, 2), slice(1 + j, width + 1, 2)
        north, south = values[i:height:2, cols], values[2 + i : height + 2 : 2, cols]
        west, east = values[rows, j:width:2], values[rows, 2 + j : width + 2 : 2]
        yield values[rows, cols], north, south, west, east, source[i::2, j::2]


def relax(lattice: Lattice, omega: float) -> float:
    """The same operations in the same order for every point: its bits do not depend on how the square is cut."""
    centre, north, south, west, east, source = lattice
    step = omega * (0.25 * ((north + south) + (west + east) + source) - centre)
    centre += step
    return float(abs(step).max()) if step.size else 0.0


def line(values: np.ndarray, mine: Rectangle, part: Rectangle, colour: int) -> np.ndarray:
    """The points of a colour in a part one point wide, within `mine` or in the ring around it."""
    top, left = part.top - mine.top + 1, part.left - mine.left + 1
    bottom, right = part.bottom - mine.top + 1, part.right - mine.left + 1
    skip = (part.top + part.left + colour) % 2
    return values[top + skip : bottom : 2, left] if right - left == 1 else values[top, left + skip : right : 2]


# Communication: borders before each half sweep, the stopping criterion, the solution.
def share(borders: List[Border], links: "Links") -> None:
    edges = {peer: edge.astype("<f8").tobytes() for peer, edge, _ in borders}
    received = links.exchange(edges, {peer: NUMBER.size * halo.size for peer, _, halo in borders})
    for peer, _, halo in borders:
        halo[:] = np.frombuffer(received[peer], "<f8")


def greatest(value: float, links: "Links", tree: Tree) -> float:
    """The maximum over all processes, which unlike a sum does not depend on the order; known to none before all ask."""
    parent, children = tree
    received = links.exchange({}, dict.fromkeys(children, NUMBER.size))
    value = max([value, *(NUMBER.unpack(data)[0] for data in received.values())])
    if parent is not None:
        value = NUMBER.unpack(links.exchange({parent: NUMBER.pack(value)}, {parent: NUMBER.size})[parent])[0]
    links.exchange(dict.fromkeys(children, NUMBER.pack(value)), {})
    return value


def gather(rank: int, values: np.ndarray, rectangles: Sequence[Rectangle], links: "Links") -> np.ndarray:
    """The whole solution at rank 0, this process's values elsewhere."""
    if rank:
        links.exchange({0: values.astype("<f8").tobytes()}, {})
        return values
    points = {peer: (part.bottom - part.top) * (part.right - part.left) for peer, part in enumerate(rectangles) if peer}
    received = links.exchange({}, {peer: NUMBER.size * number for peer, number in points.items()})
    solution = np.empty((rectangles[-1].bottom, rectangles[-1].right))
    for peer, part in enumerate(rectangles):
        block = np.frombuffer(received[peer], "<f8") if peer else values
        solution[part.top : part.bottom, part.left : part.right] = block.reshape(part.bottom - part.top, -1)
    return solution


class Links:
    """The connections to the peers, by rank; all that is said after the greetings is said by `exchange`."""

    def __init__(self, sockets: Dict[int, socket.socket], timeout: float) -> None:
        self.sockets, self.timeout = sockets, timeout
        self.ranks = {link: rank for rank, link in sockets.items()}
        for link in sockets.values():
            link.setblocking(False)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, outgoing: Dict[int, bytes], incoming: Dict[int, int]) -> Dict[int, bytearray]:
        """Sends the data and receives the numbers of bytes at once, so that no two processes wait for each other."""
        received = {peer: bytearray(size) for peer, size in incoming.items()}
        unsent = {self.sockets[peer]: memoryview(data) for peer, data in outgoing.items() if data}
        missing = {self.sockets[peer]: memoryview(data) for peer, data in received.items() if data}
        while unsent or missing:
            readable, writable, _ = select.select(list(missing), list(unsent), [], self.timeout)
            if not readable and not writable:
                ranks = sorted({self.ranks[link] for link in [*unsent, *missing]})
                raise Failure(f"no sign of ranks {ranks} for {self.timeout:g} s. Look at their nodes.")
            for link in writable:
                self.advance(unsent, link, link.send)
            for link in readable:
                self.advance(missing, link, link.recv_into)
        return received

    def advance(self, pending: Dict[socket.socket, memoryview], link: socket.socket, move: Callable) -> None:
        try:
            moved = move(pending[link])
            if not moved:
                raise ConnectionError("it closed its connection")
        except BlockingIOError:
            return
        except OSError as error:
            raise Failure(f"lost rank {self.ranks[link]}: {error}. Look at that rank's output.") from error
        rest = pending.pop(link)[moved:]
        if rest:
            pending[link] = rest


# Meeting: every rank publishes its address, and connects to those of its peers that have a lower rank.
def meet(rank: int, address: str, options: Namespace) -> Tuple[socket.socket, str]:
    """This process's listening socket and the job's key; the options take the values that rank 0 has."""
    listener = socket.socket()
    listener.bind(("0.0.0.0", 0))
    listener.listen(128)
    put = ["put", f"poisson/{rank}", f"{address}:{listener.getsockname()[1]}"]
    if rank == 0:
        job = json.dumps(dict({name: getattr(options, name) for name in SHARED}, key=os.urandom(16).hex()))
        rendezvous(options.timeout, put, ["put", "poisson/job", job])
    else:
        job = rendezvous(options.timeout, put, ["get", "poisson/job"])[1]
    vars(options).update(json.loads(job))
    return listener, options.key


def rendezvous(timeout: float, *requests: List[str]) -> List[str]:
    """The answers to several requests, made at the same time."""
    command, answers = os.environ["KOALA_RENDEZVOUS"], []
    asked = [subprocess.Popen([command, *request], stdout=subprocess.PIPE) for request in requests]
    try:
        for process in asked:
            answers.append(process.communicate(timeout=timeout)[0].decode().strip())
            if process.returncode:
                raise Failure(f"{process.args} ended with status {process.returncode}. Submit the job again.")
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{error.cmd} had no answer for {timeout:g} s. Look at that rank's output.") from error
    finally:
        for process in asked:
            process.kill()  # does nothing to one that has ended
    return answers


def connect(rank: int, peers: Set[int], listener: socket.socket, key: str, timeout: float) -> Links:
    """Nobody waits for a greeting before having greeted all lower ranks, so all can connect at the same time."""
    lower, mine = sorted(peer for peer in peers if peer < rank), greeting(key, rank)
    higher = {greeting(key, peer): peer for peer in peers if peer > rank}
    addresses = rendezvous(timeout, *(["get", f"poisson/{peer}"] for peer in lower))
    sockets = {peer: dial(peer, address, mine, timeout) for peer, address in zip(lower, addresses)}
    sockets.update(accept(listener, dict(higher), timeout))
    links = Links(sockets, timeout)
    answers = links.exchange(dict.fromkeys(higher.values(), mine), dict.fromkeys(lower, len(mine)))
    for peer, answer in answers.items():
        if answer != greeting(key, peer):
            raise Failure(f"something else answers at the address of rank {peer}. Look at the job's KOALA_HOSTS.")
    return links


def greeting(key: str, rank: int) -> bytes:
    """What nobody else can say; 32 bytes, so that it arrives as a whole."""
    return hashlib.sha256(f"koala poisson {key} {rank}".encode()).digest()


def dial(peer: int, address: str, words: bytes, timeout: float) -> socket.socket:
    host, _, port = address.rpartition(":")
    try:
        link = socket.create_connection((host, int(port)), timeout)
        link.sendall(words)
    except OSError as error:
        raise Failure(f"cannot reach rank {peer} at {address}: {error}. Do the nodes share a network?") from error
    return link


def accept(listener: socket.socket, expected: Dict[bytes, int], timeout: float) -> Dict[int, socket.socket]:
    """A stranger is closed at its first word, and may keep silent without keeping others waiting."""
    links, strangers = {}, []  # type: Dict[int, socket.socket], List[socket.socket]
    deadline = time.monotonic() + timeout
    while expected:
        readable = select.select([listener, *strangers], [], [], max(0.0, deadline - time.monotonic()))[0]
        if time.monotonic() > deadline:
            raise Failure(f"ranks {sorted(expected.values())} did not connect in {timeout:g} s. Look at their output.")
        for link in readable:
            if link is listener:
                strangers.append(listener.accept()[0])
                continue
            strangers.remove(link)
            try:
                links[expected.pop(link.recv(32))] = link
            except (OSError, KeyError):
                link.close()
        while len(strangers) > 64:
            strangers.pop(0).close()
    for link in [listener, *strangers]:
        link.close()
    return links


if __name__ == "__main__":
    main()
