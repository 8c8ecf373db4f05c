"""The sites of the test grid as the people of a row of faults use them: terms, jobs, leases, and what is left."""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from _faults.koalad import SETTINGS
from _faults.lease_evidence import VISIBLE, Evidence, program
from koalapy import Grid
from koalapy.client.daemon import wait_for_end
from koalapy.model.errors import KoalaError
from koalapy.testgrid import Running, layout, repair, sites
from koalapy.testgrid.sites import Site

PROCESSORS = 4  # of a lease: a whole node
BETWEEN = "hub"  # the site that the others have as their parent; it has no cluster
Document = dict[str, Any]


class Person:
    """One of the people of the sites, with a koalad that may be killed and started again."""

    def __init__(self, site: Site) -> None:
        self.site, self.name = site, site.name
        self.grid = Grid(site.grid_file)

    @property
    def port(self) -> int:
        """The port on which the site listens."""
        found = self.grid.sites()["site"]["port"]
        assert found is not None
        return found

    def kill(self) -> None:
        """Kill koalad with `kill -9`; it has ended when this returns."""
        pid = int(self.grid.status()["pid"])
        os.kill(pid, signal.SIGKILL)
        assert wait_for_end(pid, 10)

    def use(self, **section: Any) -> None:
        """Put terms in place of those of the grid file; with None there are none."""
        document = yaml.safe_load(self.site.grid_file.read_text()) | SETTINGS
        document["site"] |= section
        document["site"] = {key: value for key, value in document["site"].items() if value is not None}
        self.site.grid_file.write_text(yaml.safe_dump(document, sort_keys=False))
        self.grid.reload()

    def leases(self, direction: str) -> list[Document]:
        return [dict(each) for each in self.grid.leases()["leases"] if each["direction"] == direction]

    def usage(self, neighbour: str, key: str) -> float:
        """Return the processor seconds of all ended leases from or for a neighbour. `key`: as in the answer."""
        rows: list[Any] = [each for each in self.grid.leases()["usage"] if each["neighbour"] == neighbour]
        return float(rows[0][key]) if rows else 0.0

    def is_connected(self) -> bool:
        return all(each["state"] == "connected" for each in self.grid.sites()["neighbours"])


@dataclass(slots=True)
class LeaseScene:
    """A borrower, the lenders, and the jobs of a round, one on each lease."""

    testgrid: Running
    people: dict[str, Person]
    evidence: Evidence
    borrower: Person
    at_a_time: Mapping[str, int]  # the leases of each lender
    between: Person | None
    jobs: list[int] = field(default_factory=list)
    pilots: list["Pilot"] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)  # that are struck, where some are

    @property
    def lenders(self) -> list[Person]:
        return [self.people[name] for name in self.at_a_time]

    @property
    def involved(self) -> list[Person]:
        return [self.borrower, *self.lenders, *([self.between] if self.between else [])]

    def agree(self, lost_after: str) -> None:
        """Let the lenders lend to this borrower only, and nobody else borrow."""
        terms: Document = {"visible": [VISIBLE], "lost_after": lost_after}
        for person in self.people.values():
            lend, borrow = None, None
            if person is self.borrower:
                borrow = {"after": "0s", "idle": "3s", "again": "2s"}
            elif person in self.lenders:
                to = [(self.between or self.borrower).name]
                lent = self.at_a_time[person.name] * PROCESSORS
                lend = terms | {"to": to, "processors": lent, "strangers": self.between is not None}
            elif person is self.between:
                whole = sum(self.at_a_time.values()) * PROCESSORS
                lend = terms | {"to": [self.borrower.name], "processors": whole, "pass_on": True}
            person.use(lend=lend, borrow=borrow)
            if person.site.cluster is not None:
                change = person.grid.drain_cluster if person is self.borrower else person.grid.resume_cluster
                change(person.site.cluster)

    def begin(self, seconds: float) -> None:
        """Wait until the processors can be had, and run one job on each lease."""
        self.until(self._is_ready, "the borrower knows of processors to be had")
        self.evidence.hold()
        with tempfile.TemporaryDirectory(prefix="koala-faults-") as place:
            for _ in range(sum(self.at_a_time.values())):
                work = {"name": "work", "components": [program(PROCESSORS, seconds)]}
                self.jobs.append(self.borrower.grid.submit(work, directory=Path(place)))
        self.until(self._runs, "each job runs on a lease")
        self.pilots = [pilot for person in self.lenders for pilot in pilots_of(person)]

    def until(self, found: Callable[[], Any], what: str, patience_s: float = 240) -> Any:
        """Return the first true answer. A koalad that was just killed may not answer yet."""
        deadline = time.monotonic() + patience_s
        while True:
            with suppress(KoalaError):
                if answer := found():
                    return answer
            if time.monotonic() > deadline:
                raise AssertionError(f"within {patience_s:.0f} s it did not happen that {what}: {self._known()}")
            time.sleep(0.1)

    def is_connected(self) -> bool:
        return all(person.is_connected() for person in self.involved)

    def is_over(self) -> bool:
        """Return whether no site has a lease any more."""
        return not any(person.grid.leases()["leases"] for person in self.involved)

    def left(self) -> list[str]:
        """Return what is left although no site has a lease."""
        found = [f"{each.name}: pending cancel: {one}" for each in self.involved for one in _pending(each)]
        for person in self.lenders:
            found += [f"{person.name}: queue: {line.strip()}" for line in self._queue(person)]
            found += [f"{person.name}: directory {line}" for line in self._directories(person)]
        users = [person.name for person in self.lenders]
        return found + [f"process at {line}" for line in self.evidence.alive(users)]

    def books(self) -> list[str]:
        """Return where the two sides of a link do not agree about what was lent."""
        chain = [(self.borrower, self.between)] if self.between else []
        found = []
        for debtor, creditor in [*chain, *[(self.between or self.borrower, each) for each in self.lenders]]:
            assert creditor is not None
            borrowed, lent = debtor.usage(creditor.name, "borrowed_s"), creditor.usage(debtor.name, "lent_s")
            if borrowed != lent or not lent:
                found.append(f"{creditor.name} has lent {lent} s to {debtor.name}, which has borrowed {borrowed} s")
        return found

    def _is_ready(self) -> bool:
        wanted = {each.name for each in ([self.between] if self.between else self.lenders)}
        known = {each["name"]: each["free"] or 0 for each in self.borrower.grid.sites()["neighbours"]}
        return all(known[name] >= PROCESSORS for name in wanted) and self.is_connected() and self.is_over()

    def _runs(self) -> bool:
        found = self.borrower.grid.jobs(ids=self.jobs)
        return all(job["state"] == "running" and job["started_at"] for job in found)

    def _queue(self, person: Person) -> list[str]:
        (cluster,) = (each for each in layout.CLUSTERS if each.name == person.site.cluster)
        command = ["squeue", "-h", "-u", person.name] if cluster.batch == "slurm" else ["qstat", "-u", person.name]
        return self.testgrid.check(cluster.name, command, "root").splitlines()

    def _directories(self, person: Person) -> list[str]:
        script = f"find /home/{person.name} /shared/{person.name} -type d -name lease 2>/dev/null; true"
        assert person.site.cluster is not None
        return self.testgrid.containers.check(person.site.cluster, ["bash", "-c", script]).splitlines()

    def _known(self) -> str:
        try:
            shown = [f"{each.name}: {each.grid.leases()['leases']}" for each in self.involved]
            return f"{self.borrower.grid.jobs(ids=self.jobs)} {shown} {self.borrower.grid.sites()['neighbours']}"
        except KoalaError as error:
            return str(error)


@dataclass(frozen=True, slots=True)
class Pilot:
    """The pilot of a lease at its lender."""

    cluster: str
    batch_id: str
    hosts: tuple[str, ...]


def pilots_of(person: Person) -> list[Pilot]:
    """Return the pilots of all leases that this person lends."""
    found = []
    for lease in person.leases("lent"):
        (component,) = person.grid.show(lease["job"])["job"]["components"]
        found.append(Pilot(str(lease["on"]), str(component["batch_id"]), tuple(component["hosts"])))
    return found


@contextmanager
def linked_sites(testgrid: Running) -> Iterator[tuple[dict[str, Person], Evidence]]:
    """The sites of the test grid, up and linked, with recorders on all nodes; in the end nothing of them is left."""
    evidence = Evidence(testgrid.containers, [str(each.cluster) for each in sites.SITES])
    evidence.end()
    sites.up()
    people = {each.name: Person(each) for each in sites.SITES}
    try:
        evidence.begin()
        yield people, evidence
    finally:
        for person in people.values():
            person.grid.close()
        repair.mend(testgrid.containers)
        sites.down()
        evidence.end()


def _pending(person: Person) -> Sequence[Any]:
    return person.grid.status()["pending_cancels"]
