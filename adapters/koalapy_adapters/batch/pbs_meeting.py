"""The connection of the two ends of a bridge, which trust each other by the token of a file in the attempt's directory.

The token is never sent. Each end proves to the other that it knows the token, over nonces of both:

    far to near    the number of its node, its nonce
    near to far    its nonce, its proof
    far to near    its proof
    near to far    +
"""

import os
import socket
import time
from typing import List, NamedTuple, Optional, Tuple

from koalapy_adapters import proofs

SHOWS_S = 60.0  # what one node wrote shows late on another's network file system
_ANSWERS_S = 5.0
_AGAIN_S = 0.25
_TOKEN_BYTES = 16
_NUMBER, _NONCE, _PROOF = 6, 32, 64  # characters
_NEAR, _FAR = "near", "far"
_TAKEN = "+"


class Meeting(NamedTuple):
    """The token, and the port at which the first node of the job listens.

    `addresses` are all names and addresses that the node may have for the others.
    """

    token: str
    port: int
    addresses: List[str]


class Unmet(Exception):
    """The other end cannot be reached; the message gives the cause."""


# ---- the first node --------------------------------------------------------------------------------------------------


def listen() -> socket.socket:
    """A listening socket on every address of this node, at any free port. Raises OSError if there is none."""
    try:
        listener = socket.socket(socket.AF_INET6)
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::", 0))
    except OSError:  # a node without IPv6
        listener = socket.socket(socket.AF_INET)
        listener.bind(("0.0.0.0", 0))
    listener.listen(128)
    return listener


def arrange(listener: socket.socket) -> Meeting:
    return Meeting(os.urandom(_TOKEN_BYTES).hex(), listener.getsockname()[1], _own_addresses())


def write(path: str, meeting: Meeting) -> None:
    """Write the file for this user alone. Its last line is ended, so that a part of a line is recognised. Raises
    OSError.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write("\n".join([meeting.token, str(meeting.port), *meeting.addresses]) + "\n")


def admit(connection: socket.socket, token: str) -> Optional[int]:
    """The number of the node that proves to know the token. For anyone else, close the connection and return None."""
    try:
        number = _known(connection, token, time.monotonic() + _ANSWERS_S)
        if number is not None:
            connection.sendall(_TAKEN.encode())
            _prepare(connection)
            return number
    except OSError:
        pass
    connection.close()
    return None


def _known(connection: socket.socket, token: str, deadline: float) -> Optional[int]:
    """The number of the other end's node; None if that end does not know the token. Raises OSError.

    An end that does not know the token learns only a proof that is of no use elsewhere.
    """
    received = _received(connection, _NUMBER + _NONCE, deadline)
    number, theirs, ours = received[:_NUMBER], received[_NUMBER:], _nonce()
    if len(theirs) < _NONCE or not number.isdecimal():
        return None
    connection.sendall((ours + _proof(token, _NEAR, number, theirs, ours)).encode())
    shown = _received(connection, _PROOF, deadline)
    return int(number) if proofs.same(shown, _proof(token, _FAR, number, theirs, ours).encode()) else None


def _own_addresses() -> List[str]:
    name = os.uname().nodename
    try:
        found = [str(info[4][0]) for info in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)]
    except OSError:
        found = []
    return [name, *(each for each in found if not each.startswith(("127.", "::1", "fe80:")))]


# ---- any other node --------------------------------------------------------------------------------------------------


def read(path: str) -> Meeting:
    """The meeting in this file. Raises Unmet if the file does not appear within SHOWS_S."""
    deadline = time.monotonic() + SHOWS_S
    while True:
        try:
            with open(path) as file:
                lines = file.read().split("\n")
            if len(lines) > 3:
                return Meeting(lines[0], int(lines[1]), lines[2:-1])
        except FileNotFoundError:
            pass
        if time.monotonic() >= deadline:
            raise Unmet("%s does not show on %s." % (path, os.uname().nodename))
        time.sleep(_AGAIN_S)


def connect(meeting: Meeting, number: int) -> socket.socket:
    """A connection as the node of this number, to the first address where both ends know the token.

    Raises Unmet if there is no such address.
    """
    for address in meeting.addresses:
        near = _reached((address, meeting.port))
        if near is None:
            continue
        try:
            if _is_taken(near, meeting.token, "%0*d" % (_NUMBER, number)):
                _prepare(near)
                return near
        except OSError:
            pass
        near.close()
    where = "%s, port %d" % (", ".join(meeting.addresses), meeting.port)
    raise Unmet("node %s cannot connect to %s." % (os.uname().nodename, where))


def _is_taken(near: socket.socket, token: str, number: str) -> bool:
    """Return whether the near end knows the token and accepts this end. Raises OSError."""
    deadline, ours = time.monotonic() + 2 * _ANSWERS_S, _nonce()
    near.sendall((number + ours).encode())
    received = _received(near, _NONCE + _PROOF, deadline)
    theirs, shown = received[:_NONCE], received[_NONCE:]
    if not proofs.same(shown, _proof(token, _NEAR, number, ours, theirs).encode()):
        return False
    near.sendall(_proof(token, _FAR, number, ours, theirs).encode())
    return _received(near, len(_TAKEN), deadline) == _TAKEN


def _reached(address: Tuple[str, int]) -> Optional[socket.socket]:
    try:
        return socket.create_connection(address, 2 * _ANSWERS_S)
    except OSError:
        return None


# ---- both ------------------------------------------------------------------------------------------------------------


def _nonce() -> str:
    return os.urandom(_NONCE // 2).hex()


def _proof(token: str, whose: str, number: str, of_far: str, of_near: str) -> str:
    return proofs.proof(token.encode(), whose, number, of_far, of_near)


def _received(connection: socket.socket, amount: int, deadline: float) -> str:
    """Return `amount` characters, or fewer if the connection ends. Raises OSError, also if they come too slowly."""
    data = b""
    while len(data) < amount:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        more = connection.recv(amount - len(data))
        if not more:
            break
        data += more
    return data.decode("latin-1")


def _prepare(connection: socket.socket) -> None:
    """Make the connection blocking and undelayed, and let it detect that the other node is dead."""
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 6)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 180000)  # milliseconds
