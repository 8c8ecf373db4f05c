"""How tests play koalad's messages to one simulated cluster."""

from typing import Any

from koalapy_adapters import messages
from koalapy_adapters.messages import from_json, kcm, to_json
from koalapy_adapters.messages import koalad as koalad_messages

from koalapy.model.cluster import ClusterSettings
from koalapy.model.units import MILLISECOND, MINUTE, SECOND, Duration, Instant
from koalapy.world.agenda import Agenda
from koalapy.world.behaviour import Behaviour, arguments_of
from koalapy.world.cluster.cluster import ClusterPlan, SimCluster
from koalapy.world.network import Pipe
from koalapy.world.program_log import ProgramLog

TAG = "ks1m00000000201"
OTHER = "ks1m00000000401"
DEFAULT = Behaviour()


class Koalad:
    """koalad's end of a connection: acknowledges every event, pings, and keeps what it receives."""

    def __init__(self, play: "Play", epoch: int, known: list[list[str]]) -> None:
        self._play = play
        pipe = Pipe(play.agenda, lambda: MILLISECOND)
        self.pipe, self._end = pipe, pipe.near
        self.arrived: list[Any] = []
        self.numbers: list[int] = []
        self.closed = False
        self._end.on_message = self._receive
        self._end.on_closed = self._close
        play.cluster.login(pipe.far)
        self.deliver(koalad_messages.Hello(messages.PROTOCOL, "0", epoch, "s1m00", 0, play.cluster.config(), known))
        self._ping()

    def deliver(self, message: Any) -> None:
        self._end.send(to_json(message))

    def leave(self) -> None:
        self.closed = True
        self._end.close()

    def of(self, kind: type[Any], tag: str = "") -> list[Any]:
        found = [message for message in self.arrived if isinstance(message, kind)]
        return [message for message in found if not tag or message.tag == tag]

    def _receive(self, data: Any) -> None:
        message = from_json(data)
        if isinstance(message, kcm.Event):
            self.deliver(koalad_messages.Acknowledge(message.number))
            self.numbers.append(message.number)
            message = from_json(message.body)
        self.arrived.append(message)

    def _close(self) -> None:
        self.closed = True

    def _ping(self) -> None:
        if not self.closed:
            self.deliver(koalad_messages.Ping(0, 0))
            self._play.agenda.after(Duration(20 * SECOND), self._ping)


class Play:
    """A cluster, and koalad's sessions with it."""

    def __init__(self, batch: str = "slurm", seed: int = 1, **plan: Any) -> None:
        self.agenda, self.program_log = Agenda(), ProgramLog()
        settings = ClusterSettings(name="alpha", batch=batch)
        self.cluster = SimCluster(self.agenda, seed, ClusterPlan(settings=settings, **plan), "alpha", self.program_log)
        self.began = self.agenda.now
        self._epoch = 0
        self.submitted: koalad_messages.Submit  # the last

    def connect(self, *known: str, batch_id: str = "") -> Koalad:
        self._epoch += 1
        return Koalad(self, self._epoch, [[tag, batch_id] for tag in known])

    def run(self, seconds: float) -> None:
        until = Instant(self.agenda.now + round(seconds * SECOND))
        self.agenda.at(until, lambda: None)
        self.agenda.run(until)

    def until(self, koalad: Koalad, kind: type[Any], tag: str = TAG, **fields: Any) -> Any:
        """Wait until koalad has received such a message."""
        latest = self.agenda.now + 20 * MINUTE
        while self.agenda.now < latest:
            for message in koalad.of(kind, tag):
                if all(getattr(message, name) == value for name, value in fields.items()):
                    return message
            assert self.agenda.step()
        raise AssertionError(f"no {kind.__name__} {fields}: {koalad.arrived}")

    def submit(
        self,
        koalad: Koalad,
        tag: str = TAG,
        behaviour: Behaviour = DEFAULT,
        number: int = 1,
        processors: int = 6,
    ) -> None:
        program = koalad_messages.Program(
            7, 0, 1, 1, "./program", list(arguments_of(behaviour)), [], [], "per-processor", processors, 1,
            60.0, 30.0, 5.0,
        )  # fmt: skip
        batch = {"processors": processors, "walltime_s": 150}
        self.submitted = koalad_messages.Submit(number, tag, batch, dict(program._asdict()), [], False)
        koalad.deliver(self.submitted)

    def release(self, koalad: Koalad, tag: str = TAG, number: int = 2) -> None:
        report = self.until(koalad, kcm.Report, tag, phase="at_barrier")
        hosts = [[0, address, count] for _, address, count in report.nodes]
        koalad.deliver(koalad_messages.Release(number, tag, 0, hosts))

    def cancel(self, koalad: Koalad, tag: str = TAG, number: int = 3) -> None:
        koalad.deliver(koalad_messages.Cancel(number, tag))
        self.until(koalad, kcm.CleanedUp, tag)

    def forget(self, koalad: Koalad, tag: str = TAG, number: int = 4) -> None:
        koalad.deliver(koalad_messages.Forget(number, tag))
        self.run(30)
        assert kcm.Done(number) in koalad.arrived
