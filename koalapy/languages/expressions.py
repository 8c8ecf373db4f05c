"""Requirements and ranks as values of a job file."""

from koalapy.model.textfile.classad import ClassAdError, Expression, Kind, check_expression
from koalapy.model.textfile.fields import as_text, wrong
from koalapy.model.textfile.place import place_at

_KINDS = {Kind.NUMBER: "a number", Kind.TEXT: "a text"}


def as_requirements(value: object) -> str:
    """Return the checked expression, each attribute with its scope; '' for none. Raises an error of the file."""
    found = _checked(value)
    if found.constant in _KINDS:
        what = f"is {_KINDS[found.constant]}, where a condition belongs"
        raise wrong(what, 'Write one such as FreeCPUs >= 4 && OpSys == "Linux".', "bad_expression")
    return found.text


def as_rank(value: object) -> str:
    """Return the checked expression, each attribute with its scope; '' for none. Raises an error of the file."""
    found = _checked(value)
    if found.constant is Kind.TEXT or found.text in ("true", "false", "undefined", "error"):
        what = "is no number, so that it orders nothing"
        raise wrong(what, "Write one such as FreeCPUs, or -WaitingJobs.", "bad_expression")
    return found.text


def _checked(value: object) -> Expression:
    text = as_text(value)
    if not text.strip():
        return Expression("")
    try:
        return check_expression(text)
    except ClassAdError as error:
        line, column = place_at(text, error.at)
        where = f"at column {column}" if "\n" not in text else f"in its line {line}, at column {column}"
        raise wrong(f"is wrong {where}: {error.what}", error.advice, error.code) from None
