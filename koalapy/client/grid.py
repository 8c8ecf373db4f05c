"""`Grid`: a method for every call of koalad's HTTP API."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import quote

from koalapy.client.calls import Calls, NotReachable
from koalapy.client.daemon import start, wait_for_end
from koalapy.client.following import RECONNECT_S, FollowedLines, Reconnecting
from koalapy.client.forwarding import LOOPBACK, Forwarding
from koalapy.client.login import await_logins, log_in
from koalapy.client.submission import JobOrFile, as_posted, post
from koalapy.client.terminal import Terminal
from koalapy.common.lines import Writer
from koalapy.common.locations import Locations
from koalapy.model.errors import KoalaError, TransientError

if TYPE_CHECKING:  # they need typing_extensions, whose import takes 10 ms
    from koalapy.answers.clusters import (
        AdsAnswer,
        CleanAnswer,
        Cluster,
        ClusterChangeAnswer,
        Login,
        MatchAnswer,
        ReloadAnswer,
        UnknownAnswer,
    )
    from koalapy.answers.jobs import (
        ChangedAnswer,
        CheckAnswer,
        ExplainAnswer,
        FetchAnswer,
        Job,
        JobAnswer,
        SubmitAnswer,
        TerminalAnswer,
        TreeAnswer,
    )
    from koalapy.answers.koalad import (
        DiskAnswer,
        JournalAnswer,
        MaintenanceAnswer,
        MaintenanceRunAnswer,
        StatusAnswer,
        UnreadableAnswer,
        UsageAnswer,
    )
    from koalapy.answers.leases import LeaseAnswer, LeasesAnswer
    from koalapy.answers.pilots import Pilot, PilotAnswer
    from koalapy.answers.sites import LineAnswer, LinesAnswer, SiteCheckAnswer, SitesAnswer
    from koalapy.answers.sweeps import Result, Runner, RunnersAnswer
    from koalapy.client.login import Answer

FINAL = frozenset({"done", "failed", "cancelled"})
_LONGEST_WAIT_S = 30.0
_IDS_AT_ONCE = 1000  # in one URL
_COUNT_S = 90.0  # to count disk space
_SURVEY_S = 300.0  # for all clusters, a few at a time
_MAINTENANCE_S = 86_400.0
_DOWN_S, _CANCEL_S = 60.0, 660.0


class Grid:
    """The koalad of one grid.

    `grid` is the grid's name or the path of its grid file; None selects the default of the command line. koalad has
    `timeout` seconds for each answer. Answers are typed dictionaries (koalapy.answers).
    Every call raises KoalaError with koalad's own reason, or NotReachable if koalad does not answer.
    Any number of threads may share a Grid.
    """

    def __init__(self, grid: str | Path | None = None, *, timeout: float = 60.0) -> None:
        self.locations = Locations.of(grid)
        self._calls = Calls(self.locations, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: no connection stays open between two calls. A `with` block ends with this call."""

    def up(self) -> bool:
        """Start koalad and return when it is ready. Returns False if it ran already."""
        return start(self.locations, self.is_up)

    def is_up(self) -> bool:
        """Return whether koalad answers."""
        return self._calls.answers()

    def down(self, *, cancel: bool = False) -> None:
        """End koalad, and return when its process has ended. Jobs run on, unless `cancel`.

        Raises TransientError if the process still exists after 60 s, or 660 s with `cancel`.
        """
        pid = int(self.status()["pid"])
        self.shutdown(cancel=cancel)
        patience_s = _CANCEL_S if cancel else _DOWN_S
        if not wait_for_end(pid, patience_s):
            message = f"koalad (process {pid}) is still up after {patience_s:.0f} s."
            raise TransientError("still_up", message, "`koala status` shows what keeps it.")

    def submit(
        self,
        job: JobOrFile,
        *,
        directory: str | Path | None = None,
        overrides: Mapping[str, str] | None = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
        notify: Sequence[Mapping[str, Any]] | None = None,
        after: Sequence[int] = (),
    ) -> int:
        """Submit a job or a flow, and return its id. `job` is the path of a job file, or its content as a mapping.

        `labels` are added to those of the job, and replace those of the same name. `notify` replaces the job's own, by
        entries as a job file has them: `[{"mail": "me@example.org"}]`; `[]` notifies nobody.
        A second request with the same `key` returns the same job. By default the key is new in every call.
        `after`: ids of jobs that must be done before this one may begin.
        """
        values = {**(overrides or {}), **({"after": str(list(after))} if after else {})}
        return int(self.accept(job, directory=directory, overrides=values, key=key, labels=labels, notify=notify)["id"])

    def accept(
        self,
        job: JobOrFile,
        *,
        directory: str | Path | None = None,
        overrides: Mapping[str, str] | None = None,
        key: str | None = None,
        source: str = "job",
        labels: Mapping[str, str] | None = None,
        notify: Sequence[Mapping[str, Any]] | None = None,
    ) -> SubmitAnswer:
        """Submit a job as `submit` does, and return the whole answer: schema koala.submit/1.

        `source` is the name of a mapping in errors.
        """
        body = as_posted(job, directory, overrides, key, source, labels, notify)
        return cast("SubmitAnswer", post(self._calls, "/v1/jobs", body))

    def resubmit(
        self,
        job: int,
        *,
        failed: bool = False,
        overrides: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> int:
        """Submit the same job again, with its files as they are now, and return the new job's id.

        `failed` selects the parameters of a final sweep that did not end with 0, or the jobs of a final flow that are
        not done. A sweep and a flow take no `overrides`.
        """
        return int(self.accept_again(job, failed=failed, overrides=overrides, key=key)["id"])

    def accept_again(
        self,
        job: int,
        *,
        failed: bool = False,
        overrides: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> SubmitAnswer:
        """Submit a job again as `resubmit` does, and return the whole answer: schema koala.submit/1."""
        body = {"failed": failed, "overrides": dict(overrides or {}), "key": key or uuid.uuid4().hex}
        return cast("SubmitAnswer", self._calls.call("POST", f"/v1/jobs/{job}/resubmit", json=body))

    def submit_many(
        self,
        jobs: Sequence[JobOrFile],
        *,
        directory: str | Path | None = None,
        overrides: Mapping[str, str] | None = None,
        keys: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
        notify: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[int]:
        """Submit many jobs in one request, and return their ids in this order. All are accepted, or none.

        `keys` has one key for each job. `labels` are added to all jobs. `notify` replaces that of each job.
        """
        if not jobs:
            return []
        given: Sequence[str | None] = keys or [None] * len(jobs)
        bodies = [
            as_posted(job, directory, overrides, key, labels=labels, notify=notify)
            for job, key in zip(jobs, given, strict=True)
        ]
        return [int(job) for job in post(self._calls, "/v1/jobs/batch", {"jobs": bodies})["ids"]]

    def check(
        self,
        *jobs: JobOrFile,
        directory: str | Path | None = None,
        overrides: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        source: str = "job",
        notify: Sequence[Mapping[str, Any]] | None = None,
    ) -> CheckAnswer:
        """Check jobs without submitting them: schema koala.check/1.

        Raises RequestError for the first job that `submit` would refuse.
        """
        bodies = [as_posted(job, directory, overrides, None, source, labels, notify) for job in jobs]
        return cast("CheckAnswer", post(self._calls, "/v1/jobs/check", {"jobs": bodies}))

    def jobs(
        self,
        states: Sequence[str] = (),
        ids: Sequence[int] = (),
        labels: Sequence[str] = (),
        *,
        parts: bool = True,
    ) -> list[Job]:
        """List jobs by id, final ones included. `states`, `ids` and `labels` select among them.

        A label is KEY or KEY=VALUE; a job has all of them. `parts`: the jobs of flows too.
        """
        wanted = [("state", state) for state in states] + [("label", label) for label in labels]
        wanted += [] if parts else [("parts", "false")]
        found: list[Job] = []
        for some in _chunks(sorted(set(ids))) or [[]]:
            parameters = wanted + [("id", str(job)) for job in some]
            found += self._calls.call("GET", "/v1/jobs", params=parameters)["jobs"]
        return found

    def flow(self, flow: int, states: Sequence[str] = ()) -> list[Job]:
        """List the jobs of a flow by id, all or those in these states. Raises RequestError if it is not a flow."""
        wanted = [("flow", str(flow)), *[("state", state) for state in states]]
        return list(self._calls.call("GET", "/v1/jobs", params=wanted)["jobs"])

    def tree(self, flow: int, skip: int = 0, most: int = 200) -> TreeAnswer:
        """Return at most 1,000 jobs of a flow in the order of its tree, behind the first `skip`: schema koala.tree/1.

        Raises RequestError if it is not a flow.
        """
        wanted = [("skip", str(skip)), ("most", str(most))]
        return cast("TreeAnswer", self._calls.call("GET", f"/v1/jobs/{flow}/tree", params=wanted))

    def unreadable(self) -> UnreadableAnswer:
        """List records of the store that koalad failed to read: schema koala.unreadable/1."""
        return cast("UnreadableAnswer", self._calls.call("GET", "/v1/unreadable"))

    def metrics(self) -> str:
        """Return koalad's metrics in Prometheus' text format."""
        cut = TransientError("cut", "koalad broke off its answer.", "Ask again.")
        with self._calls.stream("/metrics", {}, cut) as pieces:
            return b"".join(pieces).decode()

    def usage(self, by: str = "user", since: str | None = None, until: str | None = None) -> UsageAnswer:
        """Sum processor-seconds by user, cluster, job, day or site, within [since, until): schema koala.usage/1.

        `since` and `until` are instants as RFC 3339 writes them.
        """
        bounds = {"since": since, "until": until}
        parameters = {"by": by, **{name: bound for name, bound in bounds.items() if bound is not None}}
        return cast("UsageAnswer", self._calls.call("GET", "/v1/usage", params=parameters))

    def show(self, job: int) -> JobAnswer:
        """Return a job, its request and its history: schema koala.job/1."""
        return cast("JobAnswer", self._calls.call("GET", f"/v1/jobs/{job}"))

    def wait(self, jobs: Sequence[int], timeout: float | None = None) -> list[Job]:
        """Wait until all jobs are final, and return them in this order.

        Raises TimeoutError after `timeout` seconds; the jobs continue.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        found: dict[int, Job] = {}
        for some in _chunks(list(jobs)):
            found |= {job["id"]: job for job in self._wait(some, deadline)}
        return [found[job] for job in jobs]

    def _wait(self, jobs: Sequence[int], deadline: float | None) -> list[Job]:
        while True:
            left = _LONGEST_WAIT_S if deadline is None else max(0.0, min(_LONGEST_WAIT_S, deadline - time.monotonic()))
            parameters = [("id", str(job)) for job in jobs] + [("timeout", str(left))]
            found = list(self._calls.call("GET", "/v1/wait", params=parameters, wait_s=left)["jobs"])
            if all(job["state"] in FINAL for job in found):
                return found
            if deadline is not None and time.monotonic() >= deadline:
                unfinished = [str(job["id"]) for job in found if job["state"] not in FINAL]
                what = f"Job {unfinished[0]} is" if len(unfinished) == 1 else f"Jobs {', '.join(unfinished)} are"
                raise TimeoutError(f"{what} not final yet.")

    def cancel(self, job: int, *, force: bool = False) -> Job:
        """Cancel a job, and return it as it is now: it may still be stopping. Raises RequestError if it is final."""
        return cast("Job", self._calls.call("POST", f"/v1/jobs/{job}/cancel", json={"force": force})["job"])

    def fetch(
        self,
        job: int,
        paths: Sequence[str] = (),
        *,
        directory: str | Path | None = None,
        timeout: float = _LONGEST_WAIT_S,
    ) -> FetchAnswer:
        """Fetch the files that the job stages out, or these paths, into the job's directory, or into this one.

        Schema koala.fetch/1. Its state is `fetching` after `timeout` seconds; repeat the call to wait longer.
        """
        body: dict[str, Any] = {"paths": list(paths)}
        if directory is not None:
            body["directory"] = str(Path(directory).absolute())
        path, parameters = f"/v1/jobs/{job}/fetch", {"timeout": timeout}
        return cast("FetchAnswer", self._calls.call("POST", path, json=body, params=parameters, wait_s=timeout))

    def cancel_many(self, jobs: Sequence[int], *, force: bool = False) -> ChangedAnswer:
        """Cancel many jobs in one request: schema koala.changed/1. `refused` lists the others."""
        return self._change("cancel", jobs, force=force)

    def hold_many(self, jobs: Sequence[int]) -> ChangedAnswer:
        """Hold many jobs in one request: schema koala.changed/1. `refused` lists the others."""
        return self._change("hold", jobs)

    def release_many(self, jobs: Sequence[int]) -> ChangedAnswer:
        """Allow many held jobs to be placed again: schema koala.changed/1. `refused` lists the others."""
        return self._change("release", jobs)

    def hold(self, job: int) -> Job:
        """Keep a waiting job from being placed. Raises RequestError if it is in another state."""
        return cast("Job", self._calls.call("POST", f"/v1/jobs/{job}/hold")["job"])

    def release(self, job: int) -> Job:
        """Allow a held job to be placed again. Raises RequestError if it is in another state."""
        return cast("Job", self._calls.call("POST", f"/v1/jobs/{job}/release")["job"])

    def explain(self, job: int) -> ExplainAnswer:
        """Explain why a job waits or failed: schema koala.explain/1."""
        return cast("ExplainAnswer", self._calls.call("GET", f"/v1/jobs/{job}/explain"))

    def output(
        self,
        job: int,
        *,
        stream: str = "output",
        component: int | None = None,
        follow: bool = False,
        parameter: int | None = None,
        prefix: bool | None = None,
        reconnect: float | Reconnecting = RECONNECT_S,
        without: Writer | None = None,
    ) -> Iterator[bytes]:
        """Yield the output of the last attempt's processes, ordered by component and rank.

        With `follow` it yields whole lines of all components as they are written, until the job is final.
        With `prefix` each line begins with `[component.rank] `; None: if several components are followed.
        For a sweep, `parameter` is the number of the parameter whose output is wanted. `without`: a process whose
        output is left out, if it is followed.
        Following continues after a restart of koalad. The logger `koalapy` reports each interruption.
        Raises TransientError, code `cut`, if the output breaks off, or NotReachable after `reconnect` seconds.
        """
        if follow and parameter is None:
            patience = reconnect if isinstance(reconnect, Reconnecting) else Reconnecting(reconnect)
            yield from self._followed(job, stream, component, prefix, patience, without)
            return
        parameters: dict[str, Any] = {"stream": stream}
        if component is not None:
            parameters["component"] = component
        if parameter is not None:
            parameters["parameter"] = parameter
        if prefix is not None:
            parameters["prefix"] = prefix
        cut = TransientError("cut", f"The output of job {job} broke off.", "Ask for it again.")
        with self._calls.stream(f"/v1/jobs/{job}/output", parameters, cut) as chunks:
            yield from chunks

    def _followed(
        self,
        job: int,
        stream: str,
        component: int | None,
        prefix: bool | None,
        reconnecting: Reconnecting,
        without: Writer | None,
    ) -> Iterator[bytes]:
        """Request output again and again, each time from where the answer before broke off. Raises KoalaError."""
        lines = FollowedLines(prefix, without)
        cut = TransientError("cut", f"The output of job {job} broke off.", "Ask for it again.")
        while not lines.has_ended:
            body = {"stream": stream, "component": component, "positions": lines.restart()}
            asked_at = time.monotonic()
            try:
                with self._calls.frames(f"/v1/jobs/{job}/follow", body, cut) as pieces:
                    for number, piece in enumerate(pieces):
                        shown = lines.feed(piece)
                        if number:  # a koalad that is ending also begins an answer
                            reconnecting.answered(asked_at)
                        if shown:
                            yield shown
            except NotReachable as error:
                reconnecting.pause(error)
            except TransientError as error:
                if error is not cut:
                    raise

    def forward(
        self,
        job: int,
        port: int,
        *,
        component: int | None = None,
        rank: int = 0,
        listen: tuple[str, int] = (LOOPBACK, 0),
        failed: Callable[[KoalaError], None] | None = None,
    ) -> Forwarding:
        """Bring a port of a running job to this machine, as `ssh -L` does, until the result is closed.

        `port` is of 127.0.0.1 on the node of this `rank` of the component. `listen`: address and port here; port 0 is a
        free one, and the result has its number. Every connection becomes one of the job's program. `failed` is called
        with the error of each that was refused or broke; by default the logger `koalapy` reports it.
        """
        path = f"/v1/jobs/{job}/forward"
        params = {"port": port, "rank": rank, **({} if component is None else {"component": component})}
        document = self._calls.call("GET", path, params=params)
        return Forwarding(self._calls, path, params, document, listen, failed or _log_failed)

    def terminal(self, job: int) -> TerminalAnswer:
        """Return where the terminal of a running interactive job is: schema koala.terminal/1. Raises KoalaError."""
        return cast("TerminalAnswer", self._calls.call("GET", f"/v1/jobs/{job}/terminal"))

    def attach(self, job: int, *, take: bool = False) -> Terminal:
        """Attach to the terminal of a running interactive job, until the result is closed; the program runs on.

        `take`: also if another client is attached, which loses it. Raises KoalaError.
        """
        return Terminal(self._calls, f"/v1/jobs/{job}/terminal", {"take": take})

    def runners(self, states: Sequence[str] = ()) -> list[Runner]:
        """List the CS-Runners of sweeps that are not final, or that are in these states."""
        return list(self.admission(states)["runners"])

    def admission(self, states: Sequence[str] = ()) -> RunnersAnswer:
        """List CS-Runners, with the forecast that admission uses: schema koala.runners/1."""
        return cast(
            "RunnersAnswer", self._calls.call("GET", "/v1/runners", params=[("state", state) for state in states])
        )

    def results(self, sweep: int, *, failed: bool = False) -> Iterator[Result]:
        """Yield the result of each parameter, in the order of their records, as they arrive: there may be millions.

        `failed` selects parameters that did not end with 0. Raises TransientError, code `cut`, if it breaks off.
        """
        for line in _lines(self.results_as("jsonl", sweep, failed=failed)):
            yield json.loads(line)

    def results_as(self, form: str, sweep: int, *, failed: bool = False) -> Iterator[bytes]:
        """Yield results as bytes. `form` is json (one answer koala.results/1), jsonl (a line each) or csv."""
        cut = TransientError("cut", f"The results of sweep {sweep} broke off.", "Ask for them again.")
        path, parameters = f"/v1/sweeps/{sweep}/results", {"format": form, "failed": failed}
        with self._calls.stream(path, parameters, cut) as chunks:
            yield from chunks

    def clusters(self) -> list[Cluster]:
        """List the clusters of the grid."""
        return list(self._calls.call("GET", "/v1/clusters")["clusters"])

    def ads(self) -> AdsAnswer:
        """List the attributes of each cluster that requirements and ranks can name: schema koala.ads/1."""
        return cast("AdsAnswer", self._calls.call("GET", "/v1/clusters/ads"))

    def match(
        self,
        job: JobOrFile,
        *,
        directory: str | Path | None = None,
        overrides: Mapping[str, str] | None = None,
        source: str = "job",
    ) -> MatchAnswer:
        """List the clusters and groups of clusters that a job fits on now: schema koala.match/1.

        Nothing is submitted.
        """
        body = as_posted(job, directory, overrides, None, source)
        return cast("MatchAnswer", post(self._calls, "/v1/match", body))

    def add_cluster(self, name: str, values: Mapping[str, str]) -> ClusterChangeAnswer:
        """Add a cluster with these values by key, written as in a grid file: schema koala.cluster/1.

        It is kept over restarts of koalad, and connects in the background.
        """
        body = {"name": name, "values": dict(values)}
        return cast("ClusterChangeAnswer", self._calls.call("POST", "/v1/clusters", json=body))

    def remove_cluster(self, name: str, *, force: bool = False) -> ClusterChangeAnswer:
        """Remove a cluster: schema koala.cluster/1. Raises RequestError if koalapy has something there.

        `force` gives that up: attempts there count as lost, and nobody cancels them.
        """
        path, parameters = f"/v1/clusters/{quote(name, safe='')}", {"force": force}
        return cast("ClusterChangeAnswer", self._calls.call("DELETE", path, params=parameters))

    def drain_cluster(self, name: str) -> ClusterChangeAnswer:
        """Place nothing on a cluster any more; what runs there goes on: schema koala.cluster/1."""
        return self._change_cluster(name, "drain")

    def resume_cluster(self, name: str) -> ClusterChangeAnswer:
        """Place jobs on a drained cluster again: schema koala.cluster/1."""
        return self._change_cluster(name, "resume")

    def _change_cluster(self, name: str, what: str) -> ClusterChangeAnswer:
        path = f"/v1/clusters/{quote(name, safe='')}/{what}"
        return cast("ClusterChangeAnswer", self._calls.call("POST", path))

    def pilots(self, *, ended: bool = False) -> list[Pilot]:
        """List the pilots that are not over; with `ended` also the others, unless they are pruned."""
        return list(self._calls.call("GET", "/v1/pilots", params={"ended": ended})["pilots"])

    def open_pilot(
        self,
        cluster: str,
        processors: int,
        *,
        nodes: int | None = None,
        walltime_s: float = 4 * 3600,
        idle_s: float = 600,
        shared: bool = False,
        isolate: str | None = None,
        options: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> PilotAnswer:
        """Hold processors of a cluster, which become a cluster of their own once they are there: schema koala.pilot/1.

        It ends after `walltime_s`, or after `idle_s` without a job. `shared`: jobs that do not name it are placed there
        too. `isolate`: none, auto, bwrap or unshare; by default as in the grid file. `options`: queue, account, qos
        and constraint of its batch job. A second request with the same `key` returns the same pilot. Returns at once.
        """
        body = {
            "cluster": cluster, "processors": processors, "nodes": nodes, "walltime_s": walltime_s, "idle_s": idle_s,
            "shared": shared, "isolate": isolate, "key": key or uuid.uuid4().hex, **(options or {}),
        }  # fmt: skip
        return cast("PilotAnswer", self._calls.call("POST", "/v1/pilots", json=body))

    def close_pilot(self, name: str, *, drain: bool = False, force: bool = False) -> PilotAnswer:
        """Begin to end a pilot: schema koala.pilot/1. Raises RequestError if jobs are there.

        `drain`: it ends when nothing is left there. `force`: what is there is lost.
        """
        path = f"/v1/pilots/{quote(name, safe='')}/close"
        return cast("PilotAnswer", self._calls.call("POST", path, json={"drain": drain, "force": force}))

    def leases(self, *, ended: bool = False, since: str | None = None) -> LeasesAnswer:
        """Return the leases that are not over, and the processor time of those that are: schema koala.leases/1.

        With `ended`, return those too, as far as they ended after `since`, an instant as RFC 3339 writes it.
        """
        wanted = {"ended": "true"} if ended else {}
        parameters = wanted | ({"since": since} if since is not None else {})
        return cast("LeasesAnswer", self._calls.call("GET", "/v1/leases", params=parameters))

    def end_lease(self, name: str, *, force: bool = False) -> LeaseAnswer:
        """Begin to end a lease, lent or borrowed: schema koala.lease/1.

        `force`: return it although jobs are on it. Raises RequestError if jobs are on it otherwise.
        """
        path = f"/v1/leases/{quote(name, safe='')}/end"
        return cast("LeaseAnswer", self._calls.call("POST", path, json={"force": force}))

    def reload(self, *, check: bool = False) -> ReloadAnswer:
        """Make koalad read its grid file again, and return what that changes: schema koala.reload/1.

        `check` changes nothing, and lists in `refused` why it would be refused.
        """
        return cast("ReloadAnswer", self._calls.call("POST", "/v1/reload", json={"check": check}))

    def sites(self) -> SitesAnswer:
        """Return this site, its neighbours, and the connections that were refused: schema koala.sites/1.

        Raises RequestError if the grid is no site.
        """
        return cast("SitesAnswer", self._calls.call("GET", "/v1/sites"))

    def invite_site(self, neighbour: str, *, relation: str = "sibling", url: str | None = None) -> LineAnswer:
        """Make the line with which another site joins this one: schema koala.site_line/1.

        `relation`: what the other site is to this one. `url`: where this one is reached, if not by `listen`.
        """
        parameters = {"neighbour": neighbour, "relation": relation} | ({"url": url} if url else {})
        return cast("LineAnswer", self._calls.call("GET", "/v1/sites/invitation", params=parameters))

    def join_site(self, line: str, *, replace: bool = False) -> LineAnswer:
        """Make a site a neighbour by its line, and return the line to answer with: schema koala.site_line/1.

        `replace`: take its key in place of another one.
        """
        body = {"line": line, "replace": replace}
        return cast("LineAnswer", self._calls.call("POST", "/v1/sites/neighbours", json=body))

    def remove_site(self, neighbour: str) -> SitesAnswer:
        """End the link with a neighbour, and forget what is known of it: schema koala.sites/1."""
        path = f"/v1/sites/neighbours/{quote(neighbour, safe='')}"
        return cast("SitesAnswer", self._calls.call("DELETE", path))

    def check_site(self, neighbour: str, *, size: int = 16 << 20) -> SiteCheckAnswer:
        """Send this many bytes to a connected neighbour, and measure the link: schema koala.site_check/1."""
        path = f"/v1/sites/neighbours/{quote(neighbour, safe='')}/check"
        return cast("SiteCheckAnswer", self._calls.call("POST", path, params={"size": size}, wait_s=_COUNT_S))

    def rotate_site(self) -> LinesAnswer:
        """Replace this site's key. Returns the line that each neighbour has to join: schema koala.site_lines/1."""
        return cast("LinesAnswer", self._calls.call("POST", "/v1/sites/key"))

    def disk(self) -> DiskAnswer:
        """Count the disk space that koalapy uses, which may take a minute: schema koala.disk/1."""
        return cast("DiskAnswer", self._calls.call("GET", "/v1/disk", wait_s=_COUNT_S))

    def journal(self) -> JournalAnswer:
        """Return koalad's last events and decisions, without secrets, for a replay: schema koala.journal/1."""
        return cast("JournalAnswer", self._calls.call("GET", "/v1/journal", wait_s=_COUNT_S))

    def status(self) -> StatusAnswer:
        """Return the state of koalad: schema koala.status/1."""
        return cast("StatusAnswer", self._calls.call("GET", "/v1/status"))

    def unknown(self, clusters: Sequence[str] = ()) -> UnknownAnswer:
        """Survey these clusters, or all, for tags that the store does not know: schema koala.unknown/1."""
        parameters = [("cluster", each) for each in clusters]
        return cast("UnknownAnswer", self._calls.call("GET", "/v1/unknown", params=parameters, wait_s=_SURVEY_S))

    def clean(self, tag: str, cluster: str | None = None, *, timeout: float = _LONGEST_WAIT_S) -> CleanAnswer:
        """Cancel the batch job of such a tag and remove its directory. It may be a live job of another store.

        Schema koala.clean/1. Its state is `cleaning` after `timeout` seconds; repeat the call to wait longer.
        """
        path = f"/v1/unknown/{quote(tag, safe='')}/clean"
        parameters, body = {"timeout": timeout}, {"cluster": cluster}
        return cast("CleanAnswer", self._calls.call("POST", path, params=parameters, json=body, wait_s=timeout))

    def maintenance(self) -> MaintenanceAnswer:
        """List the maintenance tasks of the grid file and their last runs: schema koala.maintenance/1."""
        return cast("MaintenanceAnswer", self._calls.call("GET", "/v1/maintenance"))

    def maintain(
        self, name: str, *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> MaintenanceRunAnswer:
        """Run a maintenance task now, and return when it is done: schema koala.maintenance-run/1.

        `options` replace those of the grid file.
        """
        body = {"dry_run": dry_run, "options": dict(options or {})}
        path = f"/v1/maintenance/{quote(name, safe='')}/run"
        return cast("MaintenanceRunAnswer", self._calls.call("POST", path, json=body, wait_s=_MAINTENANCE_S))

    def logins(self, *, retry: bool = False) -> list[Login]:
        """List the state of the login on each cluster; `retry` tries those again that koalad has given up."""
        return list(self._calls.call("POST" if retry else "GET", "/v1/logins")["logins"])

    def login(self, cluster: str, answer: Answer) -> Login:
        """Log in on a cluster that is not connected, and return the login's final state.

        `answer` receives each question, and returns an answer to each of its prompts. A notice has no prompts.
        """
        return log_in(self._calls, cluster, answer)

    def await_logins(self, timeout: float) -> list[Login]:
        """Wait until each login has asked, connected or failed, at most `timeout` seconds, and list all logins."""
        await_logins(self._calls, self.logins(), timeout)
        return self.logins()

    def shutdown(self, *, cancel: bool = False) -> None:
        """Order koalad to end, and return at once. Jobs run on, unless `cancel`."""
        self._calls.call("POST", "/v1/shutdown", json={"cancel": cancel})

    def _change(self, what: str, jobs: Sequence[int], **options: Any) -> ChangedAnswer:
        found = [
            self._calls.call("POST", f"/v1/jobs/{what}", json={"ids": list(some), **options})
            for some in _chunks(list(dict.fromkeys(jobs)))
        ]
        return {
            "schema": "koala.changed/1",
            "jobs": [job for answer in found for job in answer["jobs"]],
            "refused": [job for answer in found for job in answer["refused"]],
        }


def _log_failed(error: KoalaError) -> None:
    logging.getLogger("koalapy").warning("%s", error)


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield whole lines from chunks that may end anywhere."""
    left = b""
    for chunk in chunks:
        *whole, left = (left + chunk).split(b"\n")
        yield from whole


def _chunks(ids: Sequence[int]) -> list[Sequence[int]]:
    return [ids[start : start + _IDS_AT_ONCE] for start in range(0, len(ids), _IDS_AT_ONCE)]
