"""The relay of a simulated KCM whose cluster has `relay: files`: the real directory's rounds, over simulated files."""

from collections.abc import Callable
from random import Random
from typing import Any

from koalapy_adapters import message_files
from koalapy_adapters.kcm.relay import file_relay
from koalapy_adapters.kcm.relay.authentication import Authenticator
from koalapy_adapters.kcm.relay.file_relay import FileRelayServer, RelayRemoved
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Directories

from koalapy.model.units import SECOND, Duration
from koalapy.world.agenda import ScheduledCall
from koalapy.world.cluster.environment import Environment
from koalapy.world.processes import Process

_LONGEST = 5 * SECOND  # between two rounds: longer than the real one, for the sake of those who count events


class SimFileRelay:
    """One KCM's. `quit` ends that KCM when it was replaced."""

    port = 0

    def __init__(
        self,
        kcm: Process,
        environment: Environment,
        rng: Random,
        made: FileRelayServer,
        to_machine: Callable[[Any], None],
        quit_kcm: Callable[[str], None],
    ) -> None:
        self._kcm, self._environment, self._rng, self._server = kcm, environment, rng, made
        self._to_machine, self._quit = to_machine, quit_kcm
        self._unsent: list[tuple[str, Any]] = []
        self._moved_at = environment.agenda.now
        self._timer: ScheduledCall | None = None
        self._again()

    def open(self) -> str:
        """The directory's name."""
        self._server.open()
        return self._server.path.rpartition("/")[2]

    def send(self, tag: str, message: Any) -> None:
        """Write to the wrapper of this tag, if it has a session."""
        self._unsent.append((tag, message))
        self._again(Duration(0))

    def leave(self) -> None:
        """The KCM ends by itself."""
        self._server.close()

    def close(self) -> None:
        """Stop with the KCM, whose files stay."""
        self._environment.agenda.cancel(self._timer)

    def _again(self, pause: Duration = Duration(SECOND)) -> None:
        self._environment.agenda.cancel(self._timer)
        self._timer = self._kcm.after(Duration(pause + self._environment.file_latency(self._rng)), self._round)

    def _round(self) -> None:
        unsent, self._unsent = self._unsent, []
        now = self._environment.agenda.now
        try:
            done = self._server.round(now, unsent)
        except RelayRemoved:
            self._quit("the relay's files were removed")
            return
        if done.moved or unsent:
            self._moved_at = now
        self._again(Duration(message_files.pause(now - self._moved_at, _LONGEST)))
        for outcome in done.outcomes:
            self._to_machine(outcome)


def file_relay_server_of(directories: Directories, authenticator: Authenticator, number: int) -> FileRelayServer:
    """Return the file relay's server of a KCM, by the KCM's number."""
    name = file_relay.name(directories.cluster, directories.epoch, f"{number:016x}")
    directory = file_relay.RelayDirectory(
        f"{directories.own}/{name}", directories.attempt, authenticator, lambda: directories.is_dissolved
    )
    return FileRelayServer(directory, directories.files)
