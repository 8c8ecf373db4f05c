"""Errors as JSON."""

from koalapy import answers
from koalapy.model.errors import Reason


def reason(reason: Reason) -> answers.Reason:
    """Describe what is wrong and what to do."""
    return {
        "code": reason.code,
        "whose": reason.whose,
        "message": reason.message,
        "advice": reason.advice,
        "command": reason.command or None,
        "exit_status": reason.exit_status,
        "output": reason.words or None,
    }


def error(reason_: Reason) -> answers.ErrorAnswer:
    """Answer that a request failed for this reason."""
    return {"schema": "koala.error/1", "error": reason(reason_)}
