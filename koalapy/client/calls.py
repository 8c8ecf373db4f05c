"""Calls of koalad's HTTP API over its socket.

An answer becomes a document; a refusal or a time-out becomes an error.
"""

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from koalapy.common.locations import GRID_FILE_HEADER, Locations, default_grid_file
from koalapy.common.peers import is_trusted, user_of
from koalapy.model.errors import ClusterError, KoalaError, OurError, RequestError, TransientError

if TYPE_CHECKING:
    from koalapy.answers.errors import Reason

Document = dict[str, Any]
Parameters = Mapping[str, Any] | Iterable[tuple[str, Any]]

_ELSEWHERE = "Name a place of your own with $XDG_RUNTIME_DIR and $XDG_STATE_HOME, then `koala up`."
_PIECE_BYTES = 65_536
_REFUSED = 400  # and above: an HTTP status of an error
_NOT_THERE = ("stopping", "standing_by")  # a koalad answers, but not one that does the work
_KINDS: dict[str, type[KoalaError]] = {
    "transient": TransientError,
    "cluster": ClusterError,
    "request": RequestError,
    "ours": OurError,
}


class NotReachable(TransientError):
    """koalad does not answer on its socket."""


class Calls:
    """Calls of one koalad. Each raises KoalaError with koalad's own reason, or NotReachable if koalad does not answer.

    Each call has a connection of its own, so any number of threads may call at the same time. `timeout_s`: seconds that
    koalad has to answer, beyond what a call waits for.
    """

    def __init__(self, locations: Locations, timeout_s: float) -> None:
        self._locations, self._timeout_s = locations, timeout_s

    def answers(self) -> bool:
        """Return whether a koalad answers on the socket that exists now. An answer of any status counts."""
        try:
            with self._asked("GET", "/v1/status", self._timeout_s):
                return True
        except NotReachable:
            return False

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Parameters = (),
        json: Any = None,
        wait_s: float = 0.0,
    ) -> Document:
        """Return the document of the answer. `wait_s`: seconds that koalad may wait before it answers.

        Raises NotReachable if koalad does not answer, another KoalaError if it refuses, and TypeError or ValueError if
        `json` is not JSON.
        """
        with self._asked(method, path, wait_s + self._timeout_s, params, json) as answer:
            try:
                text = answer.read()
            except (OSError, HTTPException) as error:
                raise self._silent(error) from error
            return _document(answer.status, text)

    @contextmanager
    def stream(self, path: str, params: Parameters, cut: TransientError) -> Iterator[Iterator[bytes]]:
        """Yield the bytes of the answer as they come, for as long as that takes.

        Raises KoalaError as `call` does, and `cut` if the bytes break off.
        """
        with self._asked("GET", path, None, params) as answer:
            yield _begun(answer, cut)

    @contextmanager
    def frames(self, path: str, json: Any, cut: TransientError) -> Iterator[Iterator[bytes]]:
        """Yield the bytes of an answer that brings some about every second.

        Raises as `stream` does, and `cut` also if no bytes come for `timeout_s` seconds.
        """
        with self._asked("POST", path, self._timeout_s, (), json) as answer:
            yield _begun(answer, cut)

    @contextmanager
    def connect(self, path: str, params: Parameters) -> Iterator[tuple[socket.socket, HTTPResponse]]:
        """Yield a socket for the chunks of a request's body, and its answer, which has begun: both at the same time.

        Raises KoalaError as `call` does.
        """
        connection = HTTPConnection("koalad")
        try:
            plug = connection.sock = self._connected()
            try:
                connection.putrequest("POST", _address(path, params))
                for name, value in {**self._headers(None), "Transfer-Encoding": "chunked"}.items():
                    connection.putheader(name, value)
                connection.endheaders()
                plug.settimeout(None)
                answer = connection.getresponse()
            except (OSError, HTTPException) as error:
                raise self._silent(error) from error
            with answer:
                if answer.status >= _REFUSED:
                    _document(answer.status, answer.read())
                yield plug, answer
        finally:
            connection.close()

    @contextmanager
    def _asked(
        self, method: str, path: str, read_s: float | None, params: Parameters = (), body: Any = None
    ) -> Iterator[HTTPResponse]:
        """Send a request and yield its answer. `read_s`: seconds that koalad may be silent; None for no limit.

        Raises NotReachable if koalad does not answer, TypeError or ValueError for a body that is not JSON.
        """
        data = None if body is None else json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        connection = HTTPConnection("koalad")
        try:
            connection.sock = self._connected()
            try:
                with suppress(BrokenPipeError):  # koalad has answered before it has read all
                    connection.request(method, _address(path, params), data, self._headers(data))
                connection.sock.settimeout(read_s)
                answer = connection.getresponse()
            except (OSError, HTTPException) as error:
                raise self._silent(error) from error
            with answer:
                yield answer
        finally:
            connection.close()

    def _headers(self, data: bytes | None) -> dict[str, str]:
        file = self._locations.grid_file
        named = {GRID_FILE_HEADER: quote(os.fsencode(file))} if file is not None else {}
        return named | ({"Content-Type": "application/json"} if data is not None else {})

    def _connected(self) -> socket.socket:
        """Return a socket that is connected to koalad, before anything is sent.

        Raises NotReachable if nobody listens, or another user. The connection itself is checked, since a user who may
        write to the socket's directory could replace a file after its check.
        """
        path, plug = self._socket(), socket.socket(socket.AF_UNIX)
        plug.settimeout(self._timeout_s)
        try:
            plug.connect(str(path))
            uid = user_of(plug)
            if not is_trusted(uid):
                message = f"The socket {path} is another user's (uid {uid}). Nothing was sent to it."
                raise NotReachable("not_ours", message, _ELSEWHERE)
        except PermissionError as error:
            plug.close()
            message = f"The socket {path} is not open to you: it may be another user's."
            raise NotReachable("not_ours", message, _ELSEWHERE) from error
        except OSError as error:
            plug.close()
            advice = f"Start it with `koala up{self._option()}`."
            message = f"koalad of grid {self._locations.grid} is not running."
            raise NotReachable("not_reachable", message, advice) from error
        except BaseException:
            plug.close()
            raise
        return plug

    def _socket(self) -> Path:
        sockets = self._locations.sockets
        return next((path for path in sockets if os.access(path, os.F_OK)), sockets[0])

    def _silent(self, error: OSError | HTTPException) -> NotReachable:
        why = "takes too long" if isinstance(error, TimeoutError) else "was cut off"
        message = f"koalad of grid {self._locations.grid} does not answer: it {why}."
        return NotReachable("not_reachable", message, f"Look at {self._locations.log}.")

    def _option(self) -> str:
        """Return the command-line option that names this grid; empty for the default grid file."""
        file = self._locations.grid_file
        if file is None:
            return " --grid FILE"
        with suppress(OurError):  # whoever has no home has no default one
            if file == default_grid_file().absolute():
                return ""
        return f" --grid {file}"


def error_of(fields: "Reason") -> KoalaError:
    """Return the error that an error document of the API describes."""
    kind = NotReachable if fields["code"] in _NOT_THERE else _KINDS.get(fields["whose"], OurError)
    error = kind(fields["code"], fields["message"], fields["advice"])
    error.reason = replace(
        error.reason,
        command=fields["command"] or "",
        exit_status=fields["exit_status"],
        words=fields["output"] or "",
    )
    return error


def _address(path: str, params: Parameters) -> str:
    """Return the path with its parameters as a query; booleans are written as in JSON."""
    pairs = params.items() if isinstance(params, Mapping) else params
    query = urlencode([(name, str(value).lower() if isinstance(value, bool) else value) for name, value in pairs])
    return f"{path}?{query}" if query else path


def _document(status: int, text: bytes) -> Document:
    """Return the document of an answer.

    Raises the KoalaError of a refusal, and OurError for an answer that is not a document of koalad.
    """
    try:
        found = json.loads(text)
        refused = found["error"] if status >= _REFUSED else None
    except (ValueError, KeyError, TypeError) as error:
        words = text.decode(errors="replace")[:200]
        raise OurError("bad_answer", f"koalad answered {status}: {words}", "Look at its log.") from error
    if refused is not None:
        raise error_of(refused)
    return dict(found)


def _begun(answer: HTTPResponse, cut: TransientError) -> Iterator[bytes]:
    """Return the bytes of an answer as they come. Raises the KoalaError of a refusal."""
    if answer.status >= _REFUSED:
        _document(answer.status, b"".join(_pieces(answer, cut)))
    return _pieces(answer, cut)


def _pieces(answer: HTTPResponse, cut: TransientError) -> Iterator[bytes]:
    """Yield the bytes of an answer, each piece as soon as it comes. Raises `cut` if they break off."""
    try:
        while piece := answer.read1(_PIECE_BYTES):
            yield piece
    except (OSError, HTTPException) as error:
        raise cut from error
