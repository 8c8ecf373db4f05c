"""Bytes through a program that sends back what it gets, while a test cuts the connection."""

import hashlib
import socket
import threading


class Echoed:
    """Sends pieces of so many bytes without a pause, by a thread of its own, and compares what comes back."""

    def __init__(self, plug: socket.socket, size: int) -> None:
        self._plug, self._size = plug, size
        self._sent, self._got, self._over = hashlib.sha256(), hashlib.sha256(), threading.Event()
        self._sending = threading.Thread(target=self._send)
        self._sending.start()

    def receive(self) -> None:
        """Wait for some of it."""
        self._got.update(self._plug.recv(1 << 16))

    def comes_back_whole(self) -> bool:
        """Cease to send, and return whether all came back, in order and once."""
        self._over.set()
        while data := self._plug.recv(1 << 16):
            self._got.update(data)
        self._sending.join()
        return self._got.digest() == self._sent.digest()

    def _send(self) -> None:
        number = 0
        while not self._over.wait(0.01):
            number += 1
            digest = hashlib.sha256(b"%d" % number).digest()
            data = digest * (self._size // len(digest))
            self._sent.update(data)
            self._plug.sendall(data)
        self._plug.shutdown(socket.SHUT_WR)
