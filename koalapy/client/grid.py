"""`Grid`: every call of koalad's HTTP API, a method each."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import quote

from koalapy.calls import Calls, NotReachable
from koalapy.client import dialogue
from koalapy.client.dialogue import Answer
from koalapy.client.following import RECONNECT_S, FollowedLines, Reconnecting
from koalapy.client.submission import JobOrFile, as_posted, post
from koalapy.daemon import start, wait_for_end
from koalapy.locations import Locations
from koalapy.model.errors import TransientError

if TYPE_CHECKING:  # they need typing_extensions, whose import takes 10 ms
    from koalapy import answers

_FINAL = frozenset({"done", "failed", "cancelled"})
_LONGEST_WAIT_S = 30.0
_IDS_AT_ONCE = 1000  # in one address
_COUNT_S = 90.0  # of what lies on disks
_SURVEY_S = 300.0  # all clusters, a few at a time
_MAINTENANCE_S = 86_400.0
_DOWN_S, _CANCEL_S = 60.0, 660.0


class Grid:
    """One grid's koalad. Every call raises KoalaError with koalad's own reason, NotReachable if nobody answers.

    `grid` is the grid's name, or the path of its grid file; None: as the command line's default. `timeout`: seconds for
    koalad to answer. Answers are the JSON documents of the API as typed dictionaries (koalapy.answers).
    Any number of threads may use it at the same time.
    """

    def __init__(self, grid: str | Path | None = None, *, timeout: float = 60.0) -> None:
        self.locations = Locations.of(grid)
        self._calls = Calls(self.locations, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """As the end of a `with` block; nothing is held open between two calls."""

    def up(self) -> bool:
        """Start koalad if it does not run, and return when it is ready. False if it ran already."""
        return start(self.locations, self.is_up)

    def is_up(self) -> bool:
        return self._calls.answers()

    def down(self, *, cancel: bool = False) -> None:
        """End koalad, and return when its process is gone. Jobs run on, unless `cancel`."""
        pid = int(self.status()["pid"])
        self.shutdown(cancel=cancel)
        patience_s = _CANCEL_S if cancel else _DOWN_S
        if not wait_for_end(pid, patience_s):
            message = f"koalad (process {pid}) is still up after {patience_s:.0f} s."
            raise TransientError("still_up", message, "`koala status` says what keeps it.")

    def submit(
        self,
        job: JobOrFile,
        *,
        directory: str | Path | None = None,
        overrides: Mapping[str, str] | None = None,
        key: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> int:
        """The id of the accepted job. `job` is a job file's path, or the same as a mapping.

        `labels` are added to those of the job, and replace those of the same key.
        The same `key` again is the same job; one is made where none is given, so that a repeated request after a cut
        connection does not make two.
        """
        return int(self.accept(job, directory=directory, overrides=overrides, key=key, labels=labels)["id"])

    def accept(
        self,
        job: JobOrFile,
        *,
        directory: str | Path | None = None,
        overrides: Mapping[str, str] | None = None,
        key: str | None = None,
        source: str = "job",
        labels: Mapping[str, str] | None = None,
    ) -> answers.SubmitAnswer:
        """As `submit`, with all that koalad says of it: schema koala.submit/1.

        `source`: what errors call a mapping.
        """
        body = as_posted(job, directory, overrides, key, source, labels)
        return cast("answers.SubmitAnswer", post(self._calls, "/v1/jobs", body))

    def resubmit(
        self,
        job: int,
        *,
        failed: bool = False,
        overrides: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> int:
        """Submit the same job once more, with its files as they are now; the new job's id.

        `failed`: of a sweep that is over, only the parameters that did not end with 0. `overrides`: not of a sweep.
        """
        return int(self.accept_again(job, failed=failed, overrides=overrides, key=key)["id"])

    def accept_again(
        self,
        job: int,
        *,
        failed: bool = False,
        overrides: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> answers.SubmitAnswer:
        """As `resubmit`, with all that koalad says of it: schema koala.submit/1."""
        body = {"failed": failed, "overrides": dict(overrides or {}), "key": key or uuid.uuid4().hex}
        return cast("answers.SubmitAnswer", self._calls.call("POST", f"/v1/jobs/{job}/resubmit", json=body))

    def submit_many(
        self,
        jobs: Sequence[JobOrFile],
        *,
        directory: str | Path | None = None,
        overrides: Mapping[str, str] | None = None,
        keys: Sequence[str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> list[int]:
        """The ids of many jobs, in this order: as `submit`, but by one request, and all of them are accepted or none.

        `keys`: one a job. `labels`: those of all of them.
        """
        if not jobs:
            return []
        given: Sequence[str | None] = keys or [None] * len(jobs)
        bodies = [
            as_posted(job, directory, overrides, key, labels=labels) for job, key in zip(jobs, given, strict=True)
        ]
        return [int(job) for job in post(self._calls, "/v1/jobs/batch", {"jobs": bodies})["ids"]]

    def check(
        self,
        *jobs: JobOrFile,
        directory: str | Path | None = None,
        overrides: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        source: str = "job",
    ) -> answers.CheckAnswer:
        """What would be submitted: schema koala.check/1. Nothing is.

        Raises RequestError for the first job that `submit` would refuse.
        """
        bodies = [as_posted(job, directory, overrides, None, source, labels) for job in jobs]
        return cast("answers.CheckAnswer", post(self._calls, "/v1/jobs/check", {"jobs": bodies}))

    def jobs(
        self, states: Sequence[str] = (), ids: Sequence[int] = (), labels: Sequence[str] = ()
    ) -> list[answers.Job]:
        """Jobs by id, finished ones too; of these states, and of these ids, if there are any.

        `labels`: those that a job has, each KEY or KEY=VALUE.
        """
        wanted = [("state", state) for state in states] + [("label", label) for label in labels]
        found: list[answers.Job] = []
        for some in _chunks(sorted(set(ids))) or [[]]:
            parameters = wanted + [("id", str(job)) for job in some]
            found += self._calls.call("GET", "/v1/jobs", params=parameters)["jobs"]
        return found

    def unreadable(self) -> answers.UnreadableAnswer:
        """Records of the store that could not be read so far: schema koala.unreadable/1."""
        return cast("answers.UnreadableAnswer", self._calls.call("GET", "/v1/unreadable"))

    def metrics(self) -> str:
        """What koalad tells a Prometheus, in its text format."""
        cut = TransientError("cut", "koalad broke off its answer.", "Ask again.")
        with self._calls.stream("/metrics", {}, cut) as pieces:
            return b"".join(pieces).decode()

    def usage(self, by: str = "user", since: str | None = None, until: str | None = None) -> answers.UsageAnswer:
        """Processor-seconds by user, cluster, job or day, within [since, until): schema koala.usage/1.

        `since` and `until` are RFC 3339 instants.
        """
        bounds = {"since": since, "until": until}
        parameters = {"by": by, **{name: bound for name, bound in bounds.items() if bound is not None}}
        return cast("answers.UsageAnswer", self._calls.call("GET", "/v1/usage", params=parameters))

    def show(self, job: int) -> answers.JobAnswer:
        """The job and its events: schema koala.job/1."""
        return cast("answers.JobAnswer", self._calls.call("GET", f"/v1/jobs/{job}"))

    def wait(self, jobs: Sequence[int], timeout: float | None = None) -> list[answers.Job]:
        """The jobs, in this order, once all of them are over.

        `timeout` is in seconds. Raises TimeoutError after that time; the jobs go on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        found: dict[int, answers.Job] = {}
        for some in _chunks(list(jobs)):
            found |= {job["id"]: job for job in self._wait(some, deadline)}
        return [found[job] for job in jobs]

    def _wait(self, jobs: Sequence[int], deadline: float | None) -> list[answers.Job]:
        while True:
            left = _LONGEST_WAIT_S if deadline is None else max(0.0, min(_LONGEST_WAIT_S, deadline - time.monotonic()))
            parameters = [("id", str(job)) for job in jobs] + [("timeout", str(left))]
            found = list(self._calls.call("GET", "/v1/wait", params=parameters, wait_s=left)["jobs"])
            if all(job["state"] in _FINAL for job in found):
                return found
            if deadline is not None and time.monotonic() >= deadline:
                left_over = [str(job["id"]) for job in found if job["state"] not in _FINAL]
                what = f"Job {left_over[0]} is" if len(left_over) == 1 else f"Jobs {', '.join(left_over)} are"
                raise TimeoutError(f"{what} not over yet.")

    def cancel(self, job: int, *, force: bool = False) -> answers.Job:
        """End a job, and return it as it is now: it may still be stopping. Raises RequestError if it is over."""
        return cast("answers.Job", self._calls.call("POST", f"/v1/jobs/{job}/cancel", json={"force": force})["job"])

    def fetch(
        self,
        job: int,
        paths: Sequence[str] = (),
        *,
        directory: str | Path | None = None,
        timeout: float = _LONGEST_WAIT_S,
    ) -> answers.FetchAnswer:
        """Bring what the job's last attempts left, or these paths of it, to the job's directory, or to this one.

        Schema koala.fetch/1; its state is `fetching` if that takes longer than `timeout` seconds: ask again to wait.
        """
        body: dict[str, Any] = {"paths": list(paths)}
        if directory is not None:
            body["directory"] = str(Path(directory).absolute())
        path, parameters = f"/v1/jobs/{job}/fetch", {"timeout": timeout}
        return cast("answers.FetchAnswer", self._calls.call("POST", path, json=body, params=parameters, wait_s=timeout))

    def cancel_many(self, jobs: Sequence[int], *, force: bool = False) -> answers.ChangedAnswer:
        """By one request: schema koala.changed/1, with those that were `refused`."""
        return self._change("cancel", jobs, force=force)

    def hold_many(self, jobs: Sequence[int]) -> answers.ChangedAnswer:
        return self._change("hold", jobs)

    def release_many(self, jobs: Sequence[int]) -> answers.ChangedAnswer:
        return self._change("release", jobs)

    def hold(self, job: int) -> answers.Job:
        """Keep a waiting job from starting. Raises RequestError if it is in another state."""
        return cast("answers.Job", self._calls.call("POST", f"/v1/jobs/{job}/hold")["job"])

    def release(self, job: int) -> answers.Job:
        """Let a held job go. Raises RequestError if it is in another state."""
        return cast("answers.Job", self._calls.call("POST", f"/v1/jobs/{job}/release")["job"])

    def explain(self, job: int) -> answers.ExplainAnswer:
        """Why it waits or why it failed: schema koala.explain/1."""
        return cast("answers.ExplainAnswer", self._calls.call("GET", f"/v1/jobs/{job}/explain"))

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
    ) -> Iterator[bytes]:
        """What the processes of the last attempt wrote, components and ranks in order.

        `follow` goes on until the job is over: all components as they write, try after try, whole lines of each
        process. With `prefix` each line begins with `[component.rank] `; None: when several components are followed.
        Of a sweep, what the `parameter` of this number wrote. Raises TransientError with the code `cut` if it breaks
        off. What is followed goes on over a restart of koalad, which may be away for `reconnect` seconds: then
        NotReachable is raised. The logger `koalapy` is told when that begins and ends.
        """
        if follow and parameter is None:
            patience = reconnect if isinstance(reconnect, Reconnecting) else Reconnecting(reconnect)
            yield from self._followed(job, stream, component, prefix, patience)
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
        self, job: int, stream: str, component: int | None, prefix: bool | None, reconnecting: Reconnecting
    ) -> Iterator[bytes]:
        """One answer after another, each from where the one before broke off. Raises KoalaError."""
        lines = FollowedLines(prefix)
        cut = TransientError("cut", f"The output of job {job} broke off.", "Ask for it again.")
        while not lines.is_over:
            body = {"stream": stream, "component": component, "positions": lines.again()}
            asked_at = time.monotonic()
            try:
                with self._calls.frames(f"/v1/jobs/{job}/follow", body, cut) as pieces:
                    for place, piece in enumerate(pieces):
                        shown = lines.feed(piece)
                        if place:  # a koalad that ends begins its answer, too, to say so
                            reconnecting.answered(asked_at)
                        if shown:
                            yield shown
            except NotReachable as error:
                reconnecting.pause(error)
            except TransientError as error:
                if error is not cut:
                    raise

    def runners(self, states: Sequence[str] = ()) -> list[answers.Runner]:
        """The runners of sweeps that are not over; with states, those of the sweeps in these."""
        return list(self.admission(states)["runners"])

    def admission(self, states: Sequence[str] = ()) -> answers.RunnersAnswer:
        """The runners, and what admission goes by: schema koala.runners/1."""
        return cast(
            "answers.RunnersAnswer",
            self._calls.call("GET", "/v1/runners", params=[("state", state) for state in states]),
        )

    def results(self, sweep: int, *, failed: bool = False) -> Iterator[answers.Result]:
        """Each parameter that is done, in the order in which they were recorded, as they come: there may be millions.

        With `failed`, of those that did not end with 0 only. Raises TransientError, code `cut`, if it breaks off.
        """
        for line in _lines(self.results_as("jsonl", sweep, failed=failed)):
            yield json.loads(line)

    def results_as(self, form: str, sweep: int, *, failed: bool = False) -> Iterator[bytes]:
        """The same as bytes: `form` is json (one document, koala.results/1), jsonl (a line each) or csv."""
        cut = TransientError("cut", f"The results of sweep {sweep} broke off.", "Ask for them again.")
        path, parameters = f"/v1/sweeps/{sweep}/results", {"format": form, "failed": failed}
        with self._calls.stream(path, parameters, cut) as chunks:
            yield from chunks

    def clusters(self) -> list[answers.Cluster]:
        return list(self._calls.call("GET", "/v1/clusters")["clusters"])

    def disk(self) -> answers.DiskAnswer:
        """What koalapy takes up of disks, counted now; that may take a minute. Schema koala.disk/1."""
        return cast("answers.DiskAnswer", self._calls.call("GET", "/v1/disk", wait_s=_COUNT_S))

    def journal(self) -> answers.JournalAnswer:
        """What koalad was given and has decided of late, to be replayed; without secrets. Schema koala.journal/1."""
        return cast("answers.JournalAnswer", self._calls.call("GET", "/v1/journal", wait_s=_COUNT_S))

    def status(self) -> answers.StatusAnswer:
        """Schema koala.status/1."""
        return cast("answers.StatusAnswer", self._calls.call("GET", "/v1/status"))

    def unknown(self, clusters: Sequence[str] = ()) -> answers.UnknownAnswer:
        """Tags on these clusters, or on all, that the store does not know: schema koala.unknown/1."""
        parameters = [("cluster", each) for each in clusters]
        return cast(
            "answers.UnknownAnswer", self._calls.call("GET", "/v1/unknown", params=parameters, wait_s=_SURVEY_S)
        )

    def clean(self, tag: str, cluster: str | None = None, *, timeout: float = _LONGEST_WAIT_S) -> answers.CleanAnswer:
        """End what there is of such a tag, where it was seen, and remove its directory; it may be a live job elsewhere.

        Schema koala.clean/1; its state is `cleaning` if that takes longer than `timeout` seconds: ask again to wait.
        """
        path = f"/v1/unknown/{quote(tag, safe='')}/clean"
        parameters, body = {"timeout": timeout}, {"cluster": cluster}
        return cast("answers.CleanAnswer", self._calls.call("POST", path, params=parameters, json=body, wait_s=timeout))

    def maintenance(self) -> answers.MaintenanceAnswer:
        """The tasks of the grid file and their last runs: schema koala.maintenance/1."""
        return cast("answers.MaintenanceAnswer", self._calls.call("GET", "/v1/maintenance"))

    def maintain(
        self, name: str, *, dry_run: bool = False, options: Mapping[str, Any] | None = None
    ) -> answers.MaintenanceRunAnswer:
        """Run a maintenance task now; returns when it is done: schema koala.maintenance-run/1.

        `options`: as in the grid file, in place of what is there.
        """
        body = {"dry_run": dry_run, "options": dict(options or {})}
        path = f"/v1/maintenance/{quote(name, safe='')}/run"
        return cast("answers.MaintenanceRunAnswer", self._calls.call("POST", path, json=body, wait_s=_MAINTENANCE_S))

    def logins(self, *, retry: bool = False) -> list[answers.Login]:
        """How the login on each cluster stands; with `retry`, those that koalad has given up are tried again."""
        return list(self._calls.call("POST" if retry else "GET", "/v1/logins")["logins"])

    def login(self, cluster: str, answer: Answer) -> answers.Login:
        """Log in on a cluster that is not connected; how its login stands in the end: connected, or why not.

        `answer` is given each question, and each notice as one without prompts, and returns an answer for each prompt.
        """
        return cast("answers.Login", dialogue.hold(self._calls, cluster, answer))

    def settled(self, timeout: float) -> list[answers.Login]:
        """The logins once each that may ask something has come to a first end, or after `timeout` seconds."""
        dialogue.await_first_ends(self._calls, self.logins(), timeout)
        return self.logins()

    def shutdown(self, *, cancel: bool = False) -> None:
        """Tell koalad to end, and return at once. Jobs run on, unless `cancel`."""
        self._calls.call("POST", "/v1/shutdown", json={"cancel": cancel})

    def _change(self, what: str, jobs: Sequence[int], **wishes: Any) -> answers.ChangedAnswer:
        found = [
            self._calls.call("POST", f"/v1/jobs/{what}", json={"ids": list(some), **wishes})
            for some in _chunks(list(dict.fromkeys(jobs)))
        ]
        return {
            "schema": "koala.changed/1",
            "jobs": [job for answer in found for job in answer["jobs"]],
            "refused": [job for answer in found for job in answer["refused"]],
        }


def _lines(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Whole ones, however the chunks cut them."""
    left = b""
    for chunk in chunks:
        *whole, left = (left + chunk).split(b"\n")
        yield from whole


def _chunks(ids: Sequence[int]) -> list[Sequence[int]]:
    return [ids[start : start + _IDS_AT_ONCE] for start in range(0, len(ids), _IDS_AT_ONCE)]
