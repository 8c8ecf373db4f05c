"""Two real koalads of two people, linked as sites: `delft` has few processors and borrows, `lyon` lends.

Loaded by the conftest files of the folders that use it, since tests lie in no package.
"""

import socket
from pathlib import Path
from typing import Any

import live
from site_koalas import begin, free_address, leases, link, nothing_left_of_leases, site

Document = dict[str, Any]
SLOTS = {"delft": 2, "lyon": 6}
LENT = 5


class Pair:
    """`delft` borrows, and only dials; `lyon` lends as `lend` has it. `nodes`: further keys of lyon's cluster."""

    def __init__(self, place: Path, nodes: Document | None = None, processors: int = LENT, **lend: Any) -> None:
        borrow = {"after": "0s", "idle": "3s", "again": "1s", "networks": {"lyon": "default"}, "sweeps": True}
        terms = {"to": ["delft"], "processors": processors, **lend}
        self.lent = processors
        self.delft = site(place, "delft", SLOTS["delft"], borrow=borrow)
        self.lyon = site(place, "lyon", SLOTS["lyon"], nodes, listen=free_address(), lend=terms)
        self.both = self.delft, self.lyon

    def link(self) -> None:
        begin(*self.both, LENDER_TOKEN="x")
        link(self.lyon, "delft", self.delft)
        self.delft.until(lambda: self.free() == self.lent)

    def free(self) -> int | None:
        (found,) = self.delft("sites", "--json").document["neighbours"]
        return found["free"]  # type: ignore[no-any-return]

    def idle(self) -> None:
        """Nothing is lent any more, and nothing of a lease is left."""
        for koala in self.both:
            koala.until(lambda: not leases(koala))  # noqa: B023
        self.delft.until(lambda: [each["name"] for each in self.delft.client().clusters()] == ["delft-nodes"])
        self.lyon.until(lambda: self.lyon.client().clusters()[0]["idle"] == SLOTS["lyon"])
        self.lyon.until(lambda: nothing_left_of_leases(self.lyon))

    def running(self, name: str, **fields: Any) -> tuple[int, Path, Path]:
        """A job that runs on a lease until its gate is there, and writes a line at its beginning and end.

        Both files are in its user's directory, which a program that is isolated does not see.
        """
        delft = self.delft
        gate, lines = delft.work / f"{name}.gate", delft.work / f"{name}.lines"
        script = f"echo begun >>{lines}; while [ ! -e {gate} ]; do sleep 0.1; done; echo ended >>{lines}"
        job = delft.submit(live.sh(script, 3, walltime="2m", launch="once"), **fields)
        delft.until(lambda: delft.job(job)["state"] == "running" and lines.exists())
        return job, gate, lines

    def holding(self, before: str = "", **fields: Any) -> tuple[int, "Gate"]:
        """A job that runs on a lease until its gate is opened, whatever it sees of the file system.

        `before`: a command that it runs first.
        """
        gate = Gate()
        wait = f"import socket; socket.create_connection(('127.0.0.1', {gate.port})).recv(1)"
        script = f'{before} python3 -c "{wait}"; echo made > made'
        job = self.delft.submit(live.sh(script, 3, walltime="2m", launch="once"), **fields)
        gate.wait_for(1)
        return job, gate

    def stop(self) -> None:
        for koala in self.both:
            koala.stop()


class Gate:
    """A port at which programs wait until it is opened. `begun`: how many have come."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._come: list[socket.socket] = []

    @property
    def begun(self) -> int:
        return len(self._come)

    def wait_for(self, count: int) -> None:
        self._listener.settimeout(live.PATIENCE_S)
        while len(self._come) < count:
            self._come.append(self._listener.accept()[0])

    def open(self) -> None:
        """Let those that wait go on, and those that come later."""
        for each in self._come:
            each.close()
        self._listener.close()
