"""Values of fields that several answers have: instants, and errors with what to do."""

from koalapy.answers import errors as answers
from koalapy.model.errors import Reason
from koalapy.model.units import Instant, format_instant


def optional_instant(instant: Instant | None) -> str | None:
    """Format an instant as RFC 3339 in UTC; None stays None."""
    return None if instant is None else format_instant(instant)


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
