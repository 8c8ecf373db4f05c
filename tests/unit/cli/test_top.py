"""The screen of `koala top`: it always fits, and counts the lines that it omits."""

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


def snapshot(clusters: int = 1, queue: int = 0, running: int = 0, sweeps: int = 0, **fields: Any) -> Any:
    job = {"name": LONG_NAME, "owner": "mona", "submitted_at": "2030-01-01T11:00:00.000000Z", "processors": 8}
    waits = {**job, "state": "waiting", "priority": 10, "reason": "It waits: \x1b[2J alpha has\n nothing idle."}
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
def test_the_screen_fits_and_shows_every_section(
    clusters: int, queue: int, running: int, sweeps: int, size: tuple[int, int], blocks: bool
) -> None:
    lines = screen(snapshot(clusters, queue, running, sweeps), None, *size, blocks)
    assert len(lines) <= size[1]
    assert all(cell_len(line.text) <= size[0] for line in lines)
    assert not any("\x1b" in line.text or "\n" in line.text for line in lines)
    texts = [line.text for line in lines]
    for title, count in (("CLUSTERS", clusters), ("QUEUE", queue), ("RUNNING", running), ("SWEEPS", sweeps)):
        begin = texts.index(f"{title} ({count})") + 1
        shown = texts[begin : texts.index("", begin) if "" in texts[begin:] else len(texts)]
        omitted = next((int(line.split()[1]) for line in shown if line.startswith("  … ")), 0)
        assert len([line for line in shown if not line.startswith("  … ")]) + omitted == count


@pytest.mark.parametrize("width", [80, 120])
def test_a_bar_is_divided_in_proportion(width: int) -> None:
    line = next(line.text for line in screen(snapshot(), None, width, 24) if "[" in line.text)
    bar = line[line.index("[") + 1 : line.index("]")]
    for block, processors in zip("█▓▒░", (10, 5, 10, 15), strict=True):
        assert abs(bar.count(block) - processors * len(bar) / 40) <= 1
    assert set(bar) == set("█▓▒░")
    assert len(line) == width
    plain = next(line.text for line in screen(snapshot(), None, width, 24, blocks=False) if "[" in line.text)
    assert plain.isascii()


def test_an_unusable_cluster_shows_its_reason_instead_of_a_bar() -> None:
    down = a_cluster(total=None, idle=None, connection="down", reason="its head node does not answer.")
    texts = [line.text for line in screen(snapshot(clusters=0) | {"clusters": [down]}, None, 80, 24)]
    assert "  alpha down: its head node does not answer." in texts


def test_rates_come_from_two_snapshots() -> None:
    before = snapshot(at="2030-01-01T12:00:08.000000Z", load={"cpu_s": 9.9, "memory_bytes": 1, "commits": 80})
    head = screen(snapshot(), before, 120, 40)[0].text
    assert head == "koalad 1.0  grid das  ready  pid 7  CPU 5 %  10 commits/s  64 MiB"
    assert "CPU" not in screen(snapshot(), before | {"pid": 8}, 120, 40)[0].text
