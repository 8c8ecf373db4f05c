"""koalad's side of a link under test: a real KCM over the embedded queue, and a recorder of its deliveries."""

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

from koalapy.driver.driver import Delivery
from koalapy.link.reconnect import Cluster, Timing
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
from koalapy.runtime.cluster_link.link import Link, LinkServices

PATIENCE_S = 120.0
INSTANCE = InstanceId("abcde")
QUICK = Timing(ping=0.2, silence=60.0, retry_first=0.05, retry_max=0.5, retry_cluster=0.5)
SOON_GIVEN_UP = replace(QUICK, silence=3.0)
E = TypeVar("E")


class DeliveryRecorder:
    """Records deliveries in order, and lets a test wait for one."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self._changed = threading.Condition()

    def deliver(self, delivery: Delivery) -> None:
        with self._changed:
            self.deliveries.append(delivery)
            self._changed.notify_all()

    def event(self, kind: type[E], wanted: Callable[[E], bool] = lambda event: True, after: int = 0) -> E:
        """Wait for the first wanted event of the deliveries from `after` on."""
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
        """Wait for the delivery that confirms this outbox number."""
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
    """A channel whose writes a test can hold back: `gate` is called before each one with the bytes written so far."""

    def __init__(self, channel: Channel, gate: Callable[[int], Any]) -> None:
        self._channel, self._gate = channel, gate
        self._written = 0

    def write(self, data: bytes) -> None:
        self._gate(self._written)
        self._channel.write(data)
        self._written += len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)


class SpyConnection:
    """A connection that keeps its opened channels, so that a test can interfere; `refusal` is raised if it is set.

    `gate` is the gate of the channels that are opened from now on. Logins hang while `goes_on` is not set.
    """

    def __init__(self, connection: Connection) -> None:
        self.where, self.python = connection.where, connection.python
        self.refusal: Exception | None = None
        self.gate: Callable[[int], Any] = lambda written: None
        self.opened: list[Channel] = []
        self.tries = 0
        self.goes_on = threading.Event()
        self.goes_on.set()
        self._connection = connection

    def open(self, shell_command: str, stderr: Lines) -> Channel:
        refusal, self.tries = self.refusal, self.tries + 1  # a test that has seen the try may set another refusal
        if refusal is not None:
            raise refusal
        assert self.goes_on.wait(PATIENCE_S)
        self.opened.append(Wire(self._connection.open(shell_command, stderr), self.gate))
        return self.opened[-1]


class LinkTestbed:
    """One embedded cluster in a directory, and one link to it at a time."""

    def __init__(self, directory: Path, name: str = "here", **config: Any) -> None:
        self.directory, self.name = directory, name
        self.shared = directory / "shared"
        self.recorder = DeliveryRecorder()
        self.clock = SystemClock()
        self.connection = SpyConnection(LocalConnection())
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
        """Acknowledge a delivery, as the driver does after its commit."""
        if delivery.acknowledge is not None:
            self.link.acknowledge(*delivery.acknowledge[1:])
        self.recorder.deliver(delivery)

    def start(self) -> "LinkTestbed":
        self.link.start()
        self.recorder.event(ClusterConnected)
        self.recorder.event(ClusterMeasured)
        return self

    def send(self, command: Any, doubt: bool = False) -> int:
        number = next(self.numbers)
        if isinstance(command, SubmitAttempt):
            self._attempts.add(command.attempt)
        self.link.send(number, command, doubt)
        return number

    def submit_command(self, script: str = "true", stage_in: Sequence[str] = (), **wishes: Any) -> SubmitAttempt:
        """The command that submits a new job, which runs `script` by sh."""
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
        """Submit the attempt, and wait until it is at its barrier."""
        number = self.send(command)
        submitted = self.recorder.event(AttemptSubmitted, lambda event: event.attempt == command.attempt)
        assert number in self.recorder.confirmed(number).confirmed
        self.known.append((command.attempt, submitted.batch_id))
        return self.reported(command.attempt, "at_barrier")

    def release(self, attempt: AttemptId) -> int:
        hosts = ((0, "127.0.0.1", 1),)
        return self.send(ReleaseAttempt(cluster=self.name, attempt=attempt, first_rank=0, hosts=hosts))

    def run(self, command: SubmitAttempt) -> WrapperReported:
        """Submit and release the attempt, and wait for its end."""
        self.at_barrier(command)
        self.recorder.confirmed(self.release(command.attempt))
        return self.reported(command.attempt, "ended")

    def reported(self, attempt: AttemptId, phase: str) -> WrapperReported:
        return self.recorder.event(WrapperReported, lambda event: event.attempt == attempt and event.phase == phase)

    def attempt_directory(self, attempt: AttemptId) -> Path:
        """The attempt's directory in the shared directory."""
        return self.shared / INSTANCE / tag_of(INSTANCE, attempt)

    def kcm_pid(self) -> int:
        channel: Any = self.connection.opened[-1]
        pid: int = channel._process.pid
        return pid

    def kill_kcm(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.kcm_pid(), number)

    def close(self) -> None:
        """Cancel all attempts that are left in the queue, over a link that works."""
        if self._attempts:
            self.connection.refusal = None
            self.link.close()
            after = len(self.recorder.deliveries)
            self.make().start()
            self.recorder.event(ClusterConnected, after=after)
            for attempt in self._attempts:
                self.send(CancelAttempt(cluster=self.name, attempt=attempt, batch_id="", force=True))
            for attempt in self._attempts:
                self.recorder.event(AttemptCleanedUp, lambda event, attempt=attempt: event.attempt == attempt, after)  # type: ignore[misc]
        self.link.close()


def threads_of(testbed: LinkTestbed) -> list[str]:
    """Return the names of the threads of the testbed's link that run."""
    return [each.name for each in threading.enumerate() if each.name.endswith(f"-{testbed.name}")]


def wait_until(look: Callable[[], bool], why: str = "it did not happen in time") -> None:
    """Wait for a change that no event reports, such as another process's file."""
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < deadline, why
        time.sleep(0.01)
