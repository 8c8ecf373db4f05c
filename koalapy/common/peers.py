"""Identify the user at the other end of a Unix socket, by the kernel's information and not by the peer's."""

import os
import socket
import struct

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def user_of(connection: socket.socket) -> int:
    """Return the uid of the process that connected, or that began to listen (SO_PEERCRED, unix(7))."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])


def is_trusted(uid: int) -> bool:
    """Return whether nothing can be kept from this user, who is the present user or root."""
    return uid in (os.getuid(), 0)
