"""The streams that pass through a wrapper: which node each of them ends on. Nothing else of them is kept here."""

import collections
from typing import Any, Callable, Dict, List, Optional

from koalapy_adapters.messages.streams import OpenStream, StreamReset
from koalapy_adapters.streams import unknown_stream

_MOST = 1 << 12  # of which the oldest are forgotten first


class StreamRoutes:
    """Passes frames on between the relay and the node agents.

    `to_relay(frame)`; `to_node(node, frame)` returns whether that node has an agent.
    """

    def __init__(self, to_relay: Callable[[Any], Any], to_node: Callable[[str, Any], bool]) -> None:
        self._to_relay, self._to_node = to_relay, to_node
        self._nodes: "collections.OrderedDict[int, str]" = collections.OrderedDict()

    def from_relay(self, frame: Any, shares: Dict[str, List[int]]) -> None:
        """Pass a frame of koalad on. `shares`: processes and first rank of each node."""
        if isinstance(frame, OpenStream):
            self._learn(frame, shares)
        node = self._nodes.get(frame.stream)
        if node is None or not self._to_node(node, frame):
            for answer in unknown_stream(frame):
                self._to_relay(answer)

    def from_node(self, node: str, frame: Any) -> None:
        """Pass a frame of an agent on, if the stream ends there."""
        if self._nodes.get(frame.stream) == node:
            self._to_relay(frame)

    def _learn(self, frame: OpenStream, shares: Dict[str, List[int]]) -> None:
        node = _node_of(frame.rank, shares)
        if node is None:
            message = "The component has no process of rank %d." % frame.rank
            self._to_relay(StreamReset(frame.tag, frame.stream, "no_such_rank", message))
            return
        self._nodes[frame.stream] = node
        if len(self._nodes) > _MOST:
            self._nodes.popitem(last=False)


def _node_of(rank: int, shares: Dict[str, List[int]]) -> Optional[str]:
    """Return the node on which the process of this rank in the component runs; None if there is no such rank."""
    for node, (processes, first) in shares.items():
        if first <= rank < first + processes:
            return node
    return None
