"""The sites of the test grid: a job that is too large for its own cluster runs on another person's real nodes."""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import hostile_program
import pytest
import yaml
from _faults.lease_scene import Person, pilots_of
from poisson_job import EXACT, STAGED, difference, poisson
from real_grid import sh

from koalapy import Grid
from koalapy.model.errors import RequestError
from koalapy.testgrid import Running, sites
from koalapy.testgrid.sites import SITES, Site

HUB, NORTH, SOUTH, WEST = SITES
COMMANDS = {  # of the batch system; the number of another lease's batch job is added to a word that is alone
    "alpha": [["squeue", "--noheader"], ["sbatch", "--wrap", "true"], ["scancel"]],
    "gamma": [["qstat", "-u", "*"], ["qsub", "-b", "y", "true"], ["qdel"]],
}
OF_SOUTH = 16  # processors of its only cluster


@pytest.fixture
def linked(testgrid: Running) -> Iterator[Running]:
    sites.up()
    yield testgrid
    sites.down()


@pytest.fixture
def people(linked: Running) -> Iterator[dict[str, Person]]:
    """The people of the sites, by name, with a connection each."""
    found = {each.name: Person(each) for each in SITES}
    yield found
    for person in found.values():
        person.grid.close()


@pytest.fixture
def lending(testgrid: Running) -> Iterator[Running]:
    """`south` takes leases back for local users of beta, ten seconds after the notice."""
    sites.up()
    document = yaml.safe_load(SOUTH.grid_file.read_text())
    document["site"]["lend"] |= {"revoke_for": "local", "grace": "10s"}
    SOUTH.grid_file.write_text(yaml.safe_dump(document, sort_keys=False))
    koala(SOUTH, "reload")
    yield testgrid
    sites.down()


@pytest.fixture
def serving(testgrid: Running) -> Iterator[Running]:
    """`north` runs jobs of `south`."""
    sites.up()
    document = yaml.safe_load(NORTH.grid_file.read_text())
    document["site"]["run"] = {"sites": [SOUTH.name], "processors": 4, "isolation": "none"}
    NORTH.grid_file.write_text(yaml.safe_dump(document, sort_keys=False))
    koala(NORTH, "reload")
    yield testgrid
    sites.down()


def koala(site: Site, *arguments: str) -> str:
    command = [sys.executable, "-m", "koalapy.cli.main", "--grid", str(site.grid_file), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout


def leases(site: Site) -> list[Any]:
    with Grid(site.grid_file) as koalad:
        return list(koalad.leases()["leases"])


def test_a_job_too_large_for_its_cluster_runs_on_nodes_of_a_site_without_an_account_there(linked: Running) -> None:
    status, _ = linked.containers.exec("alpha", ["id", "-u", SOUTH.name])
    assert status != 0, "the borrower has an account at the lender"
    secret = f"/home/{NORTH.name}/secret"
    linked.shell("alpha", f"echo hidden >{secret}; chown {NORTH.name} {secret}", "root")
    script = f"cat {secret} 2>/dev/null; hostname"
    out = koala(SOUTH, "run", "-n", str(OF_SOUTH + 4), "-t", "5m", "--", "sh", "-c", script)
    hosts = Counter(out.split())
    assert sum(hosts.values()) == OF_SOUTH + 4
    assert all(host.startswith("alpha-c") and count <= 4 for host, count in hosts.items())
    (borrowed,), (lent,) = leases(SOUTH), leases(NORTH)
    assert (borrowed["neighbour"], borrowed["processors"]) == ("north", OF_SOUTH + 4)
    assert (lent["neighbour"], lent["on"]) == ("south", "alpha")
    koala(SOUTH, "leases", "end", borrowed["name"])
    linked.eventually(lambda: not leases(SOUTH) and not leases(NORTH), "the lease has ended")
    linked.eventually(lambda: not linked.shell("alpha", "squeue --noheader"), "its batch job has ended")
    linked.eventually(
        lambda: not linked.shell("alpha", "find /home/north/.koala -name lease", "root"), "its directory is removed"
    )
    with Grid(NORTH.grid_file) as north:
        with pytest.raises(RequestError):
            north.end_lease(lent["name"])
        os.kill(north.status()["pid"], signal.SIGKILL)
    sites.down()
    assert linked.containers.exec("alpha", ["id", "-u", NORTH.name]).exit_status != 0


@pytest.mark.slow
def test_a_local_user_takes_the_lenders_cluster_and_the_lease_is_taken_back_and_its_job_ends_elsewhere(
    lending: Running,
) -> None:
    """`north` borrows of `south` since its own cluster is busy with local jobs; then so is that of `south`."""
    busy = "cd /tmp; sbatch --parsable -p batch -N{} --exclusive --wrap 'sleep 600'"
    alpha = lending.shell("alpha", busy.format(len(_nodes(lending, "alpha"))), "wombat").split()[-1]
    program = {"executable": "sh", "arguments": ["-c", "sleep 45; hostname"], "launch": "once"}
    request = {"components": [{"processors": 12, "walltime": "10m", **program}]}
    with Grid(NORTH.grid_file) as north:
        job = north.submit(request)
        lending.eventually(lambda: north.jobs(ids=[job])[0]["state"] == "running", "the job runs on a lease of south")
        (borrowed,) = leases(NORTH)
        assert borrowed["neighbour"] == "south"
        before = north.jobs(ids=[job])[0]["submission_failures"]
        began = time.monotonic()
        nodes = len(_nodes(lending, "beta"))
        beta = lending.shell("beta", busy.format(nodes), "wombat").split()[-1]
        lending.eventually(lambda: not leases(SOUTH), "the lease is taken back")
        print(f"the lease was over {time.monotonic() - began:.1f} s after the local sbatch")
        starts = ["squeue", "-h", "-u", "wombat", "-t", "running", "-o", "%i"]
        lending.eventually(lambda: beta in lending.check("beta", starts, "wombat").split(), "the local job runs")
        print(f"the local job ran {time.monotonic() - began:.1f} s after its sbatch")
        (found,) = north.jobs(ids=[job])
        assert found["completion_failures"] == 0, koala(NORTH, "show", str(job))
        assert found["submission_failures"] == before, koala(NORTH, "show", str(job))
        lending.check("alpha", ["scancel", alpha], "wombat")
        lending.eventually(lambda: north.jobs(ids=[job])[0]["state"] == "done", "it ends on its own cluster")
        assert north.jobs(ids=[job])[0]["components"][0]["cluster"] == "alpha"
    assert set(koala(NORTH, "logs", str(job)).split()) <= set(_nodes(lending, "alpha"))
    lending.check("beta", ["scancel", beta], "wombat")


def test_a_subtree_of_a_flow_is_run_by_another_site_on_its_real_nodes(serving: Running) -> None:
    """`south` has no account on alpha. What waits for the subtree runs at home again, on beta."""
    one: dict[str, Any] = {"processors": 1, "executable": "/bin/hostname", "walltime": "2m"}
    inner = [
        {"name": "mesh", "components": [one]},
        {"name": "model", "after": ["mesh"], "components": [{**one, "processors": 4, "cluster": "alpha"}]},
    ]
    wrong = [{"name": "large", "components": [{**one, "processors": 5}]}]
    flow = [
        {"name": "prepare", "components": [one]},
        {"name": "sub", "site": NORTH.name, "after": ["prepare"], "jobs": inner},
        {"name": "plot", "after": ["sub"], "components": [one]},
        {"name": "refused", "site": NORTH.name, "after": ["prepare"], "jobs": wrong},
        {"name": "never", "after": ["refused"], "components": [one]},
    ]
    with Grid(SOUTH.grid_file) as south, Grid(NORTH.grid_file) as north:
        whole = south.submit({"name": "tree", "jobs": flow})
        (ended,) = south.wait([whole], 300)
        jobs = {each["name"]: each for each in south.flow(whole)}
        assert ended["flow"] == {"jobs": 5, "done": 3, "failed": 2, "cancelled": 0}, koala(SOUTH, "show", str(whole))
        assert {name for name, each in jobs.items() if each["state"] == "failed"} == {"refused", "never"}
        assert "north: It runs components of 4 processors at most, and one has 5." in str(jobs["refused"]["reason"])
        sent = jobs["sub"]["sent"]
        assert sent is not None
        assert (sent["state"], sent["jobs"], sent["done"]) == ("done", 2, 2)
        there = {each["name"]: each for each in north.flow(int(sent["job"] or 0))}
        assert {each["owner"] for each in there.values()} == {f"site:{SOUTH.name}"}
        order = [jobs["prepare"], there["mesh"], there["model"], jobs["plot"]]
    for before, after in itertools.pairwise(order):
        ended_at, started_at = before["components"][0]["ended_at"], after["components"][0]["started_at"]
        assert datetime.fromisoformat(str(ended_at)) <= datetime.fromisoformat(str(started_at)), (before, after)
    ran = {
        "prepare": koala(SOUTH, "logs", str(jobs["prepare"]["id"])).split(),
        "model": koala(NORTH, "logs", str(there["model"]["id"])).split(),
        "plot": koala(SOUTH, "logs", str(jobs["plot"]["id"])).split(),
    }
    assert {name: (len(hosts), {host[:5] for host in hosts}) for name, hosts in ran.items()} == {
        "prepare": (1, {"beta-"}), "model": (4, {"alpha"}), "plot": (1, {"beta-"}),
    }  # fmt: skip


@pytest.mark.slow
def test_the_poisson_job_over_own_and_leased_processors_is_the_single_process_solution(
    linked: Running, people: dict[str, Person], tmp_path: Path
) -> None:
    """`alpha` has 32 processors. The two sides print the same books."""
    north, south = people[NORTH.name], people[SOUTH.name]
    north.use(borrow={"after": "5s", "idle": "5s", "networks": {SOUTH.name: "default"}})

    def free_in_the_south() -> int:
        (free,) = (each["free"] for each in sites.neighbours(NORTH) if each["name"] == SOUTH.name)
        return free or 0

    linked.eventually(lambda: free_in_the_south() >= 8, "south has reported processors")
    components = [poisson(processors, walltime="15m") for processors in (16, 16, 8)]
    job = north.grid.submit({"components": components, **STAGED}, directory=tmp_path)
    (ended,) = north.grid.wait([job], 600)
    assert ended["state"] == "done", koala(NORTH, "show", str(job))
    assert [str(each["cluster"]).partition("~")[0] for each in ended["components"]] == ["alpha", "alpha", "south"]
    assert difference(tmp_path / "result.npy", tmp_path) <= EXACT
    linked.eventually(lambda: not leases(NORTH) and not leases(SOUTH), "the lease has ended")
    for site in (NORTH, SOUTH):
        print(koala(site, "leases", "--all"), koala(site, "usage", "--by", "site"))
    assert north.usage(SOUTH.name, "borrowed_s") == south.usage(NORTH.name, "lent_s") > 0


@pytest.mark.slow
@pytest.mark.parametrize("lender", [NORTH, WEST], ids=["Slurm", "Grid Engine"])
def test_a_hostile_program_is_refused_everything_on_real_nodes_and_nothing_of_it_survives(
    linked: Running, people: dict[str, Person], tmp_path: Path, lender: Site
) -> None:
    """It runs on the node of one lease, while a job runs on that of another one."""
    for name, person in people.items():
        lend = {"to": [HUB.name], "processors": 8} if name == lender.name else None
        borrow = {"after": "0s", "idle": "10m", "again": "2s"} if name == HUB.name else None
        person.use(lend=lend, borrow=borrow)
    hub, owner = people[HUB.name], people[lender.name]
    head, home = str(lender.cluster), f"/home/{lender.name}"
    secret = f"{home}/secret"
    linked.shell(head, f"echo hidden >{secret}; chown {lender.name} {secret}; chmod 600 {secret}", "root")
    other = hub.grid.submit(
        {"components": [sh(4, "echo private >private; exec sleep 600", walltime="12m", launch="once")]}
    )
    linked.eventually(lambda: hub.grid.jobs(ids=[other])[0]["state"] == "running", "a job runs on a lease")
    before = hub.grid.submit({"components": [sh(4, "true", walltime="12m")]})
    assert hub.grid.wait([before], 120)[0]["state"] == "done"
    node, taken = pilots_of(owner)[-1].hosts[0], pilots_of(owner)[0]

    def found(words: str) -> list[str]:
        return linked.shell(head, f"find {home}/.koala {words}", "root").split()

    (private,), relays = found("-name private"), found("-name 'relay.*.json'")
    owned = [home, f"{home}/.ssh", f"{home}/.koala", str(Path(private).parent)]
    pids = [int(pid) for pid in linked.shell(node, f"pgrep -u {lender.name}", "root").split()]
    facts = {
        "secrets": [secret, f"{home}/.ssh/authorized_keys", private, *relays],
        "directories": [*owned, "/home/koala", "/root", "/home", "/run"],
        "writes": [*owned, "/", "/usr", "/etc", "/var", "/dev/pts", "/sys"],
        "pids": pids,
        "batch": [[*words, taken.batch_id] if words[1:] == [] else words for words in COMMANDS[head]],
        "profile": linked.shell(node, "env | cut -d= -f1", lender.name).split(),
    }
    assert len(pids) >= 2
    shutil.copy(hostile_program.__file__, tmp_path / "hostile_program.py")
    script = f"exec python3 hostile_program.py '{json.dumps(facts)}'"
    request = {"components": [sh(4, script, walltime="2m", launch="once")], "stage_in": ["hostile_program.py"]}
    hostile = hub.grid.submit(request, directory=tmp_path)
    (ended,) = hub.grid.wait([hostile], 120)
    assert ended["state"] == "done", koala(HUB, "show", str(hostile))
    assert ended["components"][0]["hosts"] == [node]
    result = json.loads(b"".join(hub.grid.output(hostile)))
    assert len(result) >= 50
    assert {key: value for key, value in result.items() if value[0] != "refused"} == {}
    survivors = f"pgrep -f 'sleep [{hostile_program.OUTLIVES[0]}]{hostile_program.OUTLIVES[1:]}' || true"
    assert linked.shell(node, survivors, "root") == ""
    assert hub.grid.jobs(ids=[other])[0]["state"] == "running"
    hub.grid.cancel(other)
    hub.grid.wait([other], 120)
    for each in leases(HUB):
        koala(HUB, "leases", "end", each["name"], "--force")
    linked.eventually(lambda: not leases(HUB) and not leases(lender), "the leases are over")
    linked.eventually(lambda: not found("-name lease"), "their directories are removed")
    assert linked.shell(node, f"pgrep -u {lender.name} || true", "root") == ""


def _nodes(running: Running, cluster: str) -> list[str]:
    """The names of the nodes of a cluster's queue."""
    return sorted(set(running.shell(cluster, "sinfo -h -p batch -N -o %n").split()))
