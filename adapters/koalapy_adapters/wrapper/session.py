"""The wrapper as one machine, from its first try to reach the relay to its end: events in, commands out.

It knows no clock, socket, file or process. The wrapper's loop and the simulated world drive it. Each event is a method
that takes `now` and returns commands; the driver performs them in their order. Three parts decide: the attempt's
`machine`, the `contact` with the relay, and the key space of the job.

    event                               commands
    handle: an event of `events`        those of the machine; for a report Expect, and Write if the relay is connected
    found, connected, unreachable,      those of the contact: Seek, Try, Begin, Write, Secure, Drop
    received, broken
      so that the relay is entered      Write: the report, and all keys of this component; OpenBridge;
                                        ResumeStreams, if there are streams
      so that it is lost                CloseBridge; those of the machine
    received: Release, Stop             those of the machine
              ToLauncher                ToLauncher
              PutKey, a new key         BroadcastKey
              a frame of a byte stream  PassFrame
    put: a new key of this component    BroadcastKey; Write
    touched                             those of the machine; the next Touch is due `heartbeat` later
    tick                                what is due: Touch, Heartbeat, and those of contact and machine

After Leave nothing follows.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional

from koalapy_adapters import messages
from koalapy_adapters.frames import Chunk
from koalapy_adapters.messages import fields, kcm, koalad, relay
from koalapy_adapters.streams import FRAMES, as_frame
from koalapy_adapters.wrapper import events, failure_texts
from koalapy_adapters.wrapper.events import Json, Settings
from koalapy_adapters.wrapper.keys.key_space import KeySpace
from koalapy_adapters.wrapper.liveness import between_words
from koalapy_adapters.wrapper.machine import RUNNING, STARTED, Machine
from koalapy_adapters.wrapper.relay import contact
from koalapy_adapters.wrapper.relay.address import RelayAddress
from koalapy_adapters.wrapper.relay.contact import Contact, shut_out_after
from koalapy_adapters.wrapper.relay.handshake import Opening


class Expect(NamedTuple):
    """Look for the relay's messages more often, if something waits for the next one; see `FileTransport.expect`."""

    awaited: bool


class Touch(NamedTuple):
    """Touch the attempt's heartbeat; then call `touched`."""


class PingAgents(NamedTuple):
    """Send a sign of life to the agents of other nodes; see `liveness`."""


class KeepRecord(NamedTuple):
    """Write the exit record; then call `handle` with RecordWritten or RecordFailed. See events.WriteRecord."""

    record: Json
    only_if_none: bool


class BroadcastKey(NamedTuple):
    """Send a key of the rendezvous to all nodes."""

    key: str
    value: str


class PassFrame(NamedTuple):
    """Pass a frame of a byte stream on to the node on which its stream ends."""

    frame: Any


class ResumeStreams(NamedTuple):
    """Let all nodes find out what their streams have lost: the connection to the relay is a new one."""


class OpenBridge(NamedTuple):
    """Let the Launcher connect: the relay is there."""


class CloseBridge(NamedTuple):
    """Let the Launcher know that the relay is lost."""


class ToLauncher(NamedTuple):
    """Pass this on to the Launcher."""

    body: Json


class WrapperSession:
    """The session of one wrapper. Call `tick` at `next_wakeup` or later."""

    def __init__(
        self,
        now: int,
        settings: Settings,
        open_with: Callable[[int, str, bool], Opening],
        jitter: Callable[[], float],
        heartbeat: int,
        host: str,
        for_launcher: bool,
    ) -> None:
        """`open_with`, `jitter`: see Contact. `heartbeat`: microseconds between two touches of the attempt's.

        `host`: this node's name. `for_launcher`: whether a Launcher runs in place of a program.
        """
        self.relay_addresses: List[str] = []  # as the relay's file has named them last
        self.connected_to = ""  # the address of the relay that let us in last
        self._machine = Machine(settings, now)
        self._relay = Contact(open_with, jitter, shut_out_after(settings.barrier_timeout))
        self._tag, self._host, self._for_launcher = settings.tag, host, for_launcher
        self._heartbeat = heartbeat
        self._touch_at: Optional[int] = now
        self._ping_interval = between_words(settings.orphan_timeout)
        self._ping_at: Optional[int] = None  # where the wrapper's node is the only one
        self._offset: Optional[int] = None  # the relay's clock minus ours
        self._keys = KeySpace()
        self._own_keys: List[kcm.PutKey] = []
        self._phase = STARTED
        self._asking: Dict[str, bool] = {}  # the nodes where a program waits for a key or at a barrier
        self._awaited = True
        self._has_streams = False  # that pass through this wrapper
        self._left = False

    @property
    def report(self) -> kcm.Report:
        """The newest report that may be sent."""
        return self._machine.report()

    # ---- the attempt

    def handle(self, now: int, event: Any) -> List[Any]:
        """React to an event of `events`."""
        if isinstance(event, events.Claimed) and len(event.nodes) > 1:
            self._ping_at = now
        return self._machine_wants(now, self._machine.handle(now, event))

    def touched(self, now: int, reached: Optional[events.SharedReached]) -> List[Any]:
        """React to the end of a Touch; None: the shared directory was not reached."""
        self._touch_at = now + self._heartbeat
        return self.handle(now, reached) if reached is not None else []

    def put(self, key: str, value: str) -> List[Any]:
        """Pass on a key that a program of this component has put: to all nodes, and to the job's other components."""
        if not self._keys.put(key, value):
            return []
        message = kcm.PutKey(self._tag, key, value)
        self._own_keys.append(message)
        return [BroadcastKey(key, value), *self.send(message)]

    def asking(self, node: str, asking: bool) -> List[Any]:
        """Note whether a program on this node waits for a key or at a barrier."""
        self._asking[node] = asking
        return self._expect()

    # ---- the relay

    def send(self, message: Any) -> List[Any]:
        """Send a message, if the relay is connected."""
        return [contact.Write(message)] if self._relay.is_in else []

    def found(self, now: int, place: RelayAddress) -> List[Any]:
        """React to the relay's file. It is ignored while there is a connection."""
        self.relay_addresses = place.addresses + place.last or self.relay_addresses
        return self._contact_wants(now, self._relay.found(now, place))

    def connected(self, now: int, address: str, patience: int) -> List[Any]:
        """See `Contact.connected`."""
        return self._contact_wants(now, self._relay.connected(now, address, patience))

    def unreachable(self, now: int) -> List[Any]:
        """See `Contact.unreachable`."""
        return self._contact_wants(now, self._relay.unreachable(now))

    def arrived(self, now: int) -> None:
        """See `Contact.arrived`."""
        self._relay.arrived(now)

    def received(self, now: int, data: Any) -> List[Any]:
        """React to a message of the relay, as JSON, or to a chunk of a byte stream.

        A message that is not known is from a newer release, and is ignored.
        """
        try:
            message = data if isinstance(data, Chunk) else as_frame(messages.from_json(data))
        except fields.MessageError:
            return []
        return self._contact_wants(now, self._relay.received(now, message))

    def broken(self, now: int) -> List[Any]:
        """See `Contact.broken`."""
        return self._contact_wants(now, self._relay.broken(now))

    # ---- time

    @property
    def is_in_contact(self) -> bool:
        """Return whether the relay has let the wrapper in."""
        return self._relay.is_in

    @property
    def has_left(self) -> bool:
        return self._left

    def next_wakeup(self) -> Optional[int]:
        """Return when to call `tick`; None: not before another event."""
        if self._left:
            return None
        times = [self._machine.next_wakeup(), self._relay.next_wakeup(), self._touch_at, self._ping_at]
        return min((time for time in times if time is not None), default=None)

    def tick(self, now: int) -> List[Any]:
        """Return what is due by `now`."""
        if self._left:
            return []
        commands = self._contact_wants(now, self._relay.tick(now))
        if self._touch_at is not None and now >= self._touch_at:
            self._touch_at = None  # until `touched`
            commands.append(Touch())
        if self._ping_at is not None and now >= self._ping_at:
            self._ping_at = now + self._ping_interval
            commands.append(PingAgents())
        due = self._machine.next_wakeup()
        if due is not None and now >= due:
            commands += self._machine_wants(now, self._machine.tick(now))
        return commands

    # ---- what the parts want

    def _machine_wants(self, now: int, commands: List[Any]) -> List[Any]:
        found: List[Any] = []
        for command in commands:
            if isinstance(command, events.SendReport):
                self._phase = command.report.phase
                found += self._expect()
                found += self.send(relay.ReportMessage(messages.to_json(command.report)))
            elif isinstance(command, events.WriteRecord):
                record = dict(messages.to_json(command.report), clock=now, offset=self._offset)
                found.append(KeepRecord(record, command.only_if_none))
            else:
                self._left = self._left or isinstance(command, events.Leave)
                found.append(command)
        return found

    def _contact_wants(self, now: int, actions: List[Any]) -> List[Any]:
        found: List[Any] = []
        for action in [] if self._left else actions:
            if isinstance(action, contact.Entered):
                found += self._entered(now, action)
            elif isinstance(action, contact.Received):
                found += self._received(now, action.message)
            elif isinstance(action, contact.Lost):
                found += [CloseBridge()] if self._for_launcher else []
                found += self.handle(now, events.RelayLost(action.contact_at))
            elif isinstance(action, contact.ShutOut):
                error = failure_texts.shut_out(self._host, action.addresses, action.port)
                found += self.handle(now, events.PreparationFailed(error))
            else:
                found.append(action)
        return found

    def _entered(self, now: int, entered: contact.Entered) -> List[Any]:
        self.connected_to, self._offset = entered.address, entered.offset
        found = self.handle(now, events.RelayEntered())
        for message in self._own_keys:
            found += self.send(message)
        found += [ResumeStreams()] if self._has_streams else []
        return [*found, OpenBridge()] if self._for_launcher else found

    def _received(self, now: int, message: Any) -> List[Any]:
        if isinstance(message, FRAMES):
            self._has_streams = True
            return [PassFrame(message)]
        if isinstance(message, koalad.Release):
            return self.handle(now, events.ReleaseReceived(message.first_rank, message.hosts))
        if isinstance(message, relay.Stop):
            return self.handle(now, events.StopReceived(message.force))
        if isinstance(message, relay.ToLauncher):
            return [ToLauncher(message.body)] if self._for_launcher else []
        if isinstance(message, kcm.PutKey) and self._keys.put(message.key, message.value):
            return [BroadcastKey(message.key, message.value)]
        return []

    def _expect(self) -> List[Any]:
        """Until its program runs the component waits for its release. A Launcher waits for parameters, always."""
        before, self._awaited = (
            self._awaited,
            self._phase != RUNNING or any(self._asking.values()) or self._for_launcher,
        )
        return [Expect(self._awaited)] if self._awaited != before else []
