"""The wrapper's side of its node agents: starts them, exchanges messages with them, and notices when one is lost."""

import os
import selectors
import signal
import sys
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from koalapy_adapters.batch.protocol import Launch
from koalapy_adapters.frames import Chunk
from koalapy_adapters.host import descendants, json_lines
from koalapy_adapters.host.spawn import spawn
from koalapy_adapters.streams import frame_to_json
from koalapy_adapters.wrapper.agent.fork import Forked

Json = Dict[str, Any]


class AgentMessage(NamedTuple):
    """A message from the agent of a node."""

    node: str
    message: Json


class Lost(NamedTuple):
    """An agent ended, or its launcher did: then it is not `sure` that nothing of the program lives on that node."""

    node: str
    sure: bool


class NodeAgents:
    """All agents, by their launchers. `notify` is called with every AgentMessage and Lost."""

    def __init__(self, selector: selectors.BaseSelector, notify: Callable[[Any], None]) -> None:
        self._selector = selector
        self._notify = notify
        self._channels: List[_Channel] = []

    def add_forked(self, node: str, forked: Forked) -> None:
        self._add(_Channel([node], forked.pid, self._writer(forked.commands), forked.answers, forked=True))

    def launch(
        self, launches: Sequence[Launch], names: Sequence[str], environment: Mapping[str, str], directory: str
    ) -> None:
        """Start the agents on the other nodes. `names` are those in the agents' own command line.

        `directory`: of the attempt or queue; the launchers start there, since the nodes share it.
        """
        for launch in launches:
            command_read, commands = os.pipe()
            answers, answer_write = os.pipe()
            pid = spawn(launch.argv, environment, [command_read, answer_write, 2], directory)
            os.close(command_read)
            os.close(answer_write)
            self._add(_Channel(list(names), pid, self._writer(commands), answers, own=list(launch.hosts)))

    def prepare(self, message: Json, shares: Dict[str, List[int]]) -> None:
        """`shares`: processes and first rank of each node."""
        for channel in self._channels:
            own = [shares.get(name, [0, 0]) for name in channel.names]
            channel.commands.write(
                json_lines.line(dict(message, do="prepare", shares=own, elsewhere=not channel.forked))
            )

    def broadcast(self, message: Json) -> None:
        """Send to every agent that listens."""
        for channel in self._channels:
            channel.commands.write(json_lines.line(message))

    def send_frame(self, node: str, frame: Any) -> bool:
        """Pass a frame of a byte stream to the agent of this node. False if there is none."""
        return self.send_to(node, {"do": "stream", "frame": frame_to_json(frame)}, bulk=isinstance(frame, Chunk))

    def send_to(self, node: str, message: Json, bulk: bool = False) -> bool:
        """Send a message to the agent of one node. False if there is none. `bulk`: behind all other messages."""
        for channel in self._channels:
            if node in channel.own:
                write = channel.commands.write_bulk if bulk else channel.commands.write
                write(json_lines.line(dict(message, to=channel.names.index(node))))
                return True
        return False

    def ping(self) -> None:
        """Send a sign of life to the agents of other nodes, which take silence for our end."""
        for channel in self._channels:
            if not channel.forked:
                channel.commands.write(json_lines.line({"do": "ping"}))

    @property
    def sweeping(self) -> bool:
        """Return whether `sweep` has something to do."""
        return any(channel.sweeping for channel in self._channels)

    def child_ended(self, pid: int) -> None:
        """A launcher, or the agent on this node, has ended. What that one leaves is swept before it counts as lost."""
        for channel in self._channels:
            if channel.pid == pid:
                self._read(channel)
                channel.pid = 0
                channel.sweeping = channel.forked
                if not channel.forked:
                    self._lose(channel)

    def sweep(self, spared: Sequence[int]) -> None:
        """Kill what the agent that died on this node left behind; but for the launchers and the `spared`."""
        for channel in self._channels:
            if channel.sweeping and descendants.sweep([*spared, *self.pids()]):
                channel.sweeping = False
                self._lose(channel)

    def pids(self) -> List[int]:
        return [channel.pid for channel in self._channels if channel.pid]

    def kill(self) -> None:
        """Kill agents that do not obey, and launchers, whose agents then see the end of file."""
        descendants.send(self.pids(), signal.SIGKILL)

    def close(self) -> None:
        """End of file for all: the agents leave."""
        for channel in self._channels:
            channel.commands.close()

    def _writer(self, descriptor: int) -> json_lines.Writer:
        return json_lines.Writer(descriptor, self._selector)

    def _add(self, channel: "_Channel") -> None:
        self._channels.append(channel)
        self._selector.register(channel.answers, selectors.EVENT_READ, lambda: self._read(channel))

    def _read(self, channel: "_Channel") -> None:
        for piece in channel.read():
            if piece.node >= len(channel.names):
                continue
            name = channel.names[piece.node]
            lost = piece.message.get("event") == "lost"
            self._notify(Lost(name, piece.message.get("sure", True)) if lost else AgentMessage(name, piece.message))
        if channel.ended:
            channel.ended = False
            self._selector.unregister(channel.answers)

    def _lose(self, channel: "_Channel") -> None:
        for name in channel.own:
            self._notify(Lost(name, channel.forked))


class _Channel:
    """One launcher, or the forked agent. `names` by the agents' indices, `own` those that this launcher started."""

    def __init__(
        self,
        names: List[str],
        pid: int,
        commands: json_lines.Writer,
        answers: int,
        forked: bool = False,
        own: Optional[List[str]] = None,
    ) -> None:
        self.names = names
        self.own = names if own is None else own
        self.pid = pid
        self.commands = commands
        self.answers = answers
        self.forked = forked
        self.sweeping = False
        self.ended = False  # its output, just now
        self._assembler = json_lines.Assembler()
        self._open = True
        os.set_blocking(answers, False)

    def read(self) -> List[json_lines.Piece]:
        """Read all that can be read now."""
        found: List[json_lines.Piece] = []
        while self._open:
            try:
                data = os.read(self.answers, 1 << 16)
            except BlockingIOError:
                break
            if not data:
                self._open, self.ended = False, True
            found += self._assembler.feed(data)
        for text in self._assembler.noise:
            sys.stderr.write("launcher: %s\n" % text.decode("utf-8", "replace"))
        del self._assembler.noise[:]
        return found
