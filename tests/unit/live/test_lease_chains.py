"""Three koalads of three people: a job runs on processors of a site that its own does not know."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live
import pytest
from site_koalas import begin, free_address, leases, link, nothing_left_of_leases, site

Document = dict[str, Any]
SLOTS = {"delft": 2, "nl": 1, "lyon": 5}


class Chain:
    """`nl` listens; `delft`, which borrows, and `lyon`, which lends, dial it and do not know each other."""

    def __init__(self, place: Path) -> None:
        terms = {"processors": 4, "isolation": "none"}
        sites: dict[str, Document] = {
            "delft": {"borrow": {"after": "0s", "idle": "3s", "again": "1s"}},
            "nl": {"listen": free_address(), "lend": {"to": ["delft"], "pass_on": True, **terms}},
            "lyon": {"lend": {"to": ["nl"], "strangers": True, **terms}},
        }
        self.all = {name: site(place, name, SLOTS[name], **section) for name, section in sites.items()}
        self.delft, self.nl, self.lyon = self.all.values()

    def link(self) -> None:
        begin(*self.all.values())
        for name in ("delft", "lyon"):
            link(self.nl, name, self.all[name], "child")
        self.delft.until(lambda: self.free() == 4)

    def free(self) -> int | None:
        (found,) = self.delft("sites", "--json").document["neighbours"]
        return found["free"]  # type: ignore[no-any-return]

    def idle(self) -> None:
        """Nothing is lent any more, nothing of a lease is left, and both ends of each link have one charge."""
        for koala in self.all.values():
            koala.until(lambda: not leases(koala))  # noqa: B023
        self.delft.until(lambda: [each["name"] for each in self.delft.client().clusters()] == ["delft-nodes"])
        self.lyon.until(lambda: self.lyon.client().clusters()[0]["idle"] == SLOTS["lyon"])
        self.lyon.until(lambda: nothing_left_of_leases(self.lyon))
        books = {name: usage(koala) for name, koala in self.all.items()}
        assert books["delft"]["nl"]["borrowed_s"] == books["nl"]["delft"]["lent_s"] > 0
        assert books["nl"]["lyon"]["borrowed_s"] == books["lyon"]["nl"]["lent_s"] > 0

    def stop(self) -> None:
        for koala in self.all.values():
            koala.stop()


def usage(koala: live.Koala) -> dict[str, Document]:
    return {each["neighbour"]: each for each in koala("leases", "--json").document["usage"]}


@pytest.fixture(scope="module")
def chain() -> Iterator[Chain]:
    with tempfile.TemporaryDirectory(prefix="kl", dir="/tmp") as place:
        made = Chain(Path(place))
        try:
            made.link()
            yield made
        finally:
            made.stop()


def test_a_job_runs_over_a_chain_and_survives_killed_koalads_of_all_its_sites(chain: Chain) -> None:
    delft = chain.delft
    gate, lines, home = delft.work / "gate", delft.work / "lines", delft.work / "home"
    script = (
        f'echo "$HOME" >{home}; echo begun >>{lines}; while [ ! -e {gate} ]; do sleep 0.1; done; echo ended >>{lines}'
    )
    job = delft.submit(live.sh(script, 4, walltime="2m", launch="once"))
    delft.until(lambda: delft.job(job)["state"] == "running" and lines.exists())
    assert delft.job(job)["components"][0]["cluster"] == "nl~1"
    (borrowed,), (lent,) = leases(delft), leases(chain.lyon)
    assert (borrowed["neighbour"], borrowed["links"], lent["neighbour"], lent["on"]) == ("nl", 2, "nl", "lyon-nodes")
    between = {each["neighbour"]: each for each in leases(chain.nl)}
    assert [(each["direction"], each["beyond"], each["job"]) for _, each in sorted(between.items())] == [
        ("lent", "lyon", None),
        ("borrowed", "delft", None),
    ]
    assert "site lyon" in chain.nl("leases").out
    assert [each["name"] for each in chain.nl.client().clusters()] == ["nl-nodes"]
    for koala in (chain.nl, chain.lyon, delft):
        koala.kill()
        assert koala("up").status == 0
    assert [len(leases(koala)) for koala in chain.all.values()] == [1, 2, 1]
    gate.touch()
    ended = delft.end(job)
    assert (ended["state"], ended["completion_failures"]) == ("done", 0)
    assert lines.read_text() == "begun\nended\n"
    assert chain.lyon.root in Path(home.read_text().strip()).parents
    chain.idle()


@pytest.mark.slow
def test_the_site_between_takes_a_lease_back(chain: Chain) -> None:
    delft, lines = chain.delft, chain.delft.work / "taken"
    gate = delft.work / "taken.gate"
    script = f"echo begun >>{lines}; while [ ! -e {gate} ]; do sleep 0.1; done"
    job = delft.submit(live.sh(script, 4, walltime="2m", launch="once"), retry_on=[])
    delft.until(lambda: delft.job(job)["state"] == "running" and lines.exists())
    assert chain.nl("leases", "end", leases(chain.nl)[0]["name"]).status == 0
    delft.until(lambda: lines.read_text() == "begun\nbegun\n")
    gate.touch()
    ended = delft.end(job)
    assert (ended["state"], ended["completion_failures"]) == ("done", 0)
    assert "The lease nl~2 has ended: Its lender has taken it back." in delft("show", job).out
    chain.idle()


def test_why_nothing_comes_over_a_chain_is_explained(chain: Chain) -> None:
    delft = chain.delft
    job = delft.submit(live.sh("exit 0", 4, walltime="2m"), dttl=1)
    delft.until(lambda: "from the site nl: It can lend 1 processor now, and 4 are needed." in delft("explain", job).out)
    delft("cancel", job)
