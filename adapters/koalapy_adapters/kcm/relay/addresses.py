"""This machine's own addresses and networks, a socket on all of them, and which others the relay answers."""

import ctypes
import fcntl
import ipaddress
import os
import socket
import struct
from typing import Any, List, NamedTuple, Sequence, Union

_SIOCGIFCONF, _SIOCGIFNETMASK = 0x8912, 0x891B
_ENTRY = 40  # bytes of struct ifreq where pointers have 8
_ROOM = _ENTRY * 256
_INTERFACES = "/sys/class/net"
_PRIVATE = (
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
    "fc00::/7", "fe80::/10", "::1/128",
)  # fmt: skip

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]


class Addresses(NamedTuple):
    """Where wrappers may try the relay: `first` all at once, then `last`, if none of them is it.

    `last`: of bridges to virtual machines and containers of this host. The same address may be another host's own.
    """

    first: List[str]
    last: List[str]


class Own(NamedTuple):
    """One address of this machine."""

    address: str
    interface: str
    network: str = ""  # that it is in; "" where that is not known


class Networks:
    """Networks whose connections the relay answers. `wanted`: the grid file's `relay_network`, or empty."""

    def __init__(self, wanted: Sequence[str]) -> None:
        own = [each.network or each.address for each in own_addresses()]
        self._networks = [_network(text) for text in (wanted or [*_PRIVATE, *own])]

    def answers(self, address: str) -> bool:
        """Return whether a connection from this address is answered."""
        try:
            return any(_contains(network, _parsed(address)) for network in self._networks)
        except ValueError:
            return False


def addresses(wanted: Sequence[str] = (), loopback: bool = False) -> Addresses:
    """IPv4 and IPv6 addresses that others may reach, so no link-local ones; with `loopback` 127.0.0.1 comes last.

    Only those in one of the networks `wanted`, if there are any.
    """
    found = [each for each in own_addresses() if _is_reachable(each.address)]
    if not found:
        found = [Own(address, "") for address in _by_name() if _is_reachable(address)]
    if wanted:
        networks = Networks(wanted)
        found = [each for each in found if networks.answers(each.address)]
    bridges = [each.address for each in found if is_private_bridge(each.interface)]
    others = [each.address for each in found if each.address not in bridges]
    return Addresses(_unique(others) + (["127.0.0.1"] if loopback else []), _unique(bridges))


def own_addresses() -> List[Own]:
    """Every address of every interface."""
    return _ipv4() + _ipv6()


def is_private_bridge(interface: str) -> bool:
    """Return whether the interface is a bridge that no network card is part of, as docker0 and virbr0 are."""
    base = os.path.join(_INTERFACES, interface)
    if not interface or not os.path.isdir(os.path.join(base, "bridge")):
        return False
    try:
        ports = os.listdir(os.path.join(base, "brif"))
    except OSError:
        ports = []
    return not any(os.path.exists(os.path.join(_INTERFACES, port, "device")) for port in ports)


def listening_socket() -> socket.socket:
    """On a free port of every address, IPv6 too where the machine has it. Raises OSError."""
    try:
        both = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    except OSError:
        return _bound(socket.socket(socket.AF_INET, socket.SOCK_STREAM), "0.0.0.0")
    try:
        both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        return _bound(both, "::")
    except OSError:
        both.close()
        return _bound(socket.socket(socket.AF_INET, socket.SOCK_STREAM), "0.0.0.0")


def _bound(listener: socket.socket, address: str) -> socket.socket:
    try:
        listener.bind((address, 0))
        listener.listen(128)
        listener.setblocking(False)
        return listener
    except OSError:
        listener.close()
        raise


def _unique(found: List[str]) -> List[str]:
    return [address for place, address in enumerate(found) if address not in found[:place]]


def _network(text: str) -> Network:
    return ipaddress.ip_network(text, strict=False)


def _parsed(address: str) -> Any:
    """A socket for both families has IPv4 addresses as ::ffff:10.0.0.1."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return mapped or parsed


def _contains(network: Network, address: Any) -> bool:
    return network.version == address.version and address in network


def _ipv4() -> List[Own]:
    """By netdevice(7)'s SIOCGIFCONF, which names every address of every interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            room = bytearray(_ROOM)
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFCONF, struct.pack("iP", _ROOM, _address_of(room)))
        except OSError:
            return []
        length = struct.unpack("iP", answer)[0]
        return [_own(probe, bytes(room[at : at + _ENTRY])) for at in range(0, length, _ENTRY)]


def _own(probe: socket.socket, entry: bytes) -> Own:
    address = socket.inet_ntoa(entry[20:24])
    interface = os.fsdecode(entry[:16].split(b"\0")[0])
    try:
        mask = socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFNETMASK, entry)[20:24])
        network = str(_network("%s/%s" % (address, mask)))
    except (OSError, ValueError):
        network = ""
    return Own(address, interface.partition(":")[0], network)


def _address_of(room: bytearray) -> int:
    """Where the bytes lie, for a call that writes to them."""
    return ctypes.addressof(ctypes.c_char.from_buffer(room))


def _ipv6() -> List[Own]:
    """A line of /proc/net/if_inet6: address, interface's number, prefix length, scope, flags, interface."""
    try:
        with open("/proc/net/if_inet6") as file:
            words = [line.split() for line in file if line.strip()]
        found = [(str(ipaddress.IPv6Address(int(each[0], 16))), int(each[2], 16), each[5]) for each in words]
        return [Own(address, name, str(_network("%s/%d" % (address, bits)))) for address, bits, name in found]
    except (OSError, ValueError, IndexError):
        return []


def _by_name() -> List[str]:
    try:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None)]
    except OSError:
        return []


def _is_reachable(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return not (parsed.is_loopback or parsed.is_link_local or parsed.is_unspecified)
