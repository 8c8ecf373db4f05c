"""A sweep of 20,000 parameters on the test grid through one fault after another, with a check over its results.

    tests/bench/run sweep_faults [--json] [--count N] [NAME…]

The faults strike one after the other, evenly over the sweep; without names, all of them. The exit status is 0 only if
every parameter has one result, none that was completed was run again, and nothing is left.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from _faults.koalad import Koalad
from _faults.perform import koalad_over
from _faults.sweeping import COUNT, STROKES, Stroke, Struck, SweepVerdict, account, after, begin, judge

from koalapy import testgrid
from koalapy.answers import sweeps as answers

PATIENCE_S = 1800.0
_POLL_S = 0.5
_LAST = 0.8  # of the sweep is done when the last fault strikes
HEAD = ("fault", "on", "after parameter", "begun anew", "cluster went on after")
Document = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests/bench/run sweep_faults", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one document instead of the table")
    parser.add_argument("--count", type=int, default=COUNT, help="parameters (%(default)s)")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *(each.name for each in STROKES)])
    arguments = parser.parse_args()
    strokes = [each for each in STROKES if not arguments.names or each.name in arguments.names]
    with testgrid.reserved():
        running = testgrid.up()
        running.reset()
        with koalad_over(running) as koalad:
            struck, verdict, detail = perform(koalad, strokes, arguments.count)
        running.reset()
    for sentence in (*verdict.lost, *verdict.twice, *verdict.wrong, *verdict.left):
        print(f"  {sentence}", file=sys.stderr)
    document = {"schema": "koala.sweep-faults/1", "holds": verdict.holds, **detail, "rows": list(map(_as_json, struck))}
    print(json.dumps(document, indent=1) if arguments.json else f"{_table(struck)}\n{json.dumps(detail)}")
    sys.exit(0 if verdict.holds else 1)


def perform(koalad: Koalad, strokes: Sequence[Stroke], count: int) -> tuple[list[Struck], SweepVerdict, Document]:
    begun = time.monotonic()
    sweep = begin(koalad, count)
    struck = []
    for place, stroke in enumerate(strokes, 1):
        due = round(count * _LAST * place / len(strokes)) if len(strokes) > 1 else count // 4
        _reach(koalad, sweep, due)
        done, at = _done(koalad, sweep), time.time()
        print(f"{place}/{len(strokes)} {stroke.name} after {done}", file=sys.stderr, flush=True)
        stroke.strike(koalad, stroke.cluster)
        struck.append(Struck(stroke, at, time.time(), done))
    job = koalad.grid.wait([sweep], PATIENCE_S)[0]
    seconds = time.monotonic() - begun
    rows, found = list(koalad.grid.results(sweep)), account(koalad)
    verdict = judge(koalad, job, rows, found, count)
    moments = [each.at for each in struck[1:]] + [float("inf")]
    reported = [after(each, rows, found, until) for each, until in zip(struck, moments, strict=True)]
    return reported, verdict, _detail(verdict, rows, sum(map(len, found.starts.values())), seconds)


def _reach(koalad: Koalad, sweep: int, due: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while _done(koalad, sweep) < due:
        if time.monotonic() > deadline:
            raise AssertionError(f"{due} parameters were never done: {koalad.grid.runners()} {koalad.grid.clusters()}")
        time.sleep(_POLL_S)


def _done(koalad: Koalad, sweep: int) -> int:
    progress = koalad.job(sweep)["sweep"]
    assert progress is not None
    return progress["done"]


def _detail(verdict: SweepVerdict, rows: Sequence[answers.Result], starts: int, seconds: float) -> Document:
    endings = sorted(row["ending"] for row in rows)
    return {
        "results": len(rows),
        "endings": {ending: len(list(each)) for ending, each in itertools.groupby(endings)},
        "starts": starts,
        "lost": len(verdict.lost),
        "twice": len(verdict.twice),
        "wrong": len(verdict.wrong),
        "left": len(verdict.left),
        "seconds": round(seconds),
    }


def _table(struck: Sequence[Struck]) -> str:
    rows = [HEAD, tuple("---" for _ in HEAD), *map(_line, struck)]
    return "\n".join("| " + " | ".join(line) + " |" for line in rows)


def _line(each: Struck) -> tuple[str, ...]:
    went_on = "never" if each.went_on_s is None else f"{each.went_on_s:.1f} s"
    return f"`{each.stroke.name}`: {each.stroke.fault}", each.stroke.cluster, str(each.done), str(each.anew), went_on


def _as_json(each: Struck) -> Document:
    return {
        "name": each.stroke.name,
        "fault": each.stroke.fault,
        "cluster": each.stroke.cluster,
        "done": each.done,
        "begun_anew": each.anew,
        "went_on_s": each.went_on_s,
    }


if __name__ == "__main__":
    main()
