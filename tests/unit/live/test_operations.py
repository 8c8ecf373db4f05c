"""What operators look at, on a real koalad: usage, metrics and top."""

import csv
import io
from typing import Any

import live
import pytest

from koalapy.api import schemas


@pytest.fixture(scope="module")
def done(koala: Any) -> int:
    """A job of two components that has ended."""
    koala.known()
    job = koala.submit(live.sh("sleep 1", 2, cluster="delft"), live.sh("true", 1, cluster="leiden"), name="poisson")
    assert koala.end(job)["state"] == "done"
    return int(job)


# ---- usage


def test_usage_by_cluster_has_what_the_job_used(koala: Any, done: int) -> None:
    document = koala("usage", "--by", "cluster", "--json").document
    schemas.check(document)
    rows = {row["cluster"]: row for row in document["rows"]}
    assert set(rows) == {"delft", "leiden"}
    assert rows["delft"]["run"] > 0
    assert rows["delft"]["held"] > 0
    assert document["total"]["total"] == pytest.approx(sum(row["total"] for row in rows.values()))
    assert document["total"]["attempts"] == 2


def test_usage_is_the_same_whatever_it_is_summed_by(koala: Any, done: int) -> None:
    totals = [koala("usage", "--by", by, "--json").document["total"] for by in ("user", "cluster", "job", "day")]
    assert totals == totals[:1] * 4


def test_usage_as_lines_of_values_and_as_a_table(koala: Any, done: int) -> None:
    lines = list(csv.DictReader(io.StringIO(koala("usage", "--by", "job", "--csv").out)))
    assert [(line["job"], line["name"], line["attempts"]) for line in lines] == [(str(done), "poisson", "2")]
    table = koala("usage", "--by", "cluster").out
    assert table.splitlines()[0].split()[:3] == ["CLUSTER", "RUN", "HELD"]
    assert "total" in table
    assert "ESTIMATED" in table.splitlines()[-1]


def test_usage_of_a_time_in_which_nothing_ran_is_nothing(koala: Any, done: int) -> None:
    document = koala("usage", "--since", "2001-01-01", "--until", "2001-02-01", "--json").document
    assert (document["rows"], document["total"]["total"]) == ([], 0)
    assert koala("usage", "--since", "1h", "--json").document["total"]["attempts"] == 2
    koala("usage", "--since", "yesterday").refused(2, "'yesterday'")


def test_usage_outlives_koalad(koala: Any, done: int) -> None:
    before = koala("usage", "--by", "job", "--json").document
    koala("down")
    assert koala("up").status == 0
    assert koala("usage", "--by", "job", "--json").document == before
