"""Calls of koalad's HTTP API over its socket: a document for an answer, an error for a refusal or for silence."""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from koalapy.locations import GRID_FILE_HEADER, Locations, default_grid_file
from koalapy.model.errors import KoalaError, OurError, RequestError, SiteError, TransientError
from koalapy.peers import is_trusted, user_of

Document = dict[str, Any]

_ELSEWHERE = "Name a place of your own with $XDG_RUNTIME_DIR and $XDG_STATE_HOME, then `koala up`."
_NOT_THERE = ("stopping", "standing_by")  # a koalad answers, but not one that does the work
_KINDS: dict[str, type[KoalaError]] = {
    "transient": TransientError,
    "site": SiteError,
    "request": RequestError,
    "ours": OurError,
}


class NotReachable(TransientError):
    """koalad does not answer on its socket."""


class Calls:
    """One koalad's. Each raises KoalaError with koalad's own reason, NotReachable if nobody answers.

    Any number of threads may call at the same time. `timeout_s`: for koalad to answer, beyond what a call waits for.
    """

    def __init__(self, locations: Locations, timeout_s: float) -> None:
        self._locations, self._timeout_s = locations, timeout_s
        self._http = self._connect()

    def close(self) -> None:
        self._http.close()

    def reopen(self) -> None:
        """Look for the socket again, which may have come elsewhere."""
        self._http.close()
        self._http = self._connect()

    def answers(self) -> bool:
        """Whether anybody does, on whichever socket is there now."""
        try:
            with self._connect() as http:
                self._reach()
                http.get("/v1/status")
        except (httpx.TransportError, NotReachable):
            return False
        return True

    def call(self, method: str, path: str, *, wait_s: float | None = None, **request: Any) -> Document:
        """The answer's document. `wait_s`: how long koalad may take before it answers."""
        if wait_s is not None:
            request["timeout"] = httpx.Timeout(self._timeout_s, read=wait_s + self._timeout_s)
        self._reach()
        try:
            answer = self._http.request(method, path, **request)
        except httpx.TransportError as error:
            raise self._not_reachable(error) from error
        if answer.is_error:
            raise _error(answer)
        return dict(answer.json())

    @contextmanager
    def stream(self, path: str, parameters: Mapping[str, Any], cut: TransientError) -> Iterator[Iterator[bytes]]:
        """The answer's bytes as they come, for as long as that takes. Raises `cut` where they break off."""
        begun = False
        patience = httpx.Timeout(self._timeout_s, read=None)
        self._reach()
        try:
            with self._http.stream("GET", path, params=parameters, timeout=patience) as answer:
                if answer.status_code != httpx.codes.OK:
                    answer.read()
                    raise _error(answer)
                begun = True
                yield answer.iter_raw()
        except httpx.TransportError as error:
            raise cut if begun else self._not_reachable(error) from error

    def _connect(self) -> httpx.Client:
        transport = httpx.HTTPTransport(uds=str(self._socket()), limits=httpx.Limits(max_connections=None))
        hooks = {"request": [lambda request: request.extensions.update(trace=self._look)]}
        file = self._locations.grid_file
        headers = {GRID_FILE_HEADER: quote(os.fsencode(file))} if file is not None else {}
        return httpx.Client(
            transport=transport, base_url="http://koalad", timeout=self._timeout_s, headers=headers, event_hooks=hooks
        )

    def _look(self, event: str, info: Mapping[str, Any]) -> None:
        """Before anything is sent: raises NotReachable where another user listens, who may have put the socket there.

        Only the connection itself tells for sure; who may write to the socket's directory can exchange a file that was
        looked at.
        """
        if not event.endswith("connect_unix_socket.complete"):
            return
        stream = info["return_value"]
        uid = user_of(stream.get_extra_info("socket"))
        if not is_trusted(uid):
            stream.close()
            message = f"The socket {self._socket()} is another user's (uid {uid}). Nothing was sent to it."
            raise NotReachable("not_ours", message, _ELSEWHERE)

    def _socket(self) -> Path:
        sockets = self._locations.sockets
        return next((path for path in sockets if os.access(path, os.F_OK)), sockets[0])

    def _reach(self) -> None:
        """Raises NotReachable if nobody listens: httpx would leave such a socket to the garbage collector."""
        with socket.socket(socket.AF_UNIX) as plug:
            plug.settimeout(self._timeout_s)
            try:
                plug.connect(str(self._socket()))
            except PermissionError as error:
                message = f"The socket {self._socket()} is not open to you: it may be another user's."
                raise NotReachable("not_ours", message, _ELSEWHERE) from error
            except OSError as error:
                raise self._not_reachable(httpx.ConnectError(str(error))) from error

    def _not_reachable(self, error: httpx.TransportError) -> NotReachable:
        grid = self._locations.grid
        if isinstance(error, httpx.ConnectError):
            advice = f"Start it with `koala up{self._option()}`."
            return NotReachable("not_reachable", f"koalad of grid {grid} is not running.", advice)
        why = "was cut off" if isinstance(error, httpx.ProtocolError | httpx.NetworkError) else "takes too long"
        message = f"koalad of grid {grid} does not answer: it {why}."
        return NotReachable("not_reachable", message, f"Look at {self._locations.log}.")

    def _option(self) -> str:
        """How this grid is named on a command line; nothing for the default one."""
        file = self._locations.grid_file
        if file is None:
            return " --grid FILE"
        with suppress(OurError):  # whoever has no home has no default one
            if file == default_grid_file().absolute():
                return ""
        return f" --grid {file}"


def error_of(fields: Document) -> KoalaError:
    """The error that the API has said in these words."""
    kind = NotReachable if fields["code"] in _NOT_THERE else _KINDS.get(fields["whose"], OurError)
    error = kind(fields["code"], fields["message"], fields["advice"])
    error.reason = replace(
        error.reason,
        command=fields["command"] or "",
        exit_status=fields["exit_status"],
        words=fields["words"] or "",
    )
    return error


def _error(answer: httpx.Response) -> KoalaError:
    try:
        fields = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        return OurError("bad_answer", f"koalad answered {answer.status_code}: {answer.text[:200]}", "Look at its log.")
    return error_of(fields)
