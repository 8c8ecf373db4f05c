"""Each kind of job on each kind of place: it runs there, or it is refused there at once with the reason.

The places are a cluster of one's own, a pilot, a pilot that isolates programs, and leases whose lender isolates them
or does not.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import live
import pytest
from site_koalas import leases
from site_pair import Pair

OWN, PILOT, ISOLATED_PILOT, ISOLATED_LEASE, OPEN_LEASE = (
    "own",
    "pilot",
    "isolated pilot",
    "isolated lease",
    "open lease",
)
PLACES = (OWN, PILOT, ISOLATED_PILOT, ISOLATED_LEASE, OPEN_LEASE)
RUNS = ""
NO_MPI = "a component with `launch: mpi` cannot run isolated"
NO_TERMINAL = "an isolated program can have no terminal"
HIDDEN = "is not visible to them"
REFUSED = "It isolates programs, and this one cannot run isolated."
KEPT = "never fits: the job asks for 3 processors; delft-nodes has 2."
OF_ROOT = {
    f"OMPI_{each}": "1" for each in ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_rmaps_base_oversubscribe")
}
MPI = shutil.which("mpirun") is not None


class Kind(NamedTuple):
    """`component`, `job`: keys of a job file; `{work}` stands for the user's directory. Each place has its outcome."""

    outcomes: dict[str, str]
    component: Mapping[str, Any] = MappingProxyType({})
    job: Mapping[str, Any] = MappingProxyType({})


def everywhere(outcome: str, **others: str) -> dict[str, str]:
    """Return the outcomes at all places: this one but for those of others, by their names with `_`."""
    return {each: others.get(each.replace(" ", "_"), outcome) for each in PLACES}


KINDS = {
    "plain": Kind(everywhere(RUNS)),
    "MPI": Kind(
        everywhere(RUNS, isolated_pilot=NO_MPI, isolated_lease=REFUSED),
        {"executable": "hostname", "arguments": [], "launch": "mpi", "environment": OF_ROOT},
    ),
    "interactive": Kind(
        everywhere(RUNS, isolated_pilot=NO_TERMINAL, isolated_lease=REFUSED), {"launch": "once"}, {"interactive": True}
    ),
    "absolute, of the system": Kind(everywhere(RUNS), {"executable": "/bin/true", "arguments": []}),
    "absolute, of the user": Kind(
        everywhere(RUNS, isolated_pilot=HIDDEN, isolated_lease=REFUSED),
        {"executable": "{work}/program", "arguments": []},
    ),
    "staged": Kind(everywhere(RUNS), {"executable": "./program", "arguments": []}, {"stage_in": ["program"]}),
    "GPU by number": Kind(
        everywhere("has no GPUs", isolated_lease=KEPT, open_lease=KEPT), {"gpus": 1}
    ),
    "whole node": Kind(
        {OWN: RUNS, PILOT: "has no whole nodes", ISOLATED_PILOT: "has no whole nodes",
         ISOLATED_LEASE: KEPT, OPEN_LEASE: KEPT},
        {"exclusive": True},
    ),
    "requirements": Kind(
        everywhere(RUNS, isolated_lease=KEPT, open_lease=KEPT), {"requirements": "other.GlueCEStateFreeCPUs >= 0"}
    ),
    "range": Kind(everywhere(RUNS), {"processors": {"want": 4, "least": 3}}),
    "flow stage": Kind(everywhere(RUNS)),
}  # fmt: skip


class Place(NamedTuple):
    """A person's koala, and what makes a job run at the place: the cluster that it names, or its size."""

    koala: Any
    component: dict[str, Any]
    lender: Any = None


@pytest.fixture(scope="module")
def grid() -> Iterator[Any]:
    """Two clusters, on one of which pilots isolate programs."""
    with tempfile.TemporaryDirectory(prefix="kl", dir="/var/tmp") as root:
        place = Path(root)
        short = {"batch": "local", "connect": "local:", "poll": "200ms", "max_age": "1m", "slots": 8}
        clusters = {
            "delft": short | {"shared": str(place / "delft")},
            "leiden": short | {"shared": str(place / "leiden"), "isolation": {"method": "auto"}},
        }
        koala = live.Koala(place, clusters)
        assert koala("up").status == 0
        yield koala
        koala.stop()


def pilot_on(koala: Any, cluster: str) -> str:
    answer = koala("pilots", "open", cluster, "-n", 3, "--walltime", "30m", "--shared", "--json")
    assert answer.status == 0, answer
    return str(answer.document["pilot"]["name"])


@pytest.fixture(scope="module")
def pilot(grid: Any) -> str:
    return pilot_on(grid, "delft")


@pytest.fixture(scope="module")
def isolated_pilot(grid: Any) -> str:
    return pilot_on(grid, "leiden")


def linked(isolation: str) -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="kl", dir="/var/tmp") as root:
        pair = Pair(Path(root), isolation=isolation)
        try:
            pair.link()
            yield pair
        finally:
            pair.stop()


@pytest.fixture(scope="module")
def isolated_pair() -> Iterator[Pair]:
    yield from linked("auto")


@pytest.fixture(scope="module")
def open_pair() -> Iterator[Pair]:
    yield from linked("none")


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    if request.param in (ISOLATED_LEASE, OPEN_LEASE):
        pair = request.getfixturevalue(f"{request.param.split()[0]}_pair")
        pair.delft.until(lambda: not leases(pair.delft))  # of the cell before
        return Place(pair.delft, {"processors": 3}, pair.lyon)
    koala = request.getfixturevalue("grid")
    fixture = request.param.replace(" ", "_")
    cluster = "delft" if request.param == OWN else request.getfixturevalue(fixture)
    return Place(koala, {"processors": 1, "cluster": cluster})


def cells() -> list[Any]:
    found = []
    for kind in KINDS:
        for name in PLACES:
            marks = [pytest.mark.slow] if name == OPEN_LEASE or kind in SLOW else []
            marks += [pytest.mark.skipif(not MPI, reason="there is no mpirun here")] if kind == "MPI" else []
            found.append(pytest.param(kind, name, id=f"{kind} on {name}", marks=marks))
    return found


SLOW = ("plain", "range", "flow stage", "whole node", "requirements", "GPU by number")


@pytest.mark.parametrize(("kind", "place"), cells(), indirect=["place"])
def test_a_kind_of_job_runs_at_a_place_or_is_refused_there_at_once(
    kind: str, place: Place, request: pytest.FixtureRequest
) -> None:
    koala, where = place.koala, request.node.callspec.id.rpartition(" on ")[2]
    expected = KINDS[kind].outcomes[where]
    job = submitted(koala, kind, place)
    if expected == RUNS:
        ended = koala.end(job)
        assert ended["state"] == "done", (ended, koala("logs", job))
        ran_on = {each["cluster"] for each in ended["components"]}
        assert (
            ran_on == {place.component["cluster"]} if place.lender is None else all("lyon~" in each for each in ran_on)
        )
    elif place.lender is None or expected == KEPT:
        ended = koala.end(job)
        assert ended["state"] == "failed"
        assert expected in str(ended["reason"])
        assert ended["submission_failures"] == 0
        if where != OWN:  # its batch system refuses it
            assert not any(each["attempt"] for each in ended["components"]), "it was refused before a claim"
    else:
        koala.until(lambda: expected in koala("explain", job).out)
        found = koala.job(job)
        assert (found["state"], found["submission_failures"]) == ("waiting", 0)
        assert leases(koala) == [], "no pilot was ever opened for it"
        assert koala("cancel", job).status == 0
        koala.end(job)


def submitted(koala: Any, kind: str, place: Place) -> int:
    program = koala.work / "program"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    written = {key: value.format(work=koala.work) if isinstance(value, str) else value
               for key, value in KINDS[kind].component.items()}  # fmt: skip
    component = {**live.sh("exit 0", walltime="2m"), **place.component, **written}
    if kind != "flow stage":
        return int(koala.submit(component, **KINDS[kind].job))
    first, last = (
        {"name": "first", "components": [component]},
        {"name": "last", "after": ["first"], "components": [deepcopy(component)]},
    )
    answer = koala("submit", koala.write("flow.yaml", {"jobs": [first, last]}), "--json")
    assert answer.status == 0, answer
    return int([each for each in koala.ids() if koala.job(each)["name"] == "last"][-1])
