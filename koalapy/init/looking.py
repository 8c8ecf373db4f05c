"""Looks at one head node: a login, and what its survey prints."""

import json
import threading
from dataclasses import dataclass, field
from typing import Any

from koalapy_adapters.connections import bootstrap
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.connections.protocol import Channel, Connection
from koalapy_adapters.errors import BatchError

from koalapy.doctor.pythons import suggested
from koalapy.link.translate import reason_of_error
from koalapy.model.errors import Reason

_SURVEY_S = 120.0
_OF_PYTHON = ("no_python", "python_too_old")


@dataclass(frozen=True, slots=True)
class Look:
    """What was found (see koalapy_adapters.examination.survey), or why nothing was. `python`: if not python3."""

    survey: dict[str, Any] = field(default_factory=dict)
    python: str | None = None
    reason: Reason | None = None


def look(connection: Connection) -> Look:
    """Blocks. Where python3 is missing or too old, another one is tried that the head node has."""
    try:
        return Look(_survey(connection, None))
    except BatchError as error:
        python = suggested(connection) if error.code in _OF_PYTHON else ""
        if not python:
            return Look(reason=reason_of_error(error))
    try:
        return Look(_survey(connection, python), python)
    except BatchError as error:
        return Look(reason=reason_of_error(error))


def _survey(connection: Connection, python: str | None) -> dict[str, Any]:
    """Raises BatchError."""
    target = bootstrap.Target(None, python, ("survey",))
    said: list[str] = []
    channel = bootstrap.start(connection, packed(), target, said.append)
    text = _all(channel)
    try:
        found: dict[str, Any] = json.loads(text)
        return found
    except ValueError as error:
        words = f": {said[-1].rstrip('.')}." if said else "."
        message = f"The survey of {connection.where} ended without an answer{words}"
        raise BatchError("no_survey", message, "Describe this cluster by hand (docs/grid-file.md).") from error


def _all(channel: Channel) -> bytes:
    timer = threading.Timer(_SURVEY_S, channel.close)
    timer.daemon = True
    timer.start()
    data = b""
    try:
        while more := channel.read(65_536):
            data += more
        return data
    finally:
        timer.cancel()
        channel.close()
