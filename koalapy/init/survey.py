"""Examines one head node by a login and a survey there."""

import json
import secrets
import threading
from dataclasses import dataclass, field, replace
from typing import Any

from koalapy_adapters.connections import bootstrap
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.connections.protocol import Channel, Connection
from koalapy_adapters.errors import BatchError
from koalapy_adapters.examination.survey import AWAY

from koalapy.doctor.interpreters import suggested
from koalapy.link.translate import reason_of_error
from koalapy.model.errors import Reason

_SURVEY_S = 120.0
_OF_PYTHON = ("no_python", "python_incomplete", "python_too_old")
_OPEN = "shared_open_to_others"


@dataclass(frozen=True, slots=True)
class HeadSurvey:
    """The survey's result (see koalapy_adapters.examination.survey), or the reason why there is none.

    `python`: the interpreter, if it is not python3. `refused`: why the default of `shared` cannot be used, if another
    directory can.
    """

    survey: dict[str, Any] = field(default_factory=dict)
    python: str | None = None
    reason: Reason | None = None
    refused: str = ""


def survey_head(connection: Connection) -> HeadSurvey:
    """Examine a head node; blocks until the survey has ended.

    If python3 is missing or too old, another interpreter of the head node is tried. If another user could replace
    ~/.koala, the survey starts in a directory of its own in /tmp, and removes it.
    """
    found = _survey_from(connection, None)
    if found.reason is None or found.reason.code != _OPEN:
        return found
    away = _survey_from(connection, f"/tmp/{AWAY}{secrets.token_hex(8)}")
    if away.reason is not None or not away.survey["shared"]:
        return found
    return replace(away, refused=found.reason.message)


def _survey_from(connection: Connection, directory: str | None) -> HeadSurvey:
    try:
        return HeadSurvey(_survey(connection, None, directory))
    except BatchError as error:
        python = suggested(connection) if error.code in _OF_PYTHON else ""
        if not python:
            return HeadSurvey(reason=reason_of_error(error))
    try:
        return HeadSurvey(_survey(connection, python, directory), python)
    except BatchError as error:
        return HeadSurvey(reason=reason_of_error(error))


def _survey(connection: Connection, python: str | None, directory: str | None) -> dict[str, Any]:
    """Run the survey of a head node, and return its result. Raises BatchError."""
    target = bootstrap.Target(directory, python, ("survey",))
    errors: list[str] = []
    channel = bootstrap.start(connection, packed(), target, errors.append)
    text = _all(channel)
    try:
        found: dict[str, Any] = json.loads(text)
        return found
    except ValueError as error:
        detail = f": {errors[-1].rstrip('.')}." if errors else "."
        message = f"The survey of {connection.where} ended without an answer{detail}"
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
