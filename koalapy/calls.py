"""Calls of koalad's HTTP API over its socket: a document for an answer, an error for a refusal or for silence."""

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from koalapy.locations import GRID_FILE_HEADER, Locations, default_grid_file
from koalapy.model.errors import ClusterError, KoalaError, OurError, RequestError, TransientError
from koalapy.peers import is_trusted, user_of

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
    """One koalad's. Each raises KoalaError with koalad's own reason, NotReachable if nobody answers.

    Each call has a connection of its own, so that any number of threads may call at the same time. `timeout_s`: for
    koalad to answer, beyond what a call waits for.
    """

    def __init__(self, locations: Locations, timeout_s: float) -> None:
        self._locations, self._timeout_s = locations, timeout_s

    def answers(self) -> bool:
        """Whether anybody does, on whichever socket is there now."""
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
        """The answer's document. `wait_s`: how long koalad may take before it answers."""
        with self._asked(method, path, wait_s + self._timeout_s, params, json) as answer:
            try:
                text = answer.read()
            except (OSError, HTTPException) as error:
                raise self._silent(error) from error
            return _document(answer.status, text)

    @contextmanager
    def stream(self, path: str, params: Parameters, cut: TransientError) -> Iterator[Iterator[bytes]]:
        """The answer's bytes as they come, for as long as that takes. Raises `cut` where they break off."""
        with self._asked("GET", path, None, params) as answer:
            yield _begun(answer, cut)

    @contextmanager
    def frames(self, path: str, json: Any, cut: TransientError) -> Iterator[Iterator[bytes]]:
        """As `stream`, of an answer in which something comes about every second: a koalad that hangs cuts it off."""
        with self._asked("POST", path, self._timeout_s, (), json) as answer:
            yield _begun(answer, cut)

    @contextmanager
    def _asked(
        self, method: str, path: str, read_s: float | None, params: Parameters = (), body: Any = None
    ) -> Iterator[HTTPResponse]:
        """The answer to a request. `read_s`: how long koalad may take, None for any time.

        Raises NotReachable where nobody answers, TypeError or ValueError for a body that is no JSON.
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
        """To koalad. Before anything is sent: raises NotReachable where another user listens, or nobody.

        Only the connection itself tells for sure; who may write to the socket's directory can exchange a file that was
        looked at.
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


def _address(path: str, params: Parameters) -> str:
    """With its parameters; truths are written as JSON has them."""
    pairs = params.items() if isinstance(params, Mapping) else params
    query = urlencode([(name, str(value).lower() if isinstance(value, bool) else value) for name, value in pairs])
    return f"{path}?{query}" if query else path


def _document(status: int, text: bytes) -> Document:
    """An answer's. Raises KoalaError for a refusal, and for what is no document of koalad's."""
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
    """The bytes of an answer that is not refused."""
    if answer.status >= _REFUSED:
        _document(answer.status, b"".join(_pieces(answer, cut)))
    return _pieces(answer, cut)


def _pieces(answer: HTTPResponse, cut: TransientError) -> Iterator[bytes]:
    """As they come, each at once."""
    try:
        while piece := answer.read1(_PIECE_BYTES):
            yield piece
    except (OSError, HTTPException) as error:
        raise cut from error
