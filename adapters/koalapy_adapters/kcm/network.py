"""This machine's own addresses, and a socket on all of them."""

import ctypes
import fcntl
import ipaddress
import socket
import struct
from typing import List

_SIOCGIFCONF = 0x8912
_ENTRY = 40  # bytes of struct ifreq where pointers have 8
_ROOM = _ENTRY * 256


def addresses(loopback: bool = False) -> List[str]:
    """IPv4 and IPv6 addresses that others may reach, so no link-local ones; with `loopback` 127.0.0.1 comes last."""
    found = [address for address in _ipv4() + _ipv6() if _is_reachable(address)]
    if not found:
        found = [address for address in _by_name() if _is_reachable(address)]
    unique = [address for place, address in enumerate(found) if address not in found[:place]]
    return unique + (["127.0.0.1"] if loopback else [])


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


def _ipv4() -> List[str]:
    """By netdevice(7)'s SIOCGIFCONF, which names every address of every interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            room = bytearray(_ROOM)
            answer = fcntl.ioctl(probe.fileno(), _SIOCGIFCONF, struct.pack("iP", _ROOM, _address_of(room)))
        except OSError:
            return []
    length = struct.unpack("iP", answer)[0]
    return [socket.inet_ntoa(bytes(room[at + 20 : at + 24])) for at in range(0, length, _ENTRY)]


def _address_of(room: bytearray) -> int:
    """Where the bytes lie, for a call that writes to them."""
    return ctypes.addressof(ctypes.c_char.from_buffer(room))


def _ipv6() -> List[str]:
    try:
        with open("/proc/net/if_inet6") as file:
            return [str(ipaddress.IPv6Address(int(line.split()[0], 16))) for line in file if line.strip()]
    except (OSError, ValueError):
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
