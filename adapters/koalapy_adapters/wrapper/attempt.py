"""The component's program as component.json has it, and the environment that it finds its place in the grid by."""

import os
from typing import Any, Dict, List, NamedTuple

from koalapy_adapters import layout
from koalapy_adapters.clock import SECOND, microseconds, now
from koalapy_adapters.files import DISK, Files
from koalapy_adapters.messages import to_json
from koalapy_adapters.messages.kcm import Report
from koalapy_adapters.wrapper.events import Json, Settings, failure
from koalapy_adapters.wrapper.process_layout import MPI

HEARTBEAT = 10 * SECOND


class Attempt(NamedTuple):
    """The attempt as component.json describes it. `command` starts the pushed file."""

    directory: str
    tag: str
    batch_id: str
    batch: str
    relay_file: str
    token: str
    orphan_timeout: float
    command: List[str]
    program: Json  # messages.Program

    @property
    def work(self) -> str:
        return layout.inside(self.directory, "work")

    @property
    def is_mpi(self) -> bool:
        return bool(self.program["launch"] == MPI)

    @property
    def heartbeat(self) -> int:
        """How long from one heartbeat to the next: several fit into the time after which an orphan ends itself."""
        return min(HEARTBEAT, microseconds(self.orphan_timeout / 4))

    def settings(self, batch_id: str) -> Settings:
        return Settings(
            tag=self.tag,
            batch_id=batch_id,
            barrier_timeout=microseconds(self.program["barrier_timeout"]),
            walltime=microseconds(self.program["walltime"]),
            grace=microseconds(self.program["grace"]),
            orphan_timeout=microseconds(self.orphan_timeout),
            mpi=self.is_mpi,
        )

    def variables(self) -> Dict[str, str]:
        """The component's own environment, and KOALA_* but for the ranks."""
        own = dict(self.program["environment"])
        own.update(
            KOALA_JOB_ID=str(self.program["job"]),
            KOALA_COMPONENT=str(self.program["component"]),
            KOALA_COMPONENTS=str(self.program["components"]),
            KOALA_HOSTS=layout.inside(self.directory, "hosts"),
            KOALA_RENDEZVOUS=layout.inside(self.directory, "rendezvous"),
        )
        return own


def read_attempt(directory: str, component: Json, files: Files = DISK) -> Attempt:
    """Raises KeyError for a component.json that lacks something."""
    return Attempt(
        directory=directory,
        tag=component["tag"],
        batch_id=component.get("batch_id") or "",
        batch=component["batch"],
        relay_file=layout.relay_file(component["shared"], component["instance"], component["cluster"]),
        token=_token(directory, files),
        orphan_timeout=component["orphan_timeout"],
        command=component["command"],
        program=component["program"],
    )


def write_broken(directory: str, component: Json, error: Exception) -> None:
    """The record of an attempt whose wrapper itself failed: better than none."""
    why = failure(
        "wrapper_failed",
        "ours",
        "The wrapper failed (%s: %s)." % (type(error).__name__, error),
        "Report it, with the attempt's batch.out.",
    )
    report = Report(str(component.get("tag", "")), "", "ended", [], ending="failed", ended_at=now(), error=why)
    try:
        layout.write_json(layout.inside(directory, "record.json"), to_json(report))
    except OSError:
        pass  # the batch system's word has to do


def hosts_text(hosts: List[List[Any]]) -> str:
    """KOALA_HOSTS, a line for every rank."""
    return "".join("%s %s\n" % (component, address) * processes for component, address, processes in hosts)


def write_hosts(attempt: Attempt, text: str) -> None:
    """Write KOALA_HOSTS. Raises OSError.

    Not synced: the program starts when it is there, and a node that crashes takes the program along.
    """
    path = layout.inside(attempt.directory, "hosts")
    with open(path + ".new", "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


def _token(directory: str, files: Files) -> str:
    try:
        return files.read(layout.inside(directory, "token")).decode().strip()
    except OSError:
        return ""  # the relay refuses us; the record still states how it ended
