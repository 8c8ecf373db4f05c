"""What is wrong and what to do, as JSON."""

from koalapy.api.documents.document import Document
from koalapy.model.errors import Reason


def reason(reason: Reason) -> Document:
    return {
        "code": reason.code,
        "whose": reason.whose,
        "message": reason.message,
        "advice": reason.advice,
        "command": reason.command or None,
        "exit_status": reason.exit_status,
        "words": reason.words or None,
    }


def error(reason_: Reason) -> Document:
    return {"schema": "koala.error/1", "error": reason(reason_)}
