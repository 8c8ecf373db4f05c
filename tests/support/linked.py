"""koalad's side of a link under test: a real KCM over the embedded queue, and an ear for all that it delivers."""

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from koalapy_adapters.connections.local import LocalConnection
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.connections.protocol import Channel, Connection, Lines

from koalapy.driver import Delivery
from koalapy.link.cluster import Cluster, Timing
from koalapy.model.commands import CancelAttempt, ReleaseAttempt, SubmitAttempt
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptSubmitted,
    ClusterConnected,
    ClusterMeasured,
    WrapperReported,
)
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.request import ComponentRequest
from koalapy.model.units import MINUTE, Duration
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.uplink.link import Link, LinkServices

PATIENCE_S = 120.0
INSTANCE = InstanceId("abcde")
QUICK = Timing(ping=0.2, silence=60.0, retry_first=0.05, retry_max=0.5, retry_cluster=0.5)
SOON_GIVEN_UP = replace(QUICK, silence=3.0)
E = TypeVar("E")


class Ear:
    """Hears deliveries; each event is heard once, in order, whatever is waited for."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self._changed = threading.Condition()

    def deliver(self, delivery: Delivery) -> None:
        with self._changed:
            self.deliveries.append(delivery)
            self._changed.notify_all()

    def event(self, kind: type[E], wanted: Callable[[E], bool] = lambda event: True, after: int = 0) -> E:
        """The first such event of the deliveries from `after` on."""
        return self.delivery(kind, wanted, after)[0]

    def delivery(
        self, kind: type[E], wanted: Callable[[E], bool] = lambda event: True, after: int = 0
    ) -> tuple[E, Delivery]:
        found = self._await(
            lambda: [
                (event, delivery)
                for delivery in self.deliveries[after:]
                for event in delivery.events
                if isinstance(event, kind) and wanted(event)
            ]
        )
        return found[0]  # type: ignore[no-any-return]

    def confirmed(self, number: int) -> Delivery:
        """The delivery that confirms this outbox number."""
        found: Delivery = self._await(lambda: [each for each in self.deliveries if number in each.confirmed])[0]
        return found

    def events(self, kind: type[E]) -> list[E]:
        return [event for delivery in self.deliveries for event in delivery.events if isinstance(event, kind)]

    def _await(self, look: Callable[[], list[Any]]) -> list[Any]:
        found: list[Any] = []

        def looked() -> bool:
            found[:] = look()
            return bool(found)

        with self._changed:
            assert self._changed.wait_for(looked, PATIENCE_S), [each.events for each in self.deliveries[-10:]]
        return found


class Wire:
    """A channel of which a test has a hand on the wire: before each write `gate` hears how many bytes have gone."""

    def __init__(self, channel: Channel, gate: Callable[[int], Any]) -> None:
        self._channel, self._gate = channel, gate
        self._gone = 0

    def write(self, data: bytes) -> None:
        self._gate(self._gone)
        self._channel.write(data)
        self._gone += len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


class Spied:
    """A connection that remembers what it opened, so that a test can interfere; `refusal` is raised instead.

    `gate`: that of the wires which are opened from now on.
    """

    def __init__(self, connection: Connection) -> None:
        self.where, self.python = connection.where, connection.python
        self.refusal: Exception | None = None
        self.gate: Callable[[int], Any] = lambda gone: None
        self.opened: list[Channel] = []
        self.tries = 0
        self._connection = connection

    def open(self, shell_command: str, stderr: Lines) -> Channel:
        refusal, self.tries = self.refusal, self.tries + 1  # whoever has counted a try may change what the next meets
        if refusal is not None:
            raise refusal
        self.opened.append(Wire(self._connection.open(shell_command, stderr), self.gate))
        return self.opened[-1]


class Haven:
    """One embedded cluster in a directory, and one link to it at a time."""

    def __init__(self, directory: Path, name: str = "here", **config: Any) -> None:
        self.directory, self.name = directory, name
        self.shared = directory / "shared"
        self.ear = Ear()
        self.clock = SystemClock()
        self.connection = Spied(LocalConnection())
        self.known: list[tuple[AttemptId, str]] = []
        self.put: list[tuple[AttemptId, str, str]] = []
        self.numbers = itertools.count(1)
        self._config = {"slots": 2, "poll": 0.5, "grace": 1.0, **config}
        self._epochs = itertools.count(1)
        self._jobs = itertools.count(1)
        self._attempts: set[AttemptId] = set()
        self.link = self.make()

    def make(self, timing: Timing = QUICK, instance: InstanceId = INSTANCE) -> Link:
        config = {"name": self.name, "batch": "local", "shared": str(self.shared), "python": sys.executable}
        cluster = Cluster(name=self.name, instance=instance, config={**config, **self._config}, timing=timing)
        services = LinkServices(
            now=self.clock.now,
            deliver=self._deliver,
            next_epoch=lambda: next(self._epochs),
            known=lambda: self.known,
            put=lambda attempt, key, value: self.put.append((attempt, key, value)),
        )
        self.link = Link(cluster, self.connection, packed(), services)
        return self.link

    def _deliver(self, delivery: Delivery) -> None:
        """As the driver does once it has committed."""
        if delivery.acknowledge is not None:
            self.link.acknowledge(*delivery.acknowledge[1:])
        self.ear.deliver(delivery)

    def start(self) -> "Haven":
        self.link.start()
        self.ear.event(ClusterConnected)
        self.ear.event(ClusterMeasured)
        return self

    def send(self, command: Any, doubt: bool = False) -> int:
        number = next(self.numbers)
        if isinstance(command, SubmitAttempt):
            self._attempts.add(command.attempt)
        self.link.send(number, command, doubt)
        return number

    def submit_of(self, script: str = "true", stage_in: Sequence[str] = (), **wishes: Any) -> SubmitAttempt:
        """Of a new job that runs this script by sh."""
        wanted = {"processors": 1, "executable": "/bin/sh", "arguments": ("-c", script)}
        return SubmitAttempt(
            cluster=self.name,
            attempt=AttemptId(JobId(next(self._jobs)), 0, 1),
            components=1,
            request=ComponentRequest(**{**wanted, **wishes}),
            walltime=Duration(5 * MINUTE),
            barrier_timeout=Duration(2 * MINUTE),
            stage_in=tuple(stage_in),
            directory=str(self.directory),
        )

    def at_barrier(self, command: SubmitAttempt) -> WrapperReported:
        """Submit it, and wait until it is at its barrier."""
        number = self.send(command)
        submitted = self.ear.event(AttemptSubmitted, lambda event: event.attempt == command.attempt)
        assert number in self.ear.confirmed(number).confirmed
        self.known.append((command.attempt, submitted.batch_id))
        return self.reported(command.attempt, "at_barrier")

    def release(self, attempt: AttemptId) -> int:
        hosts = ((0, "127.0.0.1", 1),)
        return self.send(ReleaseAttempt(cluster=self.name, attempt=attempt, first_rank=0, hosts=hosts))

    def run(self, command: SubmitAttempt) -> WrapperReported:
        """From submit to end."""
        self.at_barrier(command)
        self.ear.confirmed(self.release(command.attempt))
        return self.reported(command.attempt, "ended")

    def reported(self, attempt: AttemptId, phase: str) -> WrapperReported:
        return self.ear.event(WrapperReported, lambda event: event.attempt == attempt and event.phase == phase)

    def attempt_directory(self, attempt: AttemptId) -> Path:
        """Its directory in the shared one."""
        return self.shared / INSTANCE / tag_of(INSTANCE, attempt)

    def kcm_pid(self) -> int:
        channel: Any = self.connection.opened[-1]
        pid: int = channel._process.pid
        return pid

    def kill_kcm(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.kcm_pid(), number)

    def close(self) -> None:
        """End whatever is left in the queue, by a link that works."""
        if self._attempts:
            self.connection.refusal = None
            self.link.close()
            after = len(self.ear.deliveries)
            self.make().start()
            self.ear.event(ClusterConnected, after=after)
            for attempt in self._attempts:
                self.send(CancelAttempt(cluster=self.name, attempt=attempt, batch_id="", force=True))
            for attempt in self._attempts:
                self.ear.event(AttemptCleanedUp, lambda event, attempt=attempt: event.attempt == attempt, after)  # type: ignore[misc]
        self.link.close()


def wait_until(look: Callable[[], bool], why: str = "waited in vain") -> None:
    """For what no event tells, such as another process's file."""
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, why
        time.sleep(0.01)
