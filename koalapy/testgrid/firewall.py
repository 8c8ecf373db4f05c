"""A firewall between hosts of the test grid.

The rules are set from this machine in the hosts' own network namespaces, by nsenter(1) and iptables(8), as root.
"""

import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from koalapy.testgrid import layout
from koalapy.testgrid.containers import Containers
from koalapy.testgrid.layout import ContainersError

KOALAD = "koalad"  # this machine, as the head nodes name it
How = Literal["DROP", "REJECT"]
_VERDICTS: dict[How, list[str]] = {
    "DROP": ["-j", "DROP"],
    "REJECT": ["-p", "tcp", "-j", "REJECT", "--reject-with", "tcp-reset"],
}


def block(containers: Containers, host: str, peers: Iterable[str], how: How) -> None:
    """Block all traffic between the host and its peers in both directions: drop it, or reset TCP.

    Existing connections are affected too. The test grid's `reset` removes the block.
    """
    _note(host)
    for address in _addresses(containers, host, peers):
        _iptables(containers, host, "-I", "INPUT", "-s", address, *_VERDICTS[how])
        _iptables(containers, host, "-I", "OUTPUT", "-d", address, *_VERDICTS[how])


def open_all(containers: Containers) -> bool:
    """Remove all blocks, also those of a process that has ended. Return whether there were any."""
    blocked = _noted()
    found = containers.all()
    for host in blocked:
        if host in found and found[host].status == "running":  # a restarted container has no rules
            _iptables(containers, host, "-F")
    _noting().unlink(missing_ok=True)
    return bool(blocked)


def _addresses(containers: Containers, host: str, peers: Iterable[str]) -> Iterator[str]:
    """Yield the peers' addresses in the networks that they share with the host."""
    for peer in peers:
        if peer == KOALAD:
            yield containers.gateway("access")
            continue
        for network in layout.networks_of(host).keys() & layout.networks_of(peer):
            yield containers.expected_address(peer, network)


def _iptables(containers: Containers, host: str, *words: str) -> None:
    pid = str(containers.all()[host].attrs["State"]["Pid"])
    argv = ["nsenter", "-t", pid, "-n", "iptables", "-w", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ContainersError(
            "no_firewall",
            f"The firewall of {host} cannot be changed: {done.stderr.strip()}",
            "It takes root, iptables and nsenter, on the machine of the engine.",
        )


def _noted() -> list[str]:
    try:
        return sorted(set(_noting().read_text().split()))
    except FileNotFoundError:
        return []


def _note(host: str) -> None:
    """Record the host before its rules are set, so that a later process can remove them."""
    with _noting().open("a") as file:
        file.write(f"{host}\n")


def _noting() -> Path:
    """Return the file of blocked hosts. It is lost with the rules when the machine restarts."""
    return Path("/run") / f"{layout.PROJECT}-blocked"
