"""Syntax errors of YAML in words that a person can act on, with line and column."""

import re

import yaml

from koalapy.model.errors import RequestError
from koalapy.model.textfile import Place
from koalapy.model.textfile.words import shown

# Words of libyaml's and PyYAML's own parser, what they mean, and what helps. The first that is contained counts.
_MEANINGS = (
    (
        "mapping values are not allowed",
        "a second `: ` stands in one value",
        "Put the value in quotes, or check the indentation.",
    ),
    ("scanning a quoted scalar", "a quote is opened and never closed", "Close it."),
    ("expected ',' or ']'", "a list that was opened with [ is not closed, or lacks a comma", "Write it as [a, b]."),
    (
        "expected ',' or '}'",
        "a mapping that was opened with { is not closed, or lacks a comma",
        "Write it as {a: 1, b: 2}.",
    ),
    ("parsing a flow", "a list or mapping is opened and never closed", "Close it with ] or }."),
    ("escape", "a \\ in double quotes begins no known escape", "Write \\\\ for a backslash, or use single quotes."),
    ("cannot start any token", "a value cannot begin like this", "Put it in quotes."),
    ("could not find expected ':'", "a key has no colon", "Write `key: value`, or check the indentation."),
    (
        "expected key",
        "a line is not `key: value`, or is indented unlike its neighbours",
        "Indent entries of one level alike.",
    ),
    (
        "block",
        "a line is indented unlike its neighbours, or is not an entry of theirs",
        "Indent entries of one level alike.",
    ),
    ("anchor", "an & or * begins an anchor or alias without a name", "Put the value in quotes."),
    ("alias", "an & or * begins an anchor or alias without a name", "Put the value in quotes."),
)
_UNREADABLE = yaml.reader.Reader.NON_PRINTABLE
_BARE_LOCAL = re.compile(r"(\bconnect:\s*)local:(?=\s*(?:[,}#]|$))")
_UNKNOWN = ("this is not YAML", "Check indentation, colons and quotes on this line and the one before.")
_TAB = ("a tab stands where YAML takes spaces only", "Indent with spaces.")
_CONTROL = ("a control character stands here", 'Remove it, or write it as an escape such as "\\x07" in double quotes.')


def syntax_error(error: Exception, text: str, source: str) -> RequestError:
    """Return the error for what PyYAML could not read, in koalapy's words."""
    place = _place(error, text)
    what, advice = _meaning(error, text, place)
    return RequestError("syntax", f"{place.of(source)}: {what}.", advice)


def _place(error: Exception, text: str) -> Place:
    if isinstance(error, yaml.MarkedYAMLError):
        return _marked(error, text)
    bad = _UNREADABLE.search(text)
    start = bad.start() if bad else 0
    return Place(text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))


def _marked(error: yaml.MarkedYAMLError, text: str) -> Place:
    """Return the place of the error.

    If the error shows only at the end of the text, the place is where the unended part begins.
    """
    written = text.rstrip().split("\n")
    for mark in (error.problem_mark, error.context_mark):
        if mark and mark.line < len(written):
            return Place(mark.line + 1, mark.column + 1)
    return Place(len(written), len(written[-1]))


def _meaning(error: Exception, text: str, place: Place) -> tuple[str, str]:
    line = _line(text, place.line)
    if isinstance(error, yaml.reader.ReaderError):
        return _CONTROL
    if "\t" in line[: len(line) - len(line.lstrip())] or line[place.column - 1 : place.column] == "\t":
        return _TAB
    if not _BARE_LOCAL.search(line) and "mapping values are not allowed" in str(error) and line.count(": ") < 2:
        return (
            f"this line runs on from the one before{_quoting(line)}",
            "Indent both alike, and look for a missing colon.",
        )
    if bare := _BARE_LOCAL.search(line):
        return f"a value with a colon at its end needs quotes{_quoting(line)}", f'Write {bare[1]}"local:".'
    words = f"{getattr(error, 'context', '')} {getattr(error, 'problem', '')} {error}"
    for known, what, advice in _MEANINGS:
        if known in words:
            return f"{what}{_quoting(line)}", advice
    return _UNKNOWN


def _quoting(line: str) -> str:
    return f" ({shown(line.strip(), quote='')})" if line.strip() else ""


def _line(text: str, number: int) -> str:
    lines = text.split("\n")
    return lines[number - 1] if number <= len(lines) else ""
