"""The table of real faults: what was running, what was lost, what ran twice, and how soon work went on.

    tests/bench/run faults [--json] [--list] [NAME…]

Each row is performed on the test grid with a koalad of its own; without names, all rows. The exit status is 0 only if
nothing was lost, nothing ran twice and nothing was left in any of them.
"""

import argparse
import json
import math
import sys
from typing import Any

from _faults.judging import Verdict
from _faults.perform import Result, perform
from _faults.table import ROWS, Row, row

from koalapy import testgrid
from koalapy.model.errors import KoalaError

HEAD = ("fault", "what was running", "lost", "ran twice", "left over", "attempts", "work went on after")
_MOMENTS = {
    "claiming": "claiming",
    "barrier": "its first component at its barrier",
    "running": "running",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests/bench/run faults", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one document instead of the table")
    parser.add_argument("--list", action="store_true", help="only the names of the rows")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *(each.name for each in ROWS)])
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{each.name:24} {each.fault}; the co-allocated job {_MOMENTS[each.moment]}" for each in ROWS))
        return
    rows = [row(name) for name in arguments.names] or list(ROWS)
    results = []
    with testgrid.reserved():
        running = testgrid.up()
        for number, each in enumerate(rows, 1):
            print(f"{number}/{len(rows)} {each.name}", file=sys.stderr, flush=True)
            results.append(_performed(each, running))
            _complain(results[-1])
        running.reset()
    print(json.dumps(_document(results), indent=1) if arguments.json else _table(results))
    sys.exit(0 if all(each.verdict.holds for each in results) else 1)


def _performed(each: Row, running: testgrid.Running) -> Result:
    """A row that comes to no end is a result too, and no reason to leave the others out."""
    try:
        return perform(each, running)
    except (AssertionError, KoalaError) as error:
        return Result(each, Verdict(lost=[f"{each.name} came to no end: {error}"]), math.inf, 0, math.inf, [])


def _complain(result: Result) -> None:
    for sentence in (*result.verdict.lost, *result.verdict.twice, *result.verdict.left):
        print(f"  {sentence}", file=sys.stderr, flush=True)


def _table(results: list[Result]) -> str:
    rows = [HEAD, tuple("---" for _ in HEAD), *map(_line, results)]
    return "\n".join("| " + " | ".join(line) + " |" for line in rows)


def _line(result: Result) -> tuple[str, ...]:
    verdict = result.verdict
    words = [_count(each) for each in (verdict.lost, verdict.twice, verdict.left)]
    return (f"`{result.row.name}`: {result.row.fault}", _running(result), *words, _tries(result), _seconds(result))


def _running(result: Result) -> str:
    """The co-allocated job. The fault's cluster stands in bold."""
    over = " + ".join(f"**{name}**" if name == result.row.cluster else name for name in result.row.over)
    return f"{over}, {_MOMENTS[result.row.moment]}"


def _count(sentences: list[str]) -> str:
    return str(len(sentences)) if sentences else "nothing"


def _tries(result: Result) -> str:
    return str(result.restarts + 1)


def _seconds(result: Result) -> str:
    return f"{result.went_on_s:.1f} s" if math.isfinite(result.went_on_s) else "never"


def _document(results: list[Result]) -> dict[str, Any]:
    return {
        "schema": "koala.faults/1",
        "holds": all(each.verdict.holds for each in results),
        "rows": [_as_json(each) for each in results],
    }


def _as_json(result: Result) -> dict[str, Any]:
    verdict, found = result.verdict, result.row
    return {
        "name": found.name,
        "fault": found.fault,
        "cluster": found.cluster,
        "running": _MOMENTS[found.moment],
        "over": list(found.over),
        "lost": verdict.lost,
        "ran_twice": verdict.twice,
        "left": verdict.left,
        "tries": result.restarts + 1,
        "fault_s": _rounded(result.fault_s),
        "went_on_s": _rounded(result.went_on_s),
    }


def _rounded(seconds: float) -> float | None:
    return round(seconds, 3) if math.isfinite(seconds) else None


if __name__ == "__main__":
    main()
