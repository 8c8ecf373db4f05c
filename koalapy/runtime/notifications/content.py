"""The content of a notification: a JSON document, the environment of a command, and a mail."""

import json
from email.message import EmailMessage
from typing import Any

from koalapy import __version__
from koalapy.model.identity import InstanceId
from koalapy.model.notification import Mail, Notification, NotifyOn
from koalapy.model.textfile.words import valid_text
from koalapy.model.units import format_instant

_LONGEST_REASON = 4_000  # characters
USER_AGENT = f"koalapy/{__version__}"
_WORDS = {
    NotifyOn.STARTED: "has started",
    NotifyOn.DONE: "is done",
    NotifyOn.FAILED: "failed",
    NotifyOn.CANCELLED: "is cancelled",
}


class Content:
    """The content of the notifications of one grid, whose store has the id `instance`."""

    def __init__(self, grid: str, instance: InstanceId) -> None:
        self._grid, self._instance = grid, instance

    def identity(self, found: Notification) -> str:
        """Return the id of a notification, which no other one has, also of other stores."""
        return f"{self._instance}-{found.id}"

    def sentence(self, found: Notification) -> str:
        """Return one line that states what happened."""
        how = _WORDS[found.id.on]
        return f"{found.kind.capitalize()} {found.id.job} ({valid_text(found.name)}) of {self._grid} {how}."

    def document(self, found: Notification) -> bytes:
        """Return the JSON document, schema koala.notification/1."""
        document: dict[str, Any] = {
            "schema": "koala.notification/1",
            "id": self.identity(found),
            "grid": self._grid,
            "on": str(found.id.on),
            "at": format_instant(found.at),
            "text": self.sentence(found),
            "job": {
                "id": found.id.job,
                "name": valid_text(found.name),
                "owner": valid_text(found.owner),
                "kind": str(found.kind),
                "submitted_at": format_instant(found.submitted_at),
                "started_at": None if found.started_at is None else format_instant(found.started_at),
                "reason": self._reason(found) or None,
                "reason_code": found.reason.code if found.reason else None,
            },
        }
        return json.dumps(document).encode()

    def environment(self, found: Notification) -> dict[str, str]:
        """Return the variables that a command gets besides koalad's own."""
        return {
            "KOALA_NOTIFICATION": self.identity(found),
            "KOALA_GRID": self._grid,
            "KOALA_ON": str(found.id.on),
            "KOALA_JOB_ID": str(found.id.job),
            "KOALA_JOB_NAME": valid_text(found.name),
            "KOALA_TEXT": self.sentence(found),
            "KOALA_REASON": self._reason(found),
        }

    def mail(self, found: Notification, to: Mail) -> bytes:
        """Return the mail. Its Message-ID is the same in every try."""
        message = EmailMessage()
        message["To"] = to.address
        message["Subject"] = " ".join(self.sentence(found).split())
        message["Message-ID"] = f"<{self.identity(found)}@koalapy.invalid>"
        message["Auto-Submitted"] = "auto-generated"
        message["X-Mailer"] = USER_AGENT
        lines = [
            self.sentence(found),
            self._reason(found),
            f"Submitted {format_instant(found.submitted_at)}, {found.id.on} {format_instant(found.at)}.",
            f"`koala show {found.id.job}` shows more.",
        ]
        message.set_content("\n\n".join(filter(None, lines)) + "\n")
        return bytes(message)

    def _reason(self, found: Notification) -> str:
        return valid_text(str(found.reason)).replace("\0", " ")[:_LONGEST_REASON] if found.reason else ""
