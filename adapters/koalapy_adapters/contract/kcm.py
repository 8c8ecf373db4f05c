"""A KCM on a head node, pushed and started over the real connection, and koalad's end of its session."""

import threading

from koalapy_adapters.connections import bootstrap
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.contract.dialogue import Dialogue
from koalapy_adapters.contract.target import Login
from koalapy_adapters.messages import PROTOCOL
from koalapy_adapters.messages.kcm import Done, Measured, Report, Welcome
from koalapy_adapters.messages.koalad import Cancel, Forget, Hello, Ping, Release

_PING_S = 10.0
_FIRST_PING = 1 << 40  # beyond the ids of requests


class Kcm(Dialogue):
    """One session. A thread keeps it alive by pings, whose answers nobody waits for."""

    def __init__(self, login: Login, instance: str) -> None:
        self.instance = instance
        self.errors: list[str] = []  # on standard error
        self._config = login.config
        target = bootstrap.Target(login.config["shared"], login.config["python"])
        self._channel = bootstrap.start(login.connection, packed(), target, self.errors.append)
        self._closing = threading.Event()
        super().__init__(self._channel.read, self._channel.write)
        threading.Thread(target=self._keep_alive, name="pings", daemon=True).start()

    def hello(self, epoch: int = 1, known: list[list[str]] | None = None) -> Welcome:
        """Send a Hello and return the Welcome, which must have no error."""
        self.send(Hello(PROTOCOL, "0", epoch, self.instance, 0, self._config, known or []))
        welcome = self.wait(Welcome)
        assert isinstance(welcome, Welcome), self.errors
        assert welcome.error is None, welcome.error
        return welcome

    def at_barrier(self, tag: str) -> Report:
        """Wait for the report that the attempt is at its barrier."""
        return self.report(tag, "at_barrier")

    def let_go(self, tag: str) -> Report:
        """Release an attempt when it is at its barrier, as a job of this one component.

        Returns its report from there.
        """
        barrier = self.at_barrier(tag)
        hosts = [[0, address, processes] for _, address, processes in barrier.nodes]
        released = self.answer(Release, tag, 0, hosts)
        assert isinstance(released, Done), released
        return barrier

    def played(self, tag: str) -> Report:
        """Release an attempt and return the report of its end."""
        self.let_go(tag)
        return self.report(tag, "ended")

    def text(self, tag: str, where: str = "output", path: str = "") -> str:
        return self.fetch(tag, where, path)[0].decode()

    def measured(self, *tags: str) -> Measured:
        """Return the first measurement in which all of these tags hold processors."""
        found = self.first_message(Measured, lambda message: set(tags) <= set(message.allocated))
        assert isinstance(found, Measured)
        return found

    def clear(self, tag: str) -> None:
        """Cancel an attempt, wait until it is cleaned up, and have its directory removed."""
        self.request(Cancel, tag, force=True)
        self.gone(tag)
        assert isinstance(self.answer(Forget, tag), Done)

    def close(self) -> None:
        self._closing.set()
        self._channel.close()
        self.listener.join()

    def _keep_alive(self) -> None:
        number = _FIRST_PING
        while not self._closing.wait(_PING_S):
            try:
                self.send(Ping(number, 0))
            except (OSError, EOFError):
                return
            number += 1
