"""`Grid`, the Python client of koalad's HTTP API: all that `koala` can do."""

import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import httpx

from koalapy.locations import Locations
from koalapy.model.errors import KoalaError, OurError, RequestError, SiteError, TransientError

Document = dict[str, Any]

_FINAL = frozenset({"done", "failed", "cancelled"})
_LONGEST_WAIT_S = 30.0
_KINDS: dict[str, type[KoalaError]] = {
    "transient": TransientError,
    "site": SiteError,
    "request": RequestError,
    "ours": OurError,
}


class NotReachable(TransientError):
    """koalad does not answer on its socket."""


class Grid:
    """A running koalad. Every call raises KoalaError with koalad's own reason, NotReachable if nobody answers.

    `grid` is the grid's name, or the path of its grid file. Answers are the JSON documents of the API as dictionaries.
    """

    def __init__(self, grid: str | Path | None = None, *, timeout_s: float = 60.0) -> None:
        self.locations = Locations.of(grid)
        transport = httpx.HTTPTransport(uds=str(self.locations.socket))
        self._http = httpx.Client(transport=transport, base_url="http://koalad", timeout=timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def submit(
        self,
        job: Mapping[str, Any] | str | Path,
        *,
        directory: str | Path | None = None,
        overrides: Mapping[str, str] | None = None,
        key: str | None = None,
    ) -> int:
        """The id of the accepted job. `job` is a job file's path, or the same as a mapping.

        The same `key` again is the same job; one is made where none is given, so that a repeated request after a cut
        connection does not make two.
        """
        body: Document = {"overrides": dict(overrides or {}), "key": key or uuid.uuid4().hex}
        if isinstance(job, Mapping):
            body |= {"job": dict(job), "directory": str(Path(directory or Path.cwd()).absolute())}
        else:
            path = Path(job).absolute()
            body |= {"text": _read(path), "source": str(path), "directory": str(Path(directory or path.parent))}
        return int(self._call("POST", "/v1/jobs", json=body)["id"])

    def jobs(self, states: Sequence[str] = (), ids: Sequence[int] = ()) -> list[Document]:
        """Jobs by id, finished ones too."""
        parameters = [("state", state) for state in states] + [("id", str(job)) for job in ids]
        return list(self._call("GET", "/v1/jobs", params=parameters)["jobs"])

    def show(self, job: int) -> Document:
        """The job and its events: schema koala.job/1."""
        return self._call("GET", f"/v1/jobs/{job}")

    def wait(self, jobs: Sequence[int], timeout_s: float | None = None) -> list[Document]:
        """The jobs once all of them are over. Raises TimeoutError after `timeout_s`."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = _LONGEST_WAIT_S if deadline is None else max(0.0, min(_LONGEST_WAIT_S, deadline - time.monotonic()))
            parameters = [("id", str(job)) for job in jobs] + [("timeout", str(left))]
            found = list(self._call("GET", "/v1/wait", params=parameters)["jobs"])
            if all(job["state"] in _FINAL for job in found):
                return found
            if deadline is not None and time.monotonic() >= deadline:
                waiting = ", ".join(str(job["id"]) for job in found if job["state"] not in _FINAL)
                raise TimeoutError(f"not over yet: {waiting}")

    def cancel(self, job: int, *, force: bool = False) -> Document:
        return dict(self._call("POST", f"/v1/jobs/{job}/cancel", json={"force": force})["job"])

    def hold(self, job: int) -> Document:
        return dict(self._call("POST", f"/v1/jobs/{job}/hold")["job"])

    def release(self, job: int) -> Document:
        return dict(self._call("POST", f"/v1/jobs/{job}/release")["job"])

    def explain(self, job: int) -> Document:
        """Why it waits or why it failed: schema koala.explain/1."""
        return self._call("GET", f"/v1/jobs/{job}/explain")

    def output(
        self, job: int, *, stream: str = "output", component: int | None = None, follow: bool = False
    ) -> Iterator[bytes]:
        """What the processes of the last attempt wrote; `follow` goes on until the attempt has ended."""
        parameters: dict[str, Any] = {"stream": stream, "follow": follow}
        if component is not None:
            parameters["component"] = component
        patience = httpx.Timeout(60.0, read=None)
        try:
            with self._http.stream("GET", f"/v1/jobs/{job}/output", params=parameters, timeout=patience) as answer:
                if answer.status_code != httpx.codes.OK:
                    answer.read()
                    raise _error(answer)
                yield from answer.iter_raw()
        except httpx.TransportError as error:
            raise self._not_reachable(error) from error

    def clusters(self) -> list[Document]:
        return list(self._call("GET", "/v1/clusters")["clusters"])

    def status(self) -> Document:
        """Schema koala.status/1."""
        return self._call("GET", "/v1/status")

    def shutdown(self, *, cancel: bool = False) -> None:
        """End koalad. Jobs run on, unless `cancel`."""
        self._call("POST", "/v1/shutdown", json={"cancel": cancel})

    def _call(self, method: str, path: str, **request: Any) -> Document:
        try:
            answer = self._http.request(method, path, **request)
        except httpx.TransportError as error:
            raise self._not_reachable(error) from error
        if answer.is_error:
            raise _error(answer)
        return dict(answer.json())

    def _not_reachable(self, error: Exception) -> NotReachable:
        return NotReachable(
            "not_reachable", f"koalad of grid {self.locations.grid} does not answer ({error}).", "Start it: `koala up`."
        )


def _error(answer: httpx.Response) -> KoalaError:
    try:
        fields = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return OurError("bad_answer", f"koalad answered {answer.status_code}: {answer.text[:200]}", "Look at its log.")
    error = _KINDS.get(fields["whose"], OurError)(fields["code"], fields["message"], fields["advice"])
    error.reason = replace(
        error.reason,
        command=fields["command"] or "",
        exit_status=fields["exit_status"],
        words=fields["words"] or "",
    )
    return error


def _read(path: Path) -> str:
    """The job file's text. Raises RequestError where it cannot be read."""
    limit = 10 << 20
    try:
        if path.is_dir():
            raise RequestError("not_a_file", f"{path} is a directory.", "Give the path of a job file.")
        if path.stat().st_size > limit:
            raise RequestError("too_large_file", f"{path} is larger than 10 MB.", "A job file is a short text.")
        return path.read_bytes().decode()
    except FileNotFoundError as error:
        raise RequestError("no_such_file", f"There is no file {path}.", "Give the path of a job file.") from error
    except UnicodeDecodeError as error:
        raise RequestError("not_text", f"{path} is not a text file.", "A job file is YAML in UTF-8.") from error
    except OSError as error:
        raise RequestError("unreadable", f"{path} cannot be read: {os.strerror(error.errno or 0)}.", "") from error
