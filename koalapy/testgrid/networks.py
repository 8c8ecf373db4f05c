"""Chooses addresses for the test grid's networks that are not used on this machine."""

import ipaddress
from collections.abc import Iterable, Iterator
from pathlib import Path

import docker
from docker.errors import NotFound

from koalapy.testgrid import layout
from koalapy.testgrid.layout import ContainersError

Subnet = ipaddress.IPv4Network


def prefixes(client: docker.DockerClient) -> dict[str, str]:
    """Return the first three numbers of each network's addresses: the present ones, else free ones."""
    existing = {network: _subnet(client, layout.network_name(network)) for network in layout.NETWORKS}
    free = choose(_used(client))
    return {name: _prefix(subnet or next(free)) for name, subnet in existing.items()}


def choose(used: Iterable[Subnet]) -> Iterator[Subnet]:
    """Yield free subnets of 256 addresses, from rarely used parts of the private ranges.

    Raises ContainersError if there are too few.
    """
    taken = list(used)
    for candidate in _candidates():
        if not any(candidate.overlaps(other) for other in taken):
            yield candidate
    raise ContainersError(
        "no_addresses",
        "No private address range is free for the test grid's networks.",
        "Remove unused ones with 'docker network prune'.",
    )


def routes(table: str) -> list[Subnet]:
    """Return the destinations in the text of /proc/net/route, without the default route."""
    lines = [line.split() for line in table.splitlines()[1:]]
    pairs = [(_address(fields[1]), _address(fields[7])) for fields in lines if len(fields) > 7]
    return [Subnet(f"{address}/{mask}") for address, mask in pairs if int(mask) != 0]


def _candidates() -> Iterator[Subnet]:
    for block in ("10.213.0.0/16", "172.30.0.0/16", "192.168.192.0/20"):
        subnets = Subnet(block).subnets(new_prefix=24)
        next(subnets)
        yield from subnets


def _used(client: docker.DockerClient) -> Iterator[Subnet]:
    for network in client.networks.list():
        for config in network.attrs["IPAM"]["Config"] or []:
            subnet = ipaddress.ip_network(config["Subnet"])
            if isinstance(subnet, Subnet):
                yield subnet
    table = Path("/proc/net/route")
    if table.exists():
        yield from routes(table.read_text())


def _subnet(client: docker.DockerClient, name: str) -> Subnet | None:
    try:
        return Subnet(client.networks.get(name).attrs["IPAM"]["Config"][0]["Subnet"])
    except NotFound:
        return None


def _prefix(subnet: Subnet) -> str:
    return str(subnet.network_address).rpartition(".")[0]


def _address(little_endian_hex: str) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(bytes.fromhex(little_endian_hex)[::-1])
