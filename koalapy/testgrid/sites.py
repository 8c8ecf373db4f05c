"""The sites of the test grid: koalads of four people, linked with each other, of whom three have a cluster each.

Each has a grid and a key pair of its own, and an account on its own cluster only. A hub without clusters is the parent
of the three, and two of them are siblings too. All is done by `koala` itself, as the four people would do it.
"""

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from koalapy.common.locations import Locations
from koalapy.testgrid import layout, ready, repair, state
from koalapy.testgrid.containers import Containers
from koalapy.testgrid.layout import ContainersError
from koalapy.testgrid.lifecycle import Report

_FIRST_UID = 2010  # of the people of the sites; koala and wombat come before
_CALL_S = 120.0


@dataclass(frozen=True, slots=True)
class Site:
    """A site. `cluster`: the only one that its person has an account on; None for the hub.

    `neighbours`: what each of them is to this site. A link is in the list of the one that invites.
    """

    name: str
    cluster: str | None
    neighbours: Mapping[str, str]

    @property
    def grid(self) -> str:
        """The name of its grid, by which `koala --grid` finds its koalad."""
        return f"{layout.NAME}-{self.name}"

    @property
    def grid_file(self) -> Path:
        return _directory() / f"{self.name}.yaml"


SITES = (
    Site("hub", None, {"north": "child", "south": "child", "west": "child"}),
    Site("north", "alpha", {"south": "sibling"}),
    Site("south", "beta", {}),
    Site("west", "gamma", {}),
)


def up(report: Report = lambda _: None) -> tuple[Site, ...]:
    """Give each person an account, start the koalads, and link them. The test grid must be up.

    Sites that are up already keep running. Raises ContainersError.
    """
    containers = Containers()
    with state.reserved("sites"):
        report("Making an account for each site…")
        repair.on_each(
            [site.cluster for site in SITES if site.cluster is not None],
            lambda cluster: _make_account(containers, cluster),
        )
        report("Starting the koalads of the sites…")
        for site in SITES:
            if not site.grid_file.exists():
                _write_grid_file(containers, site)
            if not _certificate(site).exists():
                _koala(site, "sites", "init")
            _koala(site, "up")
        report("Linking the sites…")
        for site in SITES:
            _link(site)
    return SITES


def down() -> None:
    """End the koalads of the sites, cancel what their people have in the queues, and remove their files.

    Anything may be missing already. Raises ContainersError.
    """
    containers = Containers()
    with state.reserved("sites"):
        for site in SITES:
            if site.grid_file.exists():
                _koala(site, "down", accepted="not_reachable")
                shutil.rmtree(Locations.of(str(site.grid_file)).state, ignore_errors=True)
        running = [host for host, each in containers.all().items() if each.status == "running"]
        for hosts in (layout.HEADS, set(running) - set(layout.HEADS)):  # a head cancels what runs on the nodes
            repair.on_each(set(hosts) & set(running), lambda host: _remove_account(containers, host))
        shutil.rmtree(_directory())


def neighbours(site: Site) -> list[dict[str, Any]]:
    """Return what `koala sites` reports of each neighbour. Raises ContainersError."""
    found: list[dict[str, Any]] = _koala(site, "sites")["neighbours"]
    return found


# ---- the people and their accounts


def _of_cluster(cluster: str) -> Site:
    return next(site for site in SITES if site.cluster == cluster)


def _hosts(cluster: str) -> list[str]:
    (found,) = (each for each in layout.CLUSTERS if each.name == cluster)
    return [cluster, *found.nodes]


def _make_account(containers: Containers, cluster: str) -> None:
    site = _of_cluster(cluster)
    for host in _hosts(cluster):
        containers.check(host, ["bash", "-euc", _MAKE_ACCOUNT, site.name, str(_FIRST_UID + SITES.index(site))])
    ready.exchange_keys_with(containers, cluster, state.public_key(_identity(site)))


_MAKE_ACCOUNT = """
    id -u "$0" >/dev/null 2>&1 || useradd --no-create-home --uid "$1" --shell /bin/bash "$0"
    for place in /home /shared; do
        [ ! -d "$place" ] || install -d -o "$0" -g "$0" -m 0700 "$place/$0"
    done"""


def _remove_account(containers: Containers, host: str) -> None:
    for site in SITES:
        if site.cluster is not None and host in _hosts(site.cluster):
            (cluster,) = (each for each in layout.CLUSTERS if each.name == site.cluster)
            cancel = _CANCEL[cluster.batch] if host == site.cluster else "true"
            containers.check(host, ["bash", "-lc", _REMOVE_ACCOUNT, site.name, cancel])


_CANCEL = {"slurm": "scancel --user", "sge": "qdel -u"}
_REMOVE_ACCOUNT = """
    id -u "$0" >/dev/null 2>&1 || exit 0
    $1 "$0"
    while pkill -KILL -u "$0"; do sleep 0.1; done
    rm -rf "/home/$0" "/shared/$0"
    userdel "$0"
"""


# ---- the files of a site on this machine


def _directory() -> Path:
    made = state.directory() / "sites"
    made.mkdir(exist_ok=True, mode=0o700)
    return made


def _certificate(site: Site) -> Path:
    return _directory() / f"{site.name}.pem"


def _identity(site: Site) -> Path:
    return _directory() / f"{site.name}-id_ed25519"


def _write_grid_file(containers: Containers, site: Site) -> None:
    described: dict[str, Any] = {
        "name": site.name,
        "listen": f"127.0.0.1:{_free_port()}",
        "certificate": str(_certificate(site)),
        "borrow": {"after": "5s"},
    }
    clusters: dict[str, Any] = {}
    if site.cluster is not None:
        others = [each.name for each in SITES if each is not site]
        described["lend"] = {"to": others, "processors": 24}
        (cluster,) = (each for each in layout.CLUSTERS if each.name == site.cluster)
        address = containers.address(cluster.name)
        clusters[cluster.name] = state.grid_entry(cluster, address, site.name, _identity(site))
    document = {"grid": site.grid, "clusters": clusters, "site": described}
    state.write(site.grid_file, yaml.safe_dump(document, sort_keys=False).encode(), 0o600)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


# ---- koala, as each of the people runs it


def _link(site: Site) -> None:
    """Link the site with the neighbours that it invites, unless they are linked."""
    known = {each["name"] for each in neighbours(site)}
    for name, relation in site.neighbours.items():
        (other,) = (each for each in SITES if each.name == name)
        if name in known and site.name in {each["name"] for each in neighbours(other)}:
            continue
        address = "https://" + yaml.safe_load(site.grid_file.read_text())["site"]["listen"]
        line = _koala(site, "sites", "invite", name, "--relation", relation, "--address", address)
        answer = _koala(other, "sites", "join", line["invitation"]["line"], "--replace")
        _koala(site, "sites", "join", answer["invitation"]["line"], "--replace")


def _koala(site: Site, *arguments: str, accepted: str = "") -> dict[str, Any]:
    """Return the JSON document of a command. Raises ContainersError if it fails, but for one error."""
    command = [sys.executable, "-m", "koalapy.cli.main", *arguments, "--grid", str(site.grid_file), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_CALL_S, check=False)
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    if done.returncode != 0 and (not accepted or found.get("error", {}).get("code") != accepted):
        message = f"`koala {' '.join(arguments[:2])}` of the site {site.name} failed: {done.stderr.strip()}"
        raise ContainersError("site_failed", message, "Run 'koala testgrid sites down', and then 'up' again.")
    return found
