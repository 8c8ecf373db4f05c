"""How soon a borrowed processor works, with no, one and two sites between, and what links between sites cost.

Four koalads are linked in a row: `lender` has a real Slurm cluster of the test grid, and the three others have one
processor each. A job of eight processors at one of them is delegated along the row, over as many sites as are between.
The time is from its submit until its first process runs on a node; beside it stands the lender's own sbatch of the same
size, from its call until its first instruction; in the same rounds and in random order. Each lease is returned before
the next one. Messages are those of all links of the row for one job, from its submit until its lease has ended.

An idle link costs bytes, which a cable counts that lies in one of the links, and processor time of both koalads.
A stream from a node over one site between is measured beside `ssh -L` with a jump host in the place of that site.

    tests/bench/run sites [--rounds N] [--idle SECONDS] [--megabytes N]
"""

import argparse
import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import allocation
import live
import streams
from _grid import end_orderly, last_line
from cable import Cable, Way
from scrapes import metrics_of, value
from site_koalas import begin, free_address, leases, link, site
from sshd import Sshd

from koalapy import testgrid

HEAD, PROCESSORS, PORT = "alpha", 8, streams.PORT
BINDING_BOUND_S = 5.0
_ROW = ("lender", "first", "second", "third")
_TERMS = {"processors": PROCESSORS, "pass_on": True, "strangers": True}
_BORROWS = {"after": "0s", "idle": "1h", "again": "1s"}
Document = dict[str, Any]


class Row:
    """The four sites. The last one only dials, through a cable."""

    def __init__(self, place: Path, cluster: Document) -> None:
        self.koalas: list[live.Koala] = []
        for name, borrower in itertools.zip_longest(_ROW, _ROW[1:]):
            section: Document = {"borrow": _BORROWS} if self.koalas else {}
            if borrower is not None:
                section |= {"listen": (address := free_address()), "lend": _TERMS | {"to": [borrower]}}
            self.koalas.append(site(place, name, 1, **section))
            if name == _ROW[0]:
                grid = {"grid": "live", "clusters": {HEAD: cluster}, "site": {"name": name, **section}}
                self.koalas[0].write_grid(grid)
        host, port = address.rsplit(":", 1)
        self.cable = Cable((host, int(port)), Way(None), Way(None))

    def link(self) -> None:
        """Make each site the parent of the one nearer to the lender."""
        begin(*self.koalas)
        for name, (near, far) in zip(_ROW[1:], itertools.pairwise(self.koalas), strict=True):
            link(near, name, far, "parent", f"https://127.0.0.1:{self.cable.port}" if name == _ROW[-1] else "")
        self.wait_until_free()

    def wait_until_free(self) -> None:
        """Wait until every borrower has the report that it could have the processors."""
        for koala in self.koalas[1:]:
            koala.until(lambda: _free(koala) >= PROCESSORS)  # noqa: B023

    def messages(self) -> float:
        """All messages so far that the sites have received of each other."""
        pairs = [*itertools.pairwise(_ROW)]
        ends = dict(zip(_ROW, self.koalas, strict=True))
        texts = {name: metrics_of(koala) for name, koala in ends.items()}
        name = "koala_neighbour_messages_total"
        return sum(
            value(texts[here], name, neighbour=there, direction="received")
            for pair in pairs
            for here, there in (pair, pair[::-1])
        )

    def close(self) -> None:
        for koala in self.koalas:
            koala.stop()
        self.cable.close()


def _free(koala: live.Koala) -> int:
    return max(int(each["free"] or 0) for each in koala("sites", "--json").document["neighbours"])


@contextmanager
def row_of_sites() -> Iterator[tuple[Row, Document]]:
    """Linked and idle, and the section of the lender's cluster."""
    end_orderly()
    with testgrid.reserved(), tempfile.TemporaryDirectory(prefix="kb", dir="/tmp") as place:
        cluster = testgrid.up().grid(HEAD)["clusters"][HEAD]
        testgrid.reset()
        row = Row(Path(place), cluster)
        try:
            row.link()
            yield row, cluster
        finally:
            row.close()


def by_lease(row: Row, between: int) -> tuple[float, float]:
    """Seconds from the submit until a process runs, and the messages that the job has cost."""
    koala, before = row.koalas[between + 1], row.messages()
    began = time.time()
    job = koala.submit(live.sh("date +%s.%N", PROCESSORS, walltime="5m"), name="first", keep_output="home")
    ended = koala.end(job)
    if ended["state"] != "done":
        raise SystemExit(f"the job over {between} sites was not done: {koala('show', job).out}")
    first = min(float(line.split()[-1]) for line in koala("logs", job).out.splitlines())
    give_back(row, koala)
    return first - began, row.messages() - before


def give_back(row: Row, koala: live.Koala) -> None:
    """Return the only lease of a site once nothing is left on it. Wait until no site has a lease, and Slurm no job."""
    (lease,) = leases(koala)
    koala.until(lambda: koala("leases", "end", lease["name"]).status == 0)
    for each in row.koalas:
        each.until(lambda: not leases(each))  # noqa: B023
    row.koalas[0].until(lambda: allocation.run(HEAD, "squeue --noheader | wc -l") == "0")
    row.wait_until_free()


def by_sbatch() -> float:
    return allocation.by_command(HEAD, f"sbatch -n {PROCESSORS} -o /dev/null stamp.sh")


def starts(row: Row, rounds: int, chance: random.Random) -> Document:
    """Medians of the seconds to the first process and of the messages, by the number of sites between."""
    allocation.write_stamping(HEAD)
    ways: dict[str, Callable[[], tuple[float, float]]] = {
        str(between): lambda between=between: by_lease(row, between)  # type: ignore[misc]
        for between in range(len(_ROW) - 1)
    }
    ways["sbatch"] = lambda: (by_sbatch(), 0.0)
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for number in range(rounds):
        for way in chance.sample(sorted(ways), len(ways)):
            found[way].append(ways[way]())
            print(number, way, *(round(each, 2) for each in found[way][-1]), file=sys.stderr, flush=True)
    plain = statistics.median(took for took, _ in found.pop("sbatch"))
    rows = {}
    for way, each in found.items():
        took, messages = (statistics.median(values) for values in zip(*each, strict=True))
        rows[way] = {"start_s": round(took, 2), "over_sbatch_s": round(took - plain, 2), "messages": messages}
    return {"sbatch_s": round(plain, 2), "between": rows}


def idle_link(row: Row, seconds: int) -> Document:
    """Return the cost of the last link a minute: bytes each way, and processor time with and without it."""
    near, far, ways = row.koalas[-2], row.koalas[-1], (row.cable.up, row.cable.down)
    before = sum(way.carried for way in ways)
    linked = _cpu_s([near, far], seconds)
    carried, a_minute = sum(way.carried for way in ways) - before, 60 / seconds
    for koala, other in ((near, _ROW[-1]), (far, _ROW[-2])):
        koala("sites", "remove", other)
    alone = _cpu_s([near, far], seconds)
    return {
        "bytes_a_minute": round(carried * a_minute),
        "cpu_ms_a_minute": round(linked * a_minute * 1000),
        "cpu_ms_a_minute_without": round(alone * a_minute * 1000),
    }


def _cpu_s(koalas: list[live.Koala], seconds: int) -> float:
    """Processor seconds of these koalads, both together, in so many seconds."""
    pids = [int(koala("status", "--json").document["pid"]) for koala in koalas]
    before = sum(map(_spent_s, pids))
    time.sleep(seconds)
    return sum(map(_spent_s, pids)) - before


def _spent_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stream_over_a_site(row: Row, cluster: Document, rounds: int, size: int) -> Document:
    """Bytes a second from a node, over one site between and over a jump host."""
    koala = row.koalas[2]
    server = {"processors": PROCESSORS, "executable": "python3", "arguments": ["-c", streams.SERVER], "launch": "once"}
    job = koala.submit({**server, "walltime": "30m"}, name="server")
    koala.until(lambda: koala.job(job)["state"] == "running")
    (node,) = {str(host) for host in koala.job(job)["components"][0]["hosts"][:1]}
    with koala.client() as client, client.forward(job, PORT) as forwarding, by_jump(cluster, node) as ssh:
        ways = {"koala": forwarding.address, "ssh": ssh}
        for address in ways.values():
            streams.until(lambda: streams.answers(address))  # noqa: B023
        figures = streams.measure(ways, rounds, size)
    koala("cancel", job)
    koala.end(job)
    give_back(row, koala)
    medians = {name: {what: statistics.median(each) for what, each in found.items()} for name, found in figures.items()}
    ratio = {way: round(medians["koala"][way] / medians["ssh"][way], 3) for way in ("down", "up", "ping")}
    return {"of_ssh": ratio, "down_mb_s": round(medians["koala"]["down"] / 1e6, 1)}


@contextmanager
def by_jump(cluster: Document, node: str) -> Iterator[tuple[str, int]]:
    """OpenSSH's forwarding of a local port to the node: over a server on this machine, then over the head node."""
    with tempfile.TemporaryDirectory(prefix="kb", dir="/tmp") as place:
        between = Sshd(Path(place) / "sshd")
        where = urlsplit(cluster["connect"])
        jump = (
            f"ssh -F/dev/null -oBatchMode=yes -i {between.identity} -oUserKnownHostsFile={between.known_hosts}"
            f" -p {between.port} -W %h:%p {between.user}@127.0.0.1"
        )
        local = int(free_address().rsplit(":", 1)[1])
        command = ["ssh", "-N", "-F/dev/null", "-oBatchMode=yes", "-oControlPath=none", "-i", cluster["identity"]]
        command += [f"-oUserKnownHostsFile={cluster['known_hosts']}", f"-oProxyCommand={jump}"]
        command += [f"-L127.0.0.1:{local}:{node}:{PORT}", f"{where.username}@{where.hostname}"]
        ssh = subprocess.Popen(command)
        try:
            yield "127.0.0.1", local
        finally:
            ssh.terminate()
            ssh.wait()
            between.stop()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests/bench/run sites", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle", type=int, default=60, help="seconds for which the idle link is watched, twice")
    parser.add_argument("--megabytes", type=int, default=32, help="in each direction of a round")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with row_of_sites() as (row, cluster):
        detail = starts(row, arguments.rounds, random.Random(arguments.seed))
        detail["stream"] = stream_over_a_site(row, cluster, arguments.rounds, arguments.megabytes << 20)
        detail["idle_link"] = idle_link(row, arguments.idle)
    detail["load"] = round(os.getloadavg()[0], 1)
    figure = detail["between"]["0"]["over_sbatch_s"]
    last_line("sites", figure, "s over sbatch", BINDING_BOUND_S, figure <= BINDING_BOUND_S, detail)


if __name__ == "__main__":
    main()
