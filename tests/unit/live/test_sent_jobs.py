"""Two koalads of two people: stages of a flow of the one run at the other, which its grid file permits."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live
import pytest
from site_koalas import begin, free_address, link, site

Document = dict[str, Any]


class Pair:
    """`delft` sends, and only dials; `lyon` runs."""

    def __init__(self, place: Path) -> None:
        run = {"sites": ["delft"], "processors": 3, "isolation": "none"}
        self.delft = site(place, "delft", 4)
        self.lyon = site(place, "lyon", 4, listen=free_address(), run=run)
        self.both = self.delft, self.lyon
        self.gates = place / "gates"
        self.gates.mkdir()

    def link(self) -> None:
        begin(*self.both)
        link(self.lyon, "delft", self.delft)
        self.connected()

    def connected(self) -> None:
        for koala in self.both:
            koala.until(lambda: koala("sites", "--json").document["neighbours"][0]["state"] == "connected")  # noqa: B023

    def part(self, name: str, **fields: Any) -> Document:
        """A job that writes a line at its beginning and end, and runs until its gate is there."""
        gate = self.gates / name
        script = f"echo {name} >>{gate}.lines; while [ ! -e {gate} ]; do sleep 0.05; done; echo {name} >>{gate}.lines"
        return {"name": name, "components": [live.sh(script, launch="once")], **fields}

    def open(self, *names: str) -> None:
        for name in names:
            (self.gates / name).touch()

    def runs(self, name: str) -> None:
        self.delft.until(lambda: self.lines(name) == 1)

    def lines(self, name: str) -> int:
        path = self.gates / f"{name}.lines"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def submit(self, *jobs: Document, **fields: Any) -> int:
        file = self.delft.write("flow.yaml", {"name": "flow", **fields, "jobs": list(jobs)})
        answer = self.delft("submit", file, "--json")
        assert answer.status == 0, answer
        return int(answer.document["id"])

    def job(self, flow: int, name: str) -> Document:
        with self.delft.client() as grid:
            return next(dict(each) for each in grid.flow(flow) if each["name"] == name)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="ks", dir="/tmp") as place:
        made = Pair(Path(place))
        try:
            made.link()
            yield made
        finally:
            for koala in made.both:
                koala.stop()


def test_a_subtree_runs_at_the_other_site_whose_koalads_are_killed(pair: Pair) -> None:
    delft, lyon = pair.both
    inner = [pair.part("a"), pair.part("b", after=["a"])]
    sub: Document = {"name": "sub", "site": "lyon", "after": ["first"], "jobs": inner}
    flow = pair.submit(pair.part("first"), sub, pair.part("last", after=["sub"]))
    pair.runs("first")
    assert pair.job(flow, "sub")["state"] == "blocked"
    assert lyon.ids() == []
    pair.open("first")
    pair.runs("a")
    there = delft.until(lambda: pair.job(flow, "sub")["sent"] and pair.job(flow, "sub")["sent"]["job"])
    assert [(each["name"], each["owner"]) for each in lyon.client().flow(there)] == [
        ("a", "site:delft"), ("b", "site:delft"),
    ]  # fmt: skip
    lyon.kill()
    pair.open("a")
    sub_id = pair.job(flow, "sub")["id"]
    delft.until(lambda: "no connection with lyon now" in delft("explain", sub_id).out)
    file = delft.write("job.rsl", '&(resourceManagerContact="site:lyon")(executable=/bin/true)')
    waits = int(delft("submit", file, "--json").document["id"])
    assert "is sent once there is a connection" in delft("explain", waits).out
    assert delft.job(waits)["state"] == "waiting"
    delft.kill()
    for koala in pair.both:
        assert koala("up").status == 0
    pair.runs("b")
    delft.until(lambda: pair.job(flow, "sub")["sent"]["done"] == 1)
    assert f"at lyon (job {there} there, 1/2 done)" in delft("show", flow).out
    assert f"as its job {there}, which is running with 1 of 2 done" in delft("explain", sub_id).out
    assert f"The site lyon runs it, as its job {there}." in delft("show", sub_id).out
    delft("logs", sub_id).refused(2, "is run by the site lyon", "Ask the people")
    pair.open("b")
    pair.runs("last")
    pair.open("last")
    assert delft.end(flow)["state"] == "done"
    assert delft.end(waits)["state"] == "done"
    assert "site lyon" in delft("jobs").out
    assert [pair.lines(each) for each in ("first", "a", "b", "last")] == [2, 2, 2, 2]


def test_a_cancel_a_hold_and_a_refusal_go_both_ways(pair: Pair) -> None:
    delft, lyon = pair.both
    inner = [pair.part("c"), pair.part("d", after=["c"])]
    flow = pair.submit({"name": "sub", "site": "lyon", "jobs": inner}, pair.part("e", after=["sub"]))
    pair.runs("c")
    there = pair.job(flow, "sub")["sent"]["job"]

    def state(name: str) -> str:
        with lyon.client() as grid:
            return next(str(each["state"]) for each in grid.flow(there) if each["name"] == name)

    assert delft("hold", flow).status == 0
    lyon.until(lambda: state("d") == "held")
    assert delft("release", flow).status == 0
    lyon.until(lambda: state("d") == "blocked")
    assert delft("cancel", flow).status == 0
    assert delft.end(flow)["state"] == "cancelled"
    assert (state("c"), state("d"), pair.lines("d")) == ("cancelled", "cancelled", 0)
    large = {"name": "large", "site": "lyon", "components": [live.sh("exit 0", 4)]}
    failed = delft.end(pair.submit(large, on_failure="stop"))
    assert failed["state"] == "failed"
    assert "lyon: It runs components of 3 processors at most, and one has 4." in str(failed["reason"])
    other = delft.write("other.yaml", {"site": "paris", "components": [live.sh("exit 0")]})
    delft("submit", other).refused(2, "There is no neighbour paris", "Known: lyon")
