"""Notifies a service manager of koalad's state (ready, alive, stopping) by the protocol of sd_notify(3)."""

import contextlib
import os
import socket
import time
from collections.abc import MutableMapping

_BEATS = 4  # in the time after which systemd gives a silent service up


class Notifier:
    """Sends datagrams to the socket that $NOTIFY_SOCKET names; without one it does nothing. Any thread may call it.

    A datagram that cannot be sent is dropped, since the next one has the same content.
    """

    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        """`address`: a path, or @ and a name in the abstract namespace.

        `watchdog_s`: the longest time without a sign of life.
        """
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.beat_s = None if watchdog_s is None else watchdog_s / _BEATS
        self._next_beat = 0.0

    @staticmethod
    def of(environment: MutableMapping[str, str]) -> "Notifier":
        """Return the notifier of an environment.

        Removes its variables, so that no child process uses the socket in koalad's name.
        """
        address = environment.pop("NOTIFY_SOCKET", "")
        microseconds, pid = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        ours = not pid or pid == str(os.getpid())
        watched = bool(address) and ours and microseconds.isdecimal() and int(microseconds) > 0
        return Notifier(address, int(microseconds) / 1e6 if watched else None)

    def ready(self, status: str) -> None:
        """Report that koalad is ready. `status`: one line for `systemctl status`."""
        self._send(f"READY=1\nSTATUS={status}\nMAINPID={os.getpid()}")

    def status(self, status: str) -> None:
        self._send(f"STATUS={status}")

    def alive(self) -> None:
        """Feed the watchdog. A call within half a beat of the last datagram sends nothing."""
        now = time.monotonic()
        if self.beat_s is not None and now >= self._next_beat:
            self._next_beat = now + self.beat_s / 2
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.setblocking(False)
            out.sendto(message.encode(), self._address)
