"""Two koalads of two people: a job that is too large for the one runs on processors that the other lends."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import live
import pytest
from site_koalas import begin, free_address, leases, link, nothing_left_of_leases, site

SLOTS = {"delft": 2, "lyon": 6}


class Pair:
    """`delft` borrows, and only dials; `lyon` lends."""

    def __init__(self, place: Path) -> None:
        borrow = {"after": "0s", "idle": "3s", "again": "1s"}
        lend = {"to": ["delft"], "processors": 5, "isolation": "none"}
        self.delft = site(place, "delft", SLOTS["delft"], borrow=borrow)
        self.lyon = site(place, "lyon", SLOTS["lyon"], listen=free_address(), lend=lend)
        self.both = self.delft, self.lyon

    def link(self) -> None:
        begin(*self.both)
        link(self.lyon, "delft", self.delft)
        self.delft.until(lambda: self.free() == 5)

    def free(self) -> int | None:
        (found,) = self.delft("sites", "--json").document["neighbours"]
        return found["free"]  # type: ignore[no-any-return]

    def idle(self) -> None:
        """Nothing is lent any more, and nothing of a lease is left."""
        for koala in self.both:
            koala.until(lambda: not leases(koala))  # noqa: B023
        self.delft.until(lambda: [each["name"] for each in self.delft.client().clusters()] == ["delft-nodes"])
        self.lyon.until(lambda: self.lyon.client().clusters()[0]["idle"] == SLOTS["lyon"])
        self.lyon.until(lambda: nothing_left_of_leases(self.lyon))

    def stop(self) -> None:
        for koala in self.both:
            koala.stop()


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="kl", dir="/tmp") as place:
        made = Pair(Path(place))
        try:
            made.link()
            yield made
        finally:
            made.stop()


def test_a_job_too_large_for_one_site_runs_on_a_lease_of_the_other(pair: Pair) -> None:
    delft, lyon = pair.both
    gate, home = delft.work / "gate", delft.work / "home"
    job = delft.submit(live.sh(f'echo "$HOME" >{home}; while [ ! -e {gate} ]; do sleep 0.1; done', 4, walltime="2m"))
    delft.until(lambda: delft.job(job)["state"] == "running")
    (borrowed,), (lent,) = leases(delft), leases(lyon)
    assert (borrowed["name"], borrowed["direction"], borrowed["job"], borrowed["jobs"]) == (
        "lyon~1",
        "borrowed",
        job,
        [job],
    )
    assert (lent["direction"], lent["neighbour"], lent["on"]) == ("lent", "delft", "lyon-nodes")
    for each in (borrowed, lent):
        assert (each["state"], each["processors"], each["reachable"]) == ("bound", 4, True)
    assert delft.job(job)["components"][0]["cluster"] == "lyon~1"
    assert "lyon~1" in delft("leases").out
    assert lent["name"] in lyon("leases").out
    assert lyon("pilots", "--json").document["pilots"] == []
    delft("leases", "end", "lyon~1").refused(2, f"there is job {job}", "--force")
    gate.touch()
    assert delft.end(job)["state"] == "done"
    directory = Path(home.read_text().strip())
    assert directory.name == "lease"
    assert lyon.root in directory.parents
    pair.idle()
    usage = [koala("leases", "--json").document["usage"][0] for koala in pair.both]
    assert usage[0]["borrowed_s"] == usage[1]["lent_s"] > 0
    gate.unlink()


def running(pair: Pair, name: str) -> tuple[int, Path, Path]:
    """A job that runs on a lease until its gate is there, and writes a line at its beginning and end."""
    delft = pair.delft
    gate, lines = delft.work / f"{name}.gate", delft.work / f"{name}.lines"
    script = f"echo begun >>{lines}; while [ ! -e {gate} ]; do sleep 0.1; done; echo ended >>{lines}"
    job = delft.submit(live.sh(script, 3, walltime="2m", launch="once"))
    delft.until(lambda: delft.job(job)["state"] == "running" and lines.exists())
    return job, gate, lines


def test_what_runs_on_a_lease_survives_killed_koalads_of_both_sides(pair: Pair) -> None:
    job, gate, lines = running(pair, "killed")
    for koala in pair.both:
        koala.kill()
        assert koala("up").status == 0
    assert len(leases(pair.delft)) == len(leases(pair.lyon)) == 1
    gate.touch()
    ended = pair.delft.end(job)
    assert (ended["state"], ended["completion_failures"]) == ("done", 0)
    assert lines.read_text() == "begun\nended\n"
    pair.idle()


def test_a_lender_takes_a_lease_back_and_the_job_runs_again(pair: Pair) -> None:
    job, gate, lines = running(pair, "taken")
    (lent,) = leases(pair.lyon)
    assert pair.lyon("leases", "end", lent["name"]).status == 0
    pair.delft.until(lambda: lines.read_text() == "begun\nbegun\n")
    gate.touch()
    ended = pair.delft.end(job)
    assert (ended["state"], ended["completion_failures"]) == ("done", 1)
    out = pair.delft("show", job).out
    assert "The lease lyon~3 is over: Its lender has taken it back." in out
    pair.idle()


def test_why_nothing_is_borrowed_is_explained(pair: Pair) -> None:
    delft, lyon = pair.both
    job = delft.submit(live.sh("exit 0", 6, walltime="2m"))
    assert delft.job(job)["state"] == "waiting"
    delft.until(lambda: "from the site lyon: It could lend 5 processors when last heard" in delft("explain", job).out)
    delft("cancel", job)
    lyon("leases", "end", "pilot~99").refused(2, "There is no lease pilot~99", "`koala leases`")
