"""Who is at the other end of a Unix socket: the kernel's word, not the peer's."""

import os
import socket
import struct

_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


def user_of(connection: socket.socket) -> int:
    """The uid of whoever connected, or of whoever began to listen (SO_PEERCRED, unix(7))."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(data)[1])


def is_trusted(uid: int) -> bool:
    """Whether nothing can be kept from this user: it is we, or root."""
    return uid in (os.getuid(), 0)
