"""The cost of a sweep of a million parameters for koalad: time until it is accepted, and memory.

    tests/bench/run accept [--rounds N]

Sweeps of 1,000,000 parameters, of a range and of a file of so many lines, go to a koalad whose one cluster
is not scavenged. The time is koalad's own (`accepted_s`); the memory is how much its resident set grew by all of them.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _grid import koalad_of, last_line

from koalapy import Grid

COUNT = 1_000_000
BOUND_S, BOUND_MB = 1.0, 100.0
PROGRAM = {"processors": 1, "executable": "true", "arguments": ["{x}"]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests/bench/run accept", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="sweeps of each kind (%(default)s)")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory(prefix="koala-bench-") as place:
        cluster = {"batch": "local", "connect": "local:", "slots": 1, "shared": f"{place}/shared"}
        grid = {"clusters": {"here": cluster | {"scavenge": {"off": True}}}}
        with koalad_of(grid) as (koalad, _):
            before = resident_mb(koalad)
            seconds = {kind: [accept(koalad, job, place) for _ in range(rounds)] for kind, job in kinds(Path(place))}
            grown = resident_mb(koalad) - before
    for kind, each in seconds.items():
        print(f"{kind:6} {COUNT:,} parameters: accepted in {max(each):.3f} s at most", file=sys.stderr)
    print(f"koalad's resident set grew by {grown:.1f} MB over {2 * rounds} sweeps", file=sys.stderr)
    slowest = max(max(each) for each in seconds.values())
    detail = {"accepted_s": seconds, "grown_mb": round(grown, 1), "bound_mb": BOUND_MB, "sweeps": 2 * rounds}
    last_line("accept", slowest, "s", BOUND_S, slowest < BOUND_S and grown < BOUND_MB, detail)


def kinds(place: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "range", {"parameters": {"x": f"1:{COUNT}"}}
    (place / "points").write_text("".join(f"{number}\n" for number in range(COUNT)))
    yield "file", {"parameters": {"x": "@points"}}


def accept(koalad: Grid, job: dict[str, Any], directory: str) -> float:
    return float(koalad.accept({"components": [PROGRAM], **job}, directory=directory)["accepted_s"])


def resident_mb(koalad: Grid) -> float:
    status = Path(f"/proc/{koalad.status()['pid']}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1000


if __name__ == "__main__":
    main()
