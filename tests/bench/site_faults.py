"""The table of faults of sites: what was lost, ran twice or was left, and whether the books of both sides agree.

    tests/bench/run site_faults [--json] [--list] [--rounds N] [--add FILE] [NAME…]

Each row strikes leases of the sites of the test grid, in several rounds with a job on each lease. Without names, all
rows are performed. With `--add` the rounds are added to those that are in the file, and the table shows them all. The
exit status is 0 only if nothing was lost, nothing ran twice, nothing was left, and all books agreed.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from _faults.lease_perform import Round, begun, failed, perform
from _faults.lease_scene import linked_sites
from _faults.lease_table import ROWS, LeaseRow
from _grid import end_orderly

from koalapy import testgrid
from koalapy.model.errors import KoalaError

HEAD = ("fault", "leases of", "times", "lost", "ran twice", "left over", "books", "attempts", "work went on after")
Document = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests/bench/run site_faults", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one document instead of the table")
    parser.add_argument("--list", action="store_true", help="only the names of the rows")
    parser.add_argument("--rounds", type=int, help="of each row, in place of its own number")
    parser.add_argument("--add", type=Path, metavar="FILE", help="keep the rounds there, beside earlier ones")
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *(each.name for each in ROWS)])
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{each.name:16} {each.fault}; leases of {', '.join(each.lenders)}" for each in ROWS))
        return
    rows = [each for each in ROWS if not arguments.names or each.name in arguments.names]
    found = _read(arguments.add)
    end_orderly()
    with testgrid.reserved():
        running = testgrid.up()
        running.reset()
        with linked_sites(running) as (people, evidence):
            for row in rows:
                scene = begun(row, running, people, evidence)
                for number in range(arguments.rounds or row.rounds):
                    print(f"{row.name}: round {number + 1}", file=sys.stderr, flush=True)
                    found.setdefault(row.name, []).append(_as_json(row, _performed(row, scene)))
                    _complain(found[row.name][-1])
                    _write(arguments.add, found)
        running.reset()
    print(json.dumps(_document(found), indent=1) if arguments.json else _table(found))
    sys.exit(0 if _document(found)["holds"] else 1)


def _performed(row: LeaseRow, scene: Any) -> Round:
    try:
        return perform(row, scene)
    except (AssertionError, KoalaError) as error:
        return failed(error)


def _complain(found: Document) -> None:
    for key in ("lost", "ran_twice", "left", "books"):
        for sentence in found[key]:
            print(f"  {sentence}", file=sys.stderr, flush=True)


def _as_json(row: LeaseRow, found: Round) -> Document:
    verdict = found.verdict
    return {
        "leases": row.leases,
        "lost": verdict.lost,
        "ran_twice": verdict.twice,
        "left": verdict.left,
        "books": found.books,
        "attempts": found.attempts,
        "went_on_s": [round(each, 1) for each in found.went_on_s],
    }


def _table(found: dict[str, list[Document]]) -> str:
    rows = [HEAD, tuple("---" for _ in HEAD), *(_line(row, found[row.name]) for row in ROWS if row.name in found)]
    return "\n".join("| " + " | ".join(line) + " |" for line in rows)


def _line(row: LeaseRow, rounds: list[Document]) -> tuple[str, ...]:
    words = [_count([one for each in rounds for one in each[key]]) for key in ("lost", "ran_twice", "left")]
    wrong = _count([one for each in rounds for one in each["books"]])
    attempts = [one for each in rounds for one in each["attempts"]]
    seconds = [one for each in rounds for one in each["went_on_s"]]
    return (
        f"`{row.name}`: {row.fault}",
        ", ".join(row.lenders) + (f", over {row.borrower}'s parent" if row.chain else ""),
        str(sum(each["leases"] for each in rounds)),
        *words,
        "agree" if wrong == "nothing" else f"{wrong} do not agree",
        "-" if not attempts else _span(min(attempts), max(attempts)),
        "never" if not seconds else f"{statistics.median(seconds):.1f} s, {max(seconds):.1f} s at most",
    )


def _span(least: int, most: int) -> str:
    return str(least) if least == most else f"{least} to {most}"


def _count(sentences: list[str]) -> str:
    return str(len(sentences)) if sentences else "nothing"


def _document(found: dict[str, list[Document]]) -> Document:
    rounds = [each for every in found.values() for each in every]
    wrong = [key for each in rounds for key in ("lost", "ran_twice", "left", "books") if each[key]]
    rows = [_of_row(row, found[row.name]) for row in ROWS if row.name in found]
    return {"schema": "koala.site-faults/1", "holds": not wrong, "rows": rows}


def _of_row(row: LeaseRow, rounds: list[Document]) -> Document:
    return {"name": row.name, "fault": row.fault, "lenders": dict(row.lenders), "rounds": rounds}


def _read(path: Path | None) -> dict[str, list[Document]]:
    return {} if path is None or not path.exists() else dict(json.loads(path.read_text()))


def _write(path: Path | None, found: dict[str, list[Document]]) -> None:
    if path is not None:
        path.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
