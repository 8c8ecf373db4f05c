"""The parts of the Poisson program: who has which points, the tree, and the exchange over a connection."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

PROGRAM = Path(__file__).parents[3] / "configs" / "examples" / "poisson" / "poisson.py"
LIMIT_S = 60


@pytest.fixture(scope="module")
def program() -> Iterator[ModuleType]:
    """The program as a module, for what it computes before it exchanges anything."""
    spec = importlib.util.spec_from_file_location("poisson_program", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        for library in ("OMP", "OPENBLAS", "MKL"):  # it sets these, if they are not set
            patch.setenv(f"{library}_NUM_THREADS", "1")
        spec.loader.exec_module(module)
        yield module


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return socket.create_connection(listener.getsockname()), listener.accept()[0]


def test_a_silent_peer_is_named(program: ModuleType) -> None:
    ours, theirs = connected()
    with ours, theirs, pytest.raises(program.Failure, match=r"no sign of ranks \[7\] for 0\.05 s\. Look at"):
        program.Links({7: ours}, 0.05).exchange({}, {7: 8})


def test_two_processes_can_send_each_other_more_than_the_network_holds(program: ModuleType) -> None:
    data = [os.urandom(8_000_000), os.urandom(5_000_000)]
    ours, theirs = connected()
    with ThreadPoolExecutor(1) as thread, ours, theirs:  # closed first, the sockets wake a thread that would hang
        other = thread.submit(program.Links({0: theirs}, LIMIT_S).exchange, {0: data[1]}, {0: len(data[0])})
        received = program.Links({1: ours}, LIMIT_S).exchange({1: data[0]}, {1: len(data[1])})
        assert received == {1: data[1]}
        assert other.result(LIMIT_S) == {0: data[0]}


SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=5)


@given(sizes=SIZES, grid=st.integers(45, 90))
def test_every_point_has_one_process(program: ModuleType, sizes: list[int], grid: int) -> None:
    owners = np.zeros((grid, grid), int)
    for part in program.decompose(grid, sizes):
        owners[part.top : part.bottom, part.left : part.right] += 1
    assert (owners == 1).all()


@given(sizes=SIZES, grid=st.integers(45, 90))
def test_components_are_strips_numbered_in_column_major_order(program: ModuleType, sizes: list[int], grid: int) -> None:
    rectangles = program.decompose(grid, sizes)
    assert [(part.left, part.top) for part in rectangles] == sorted((part.left, part.top) for part in rectangles)
    first = 0
    for size in sizes:
        strip = rectangles[first : first + size]
        width = max(part.right for part in strip) - min(part.left for part in strip)
        assert abs(width - grid * size / sum(sizes)) < 1
        assert {part.top for part in strip if part.left == strip[0].left} == {part.top for part in strip}
        first += size


@given(sizes=SIZES, grid=st.integers(45, 90))
def test_neighbours_agree_on_their_borders(program: ModuleType, sizes: list[int], grid: int) -> None:
    rectangles = program.decompose(grid, sizes)
    sides = [program.neighbours(rank, rectangles) for rank in range(len(rectangles))]
    for rank, part in enumerate(rectangles):
        assert all(sides[peer][rank] == (theirs, own) for peer, (own, theirs) in sides[rank].items())
        inner = [part.top > 0, part.bottom < grid, part.left > 0, part.right < grid]
        height, width = part.bottom - part.top, part.right - part.left
        length = sum((b.bottom - b.top) * (b.right - b.left) for b, _ in sides[rank].values())
        assert length == (inner[0] + inner[1]) * width + (inner[2] + inner[3]) * height


@given(sizes=SIZES)
def test_the_tree_has_one_link_into_each_further_component(program: ModuleType, sizes: list[int]) -> None:
    trees = [program.tree_of(rank, sizes) for rank in range(sum(sizes))]
    component = [number for number, size in enumerate(sizes) for _ in range(size)]
    assert trees[0][0] is None
    assert all(parent is not None and parent < rank for rank, (parent, _) in enumerate(trees) if rank)
    assert all(trees[child][0] == rank for rank, (_, children) in enumerate(trees) for child in children)
    assert sum(len(children) for _, children in trees) == sum(sizes) - 1
    crossing = [rank for rank, (parent, _) in enumerate(trees) if rank and component[parent] != component[rank]]
    assert len(crossing) == len(sizes) - 1


@pytest.mark.parametrize(("sizes", "rows"), [([4], 2), ([12], 3), ([4, 4, 4], 4), ([7], 1), ([1, 1], 1)])
def test_borders_are_as_short_as_they_can_be(program: ModuleType, sizes: list[int], rows: int) -> None:
    strip = program.decompose(60, sizes)[: sizes[0]]
    assert len({part.top for part in strip}) == rows
