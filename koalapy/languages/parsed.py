"""The form into which JSDL, RSL and JDL are parsed: the values of a job file, each with its place in the text."""

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic_core import PydanticCustomError

from koalapy.languages.paths import as_executable
from koalapy.model.errors import RequestError
from koalapy.model.textfile import MAX_BYTES, Place
from koalapy.model.textfile.document import Document, Path
from koalapy.model.textfile.validation import refusal


class SourceText:
    """The text of a file in another language, and the file's name for messages."""

    def __init__(self, text: str | bytes, source: str) -> None:
        """Raises RequestError for a text that is too large or not UTF-8."""
        self.source = source
        raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        if len(raw) > MAX_BYTES:
            message = f"{source} has {len(raw):,} bytes, more than {MAX_BYTES:,}."
            raise RequestError("too_large", message, "Put long lists into a file, and stage it in.")
        try:
            self.text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.text = error.object[: error.start].decode("utf-8", "replace")
            advice = "Save the file as UTF-8."
            raise self.refusal(len(self.text), "the text is not UTF-8 from here on", advice, "not_text") from None

    def place(self, at: int) -> Place:
        """Return the place of an offset."""
        line = bisect_left(self._line_ends, at) + 1
        return Place(line, at - (self._line_ends[line - 2] if line > 1 else -1))

    def start_of(self, line: int) -> int:
        """Return the offset of a line, from 1; that of the last one for a line beyond it."""
        before = min(line - 1, len(self._line_ends))
        return self._line_ends[before - 1] + 1 if before > 0 else 0

    def refusal(self, at: int, what: str, advice: str, code: str = "syntax") -> RequestError:
        """Return an error for this place. `what` is a sentence without its full stop."""
        return RequestError(code, f"{self.place(at).of(self.source)}: {what}.", advice)

    @cached_property
    def _line_ends(self) -> list[int]:
        return [found.start() for found in re.finditer("\n", self.text)]


@dataclass(slots=True, eq=False)
class ParsedText:
    """A text of the program. In a sweep it becomes a template."""

    text: str
    place: Place


@dataclass(slots=True)
class ParsedComponent:
    """A component. `places`: those of its values, by their paths in the component.

    `files`: those to which the program is redirected, by `<`, `>` and `2>`. `append`: whether the program appends to
    them. Several processes do, so that none truncates the file of the others.
    """

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, Place] = field(default_factory=dict)
    executable: ParsedText | None = None
    arguments: list[ParsedText] = field(default_factory=list)
    environment: dict[str, ParsedText] = field(default_factory=dict)
    files: dict[str, ParsedText] = field(default_factory=dict)
    append: bool = False

    def set(self, key: str, value: object, place: Place) -> None:
        """Set a key of the job file's component, and record its place."""
        self.values[key] = value
        self.places[key,] = place

    def add_program(self) -> None:
        """Set the keys of the program: `executable`, `arguments` and `environment`."""
        if self.executable is not None:
            before = _redirection({operator: file.text for operator, file in self.files.items()}, self.append)
            shell = [ParsedText(word, self.executable.place) for word in before]
            words = [*shell, self.executable, *self.arguments]
            first, rest = words[0], words[1:]
            self.set("executable", first.text, first.place)
            self.values["arguments"] = [each.text for each in rest]
            self.places.update({("arguments", index): each.place for index, each in enumerate(rest)})
        if self.environment:
            self.values["environment"] = {name: each.text for name, each in self.environment.items()}
            self.places.update({("environment", name): each.place for name, each in self.environment.items()})


@dataclass(slots=True)
class ParsedJob:
    """A job or a flow. `values` and `places` are those of its job file."""

    source: str
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, Place] = field(default_factory=dict)

    def set(self, key: str, value: object, place: Place) -> None:
        """Set a key of the job file, and record its place."""
        self.values[key] = value
        self.places[key,] = place

    def append(self, key: str, value: object, place: Place) -> None:
        """Append a value to the list that a key of the job file has, and record its place."""
        values = self.values.setdefault(key, [])
        self.places[key, len(values)] = place
        values.append(value)

    def add(self, component: ParsedComponent) -> None:
        """Add a component, as it is now. Raises RequestError for the invalid path of a redirected program.

        The job file's own check sees the shell that redirects it.
        """
        component.add_program()
        components = self.values.setdefault("components", [])
        at: Path = ("components", len(components))
        components.append(component.values)
        self.places.update({(*at, *path): place for path, place in component.places.items()})
        if component.executable is not None and component.files:
            try:
                as_executable(component.executable.text)
            except PydanticCustomError as error:
                found = {name: str(text) for name, text in (error.context or {}).items()}
                path = (*at, "executable")
                raise refusal(self.document(), path, found["code"], found["what"], found["advice"]) from None

    def document(self) -> Document:
        """Return the document in the form of the job file."""
        return Document(self.source, self.values, self.places)


def _redirection(files: Mapping[str, str], append: bool) -> list[str]:
    """Return the words that precede a program to open files for it; [] without files.

    The file names and the program are arguments of the shell's script, never a part of it.
    """
    operators = [operator for operator in ("<", ">", "2>") if operator in files]
    if not operators:
        return []
    more = ">" if append else ""
    opened = [f'{operator}{more if operator != "<" else ""}"${number}"' for number, operator in enumerate(operators, 1)]
    if ">" in files and files[">"] == files.get("2>"):
        opened[-1] = "2>&1"
    script = f'exec {" ".join(opened)}; shift {len(operators)}; exec "$@"'
    return ["sh", "-c", script, "sh", *(files[operator] for operator in operators)]
