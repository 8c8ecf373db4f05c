"""The sites of the test grid: a job that is too large for its own cluster runs on another person's real nodes."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from koalapy import Grid
from koalapy.model.errors import RequestError
from koalapy.testgrid import Running, sites
from koalapy.testgrid.sites import SITES, Site

NORTH, SOUTH = (next(each for each in SITES if each.name == name) for name in ("north", "south"))
OF_SOUTH = 16  # processors of its only cluster


@pytest.fixture
def linked(testgrid: Running) -> Iterator[Running]:
    sites.up()
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
    linked.eventually(lambda: not leases(SOUTH) and not leases(NORTH), "the lease is over")
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
