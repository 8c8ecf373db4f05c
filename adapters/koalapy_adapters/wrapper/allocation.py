"""The allocation of this batch job: its nodes, and how many of the program's processes each of them runs."""

import importlib
import os
from typing import Any, Dict, List, NamedTuple, Optional

from koalapy_adapters.batch.protocol import Launch, Stopped
from koalapy_adapters.errors import BatchError, UnreadableError
from koalapy_adapters.host import node_identity
from koalapy_adapters.wrapper.events import Json, Node, failure
from koalapy_adapters.wrapper.process_layout import divide, offsets, own_first


class Allocation(NamedTuple):
    """The nodes, the wrapper's own first, and the processes on each. `dialect` is the batch system's module."""

    dialect: Any
    batch_id: str
    names: List[str]
    counts: List[int]

    @property
    def nodes(self) -> List[Node]:
        return [Node(name, count) for name, count in zip(self.names, self.counts)]

    @property
    def shares(self) -> Dict[str, List[int]]:
        """Processes, and first rank in the component, of each node."""
        return {name: [count, offset] for name, count, offset in zip(self.names, self.counts, offsets(self.counts))}

    @property
    def others(self) -> List[str]:
        """The nodes on which an agent must be launched."""
        return [node.name for node in self.nodes[1:] if node.processes]

    def why_stopped(self) -> Optional[Stopped]:
        """The reason for the batch system's signal to stop, as only the job itself can learn it; None if unknown."""
        ask = getattr(self.dialect, "why_stopped", None)
        return ask(os.environ) if ask is not None else None

    def launches(self, command: List[str]) -> List[Launch]:
        """How the agents on the other nodes are started; `command` starts the pushed file.

        Raises UnreadableError if the dialect fails.
        """
        if not self.others:
            return []
        argv = [*command, "agent", ",".join(self.others)]
        try:
            launches: List[Launch] = self.dialect.launch(os.environ, self.others, argv)
        except (LookupError, OSError, TypeError, ValueError) as error:
            raise _broken(self.dialect, error) from error
        return launches


def read_allocation(batch: str, program: Json, batch_id: str) -> Allocation:
    """Raises BatchError where the batch system's variables and files cannot be understood, or it gave too little."""
    dialect = _dialect(batch)
    try:
        hosts = dialect.hosts(os.environ, _read)
    except (LookupError, OSError, TypeError, ValueError) as error:
        raise _broken(dialect, error) from error
    if not hosts:
        raise UnreadableError("no_hosts", "The batch system named no node of this job.", "Look at the job's variables.")
    index = node_identity.own_index([host.name for host in hosts])
    ordered = own_first(hosts, hosts[index or 0].name)
    counts = divide(ordered, program["launch"], program["processors"], program["threads"])
    return Allocation(dialect, batch_id or dialect.batch_id(os.environ), [host.name for host in ordered], counts)


def as_failure(error: BatchError) -> Json:
    return failure(error.code, error.whose, error.message, error.advice, error.result.words if error.result else "")


def _dialect(name: str) -> Any:
    try:
        return importlib.import_module("koalapy_adapters.batch." + name)
    except ImportError as error:
        raise UnreadableError(
            "no_dialect",
            "The pushed file knows no batch system %s (%s)." % (name, error),
            "Install the package that registers it where koalad runs, and restart koalad.",
        ) from error


def _broken(dialect: Any, error: Exception) -> UnreadableError:
    return UnreadableError(
        "dialect_failed",
        "The nodes of this job could not be read or used (%s: %s)." % (type(error).__name__, error),
        "Look at the batch system's variables in the job, and at the dialect %s." % dialect.__name__,
    )


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()
