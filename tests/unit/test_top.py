"""The screen of `koala top`: whatever there is, it fits, and says what it leaves out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from koalapy.cli.top import screen

Document = dict[str, Any]
AT = "2030-01-01T12:00:10.000000Z"
LONG_NAME = "日本語の長い名前" * 4


def a_cluster(name: str = "alpha", **numbers: Any) -> Document:
    known = {"total": 40, "idle": 20, "ours": 15, "scavenged": 5, "others": 10, "connection": "up", "reason": None}
    return {"name": name, **known, **numbers}


def a_look(clusters: int = 1, queue: int = 0, running: int = 0, sweeps: int = 0, **fields: Any) -> Document:
    job = {"name": LONG_NAME, "owner": "mona", "submitted_at": "2030-01-01T11:00:00.000000Z", "processors": 8}
    waits = {**job, "state": "waiting", "priority": 10, "why": "It waits: \x1b[2J alpha has\n nothing idle."}
    parts = [{"cluster": "alpha", "processors": 4, "state": "running"}] * 9
    sweep = {"done": 3, "parameters": 10**9, "parameters_per_minute": 60.0, "state": "running", "clusters": []}
    return {
        "at": AT,
        "grid": "das",
        "version": "1.0",
        "state": "ready",
        "pid": 7,
        "troubles": [],
        "load": {"cpu_s": 10.0, "memory_bytes": 2**26, "commits": 100},
        "clusters": [a_cluster(f"alpha{number}") for number in range(clusters)],
        "queue": [{"id": number, **waits} for number in range(queue)],
        "running": [
            {"id": n, **job, "state": "running", "started_at": AT, "components": parts} for n in range(running)
        ],
        "sweeps": [{"id": number, **job, **sweep} for number in range(sweeps)],
        **fields,
    }


counts = st.integers(0, 60)


@given(counts, counts, counts, counts, st.sampled_from([(80, 24), (120, 40), (200, 24), (80, 60)]), st.booleans())
def test_it_fits_and_leaves_no_section_out(
    clusters: int, queue: int, running: int, sweeps: int, size: tuple[int, int], blocks: bool
) -> None:
    lines = screen(a_look(clusters, queue, running, sweeps), None, *size, blocks)
    assert len(lines) <= size[1]
    assert all(cell_len(line.text) <= size[0] for line in lines)
    assert not any("\x1b" in line.text or "\n" in line.text for line in lines)
    texts = [line.text for line in lines]
    for title, count in (("CLUSTERS", clusters), ("QUEUE", queue), ("RUNNING", running), ("SWEEPS", sweeps)):
        begin = texts.index(f"{title} ({count})") + 1
        shown = texts[begin : texts.index("", begin) if "" in texts[begin:] else len(texts)]
        left_out = next((int(line.split()[1]) for line in shown if line.startswith("  … ")), 0)
        assert len([line for line in shown if not line.startswith("  … ")]) + left_out == count


@pytest.mark.parametrize("width", [80, 120])
def test_a_bar_has_the_parts_of_the_whole(width: int) -> None:
    line = next(line.text for line in screen(a_look(), None, width, 24) if "[" in line.text)
    bar = line[line.index("[") + 1 : line.index("]")]
    for block, processors in zip("█▓▒░", (10, 5, 10, 15), strict=True):
        assert abs(bar.count(block) - processors * len(bar) / 40) <= 1
    assert set(bar) == set("█▓▒░")
    assert len(line) == width
    plain = next(line.text for line in screen(a_look(), None, width, 24, blocks=False) if "[" in line.text)
    assert plain.isascii()


def test_a_cluster_that_cannot_be_used_says_why_instead() -> None:
    down = a_cluster(total=None, idle=None, connection="down", reason="its head node does not answer.")
    texts = [line.text for line in screen(a_look(clusters=0) | {"clusters": [down]}, None, 80, 24)]
    assert "  alpha down: its head node does not answer." in texts


def test_rates_are_told_by_two_looks() -> None:
    before = a_look(at="2030-01-01T12:00:08.000000Z", load={"cpu_s": 9.9, "memory_bytes": 1, "commits": 80})
    head = screen(a_look(), before, 120, 40)[0].text
    assert head == "koalad 1.0  grid das  ready  pid 7  CPU 5 %  10 commits/s  64 MiB"
    assert "CPU" not in screen(a_look(), {**before, "pid": 8}, 120, 40)[0].text
