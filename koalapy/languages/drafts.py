"""An intermediate form between a job in another language and koalapy's job file, with the places of its values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic_core import PydanticCustomError

from koalapy.languages.parameters import literal
from koalapy.languages.paths import as_executable
from koalapy.languages.xmltext import Element, named, place_of
from koalapy.model.errors import RequestError
from koalapy.model.textfile import Place
from koalapy.model.textfile.document import Document, Path


class Mark(NamedTuple):
    """A part of a text that the values of a parameter replace."""

    start: int
    end: int
    name: str


@dataclass(slots=True)
class Blank:
    """A text of the program. `marks`: the parts that a sweep replaces by values."""

    text: str
    element: Element
    marks: list[Mark] = field(default_factory=list)

    def template(self) -> str:
        parts, at = [], 0
        for mark in sorted(self.marks):
            parts += [literal(self.text[at : mark.start]), f"{{{mark.name}}}"]
            at = mark.end
        return "".join([*parts, literal(self.text[at:])])


class Staging(NamedTuple):
    """A file to stage in or out: the key `stage_in` or `stage_out`, its place on the cluster, and its path here."""

    key: str
    place: Blank
    path: Blank


@dataclass(slots=True)
class Draft:
    """A job of one component. Its texts become templates if the job is a sweep."""

    source: str
    job: dict[str, Any] = field(default_factory=dict)
    component: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, Place] = field(default_factory=dict)
    executable: Blank | None = None
    arguments: list[Blank] = field(default_factory=list)
    environment: dict[str, Blank] = field(default_factory=dict)
    redirections: dict[str, Blank] = field(default_factory=dict)  # by the shell's operator, such as `2>`
    staging: list[Staging] = field(default_factory=list)

    def of_component(self, key: str, value: object, element: Element) -> None:
        self.component[key] = value
        self.places["components", 0, key] = place_of(element)

    def of_job(self, key: str, value: object, element: Element) -> None:
        """Set a key of the job file, and record its place."""
        self.job[key] = value
        self.places[key,] = place_of(element)

    def blanks(self) -> list[Blank]:
        first = [self.executable] if self.executable else []
        staged = [blank for each in self.staging for blank in (each.place, each.path)]
        return [*first, *self.arguments, *self.environment.values(), *self.redirections.values(), *staged]

    def written(self, blank: Blank) -> str:
        """Return the text, or its template if the job is a sweep."""
        return blank.template() if "parameters" in self.job else blank.text

    def refusal(self, element: Element, what: str, advice: str, code: str = "not_honoured") -> RequestError:
        """Return an error that names the element and its line. `what`: the rest of the sentence after the name."""
        return RequestError(code, f"{place_of(element).of(self.source)}: {named(element)} {what}.", advice)

    def document(self) -> Document:
        """Return the document in the form of the job file. Raises RequestError for a bad path of a redirected program.

        The job file's own check sees the shell that redirects it.
        """
        words = [self.written(blank) for blank in (self.executable, *self.arguments) if blank]
        names = {operator: self.written(blank) for operator, blank in self.redirections.items()}
        if names and self.executable is not None:
            try:
                as_executable(words[0])
            except PydanticCustomError as error:
                found = error.context or {}
                code, element = str(found["code"]), self.executable.element
                raise self.refusal(element, str(found["what"]), str(found["advice"]), code) from None
        argv = [*redirecting(names), *words]
        component = {**self.component, "executable": argv[0], "arguments": argv[1:]} if words else self.component
        if self.environment:
            component["environment"] = {name: self.written(blank) for name, blank in self.environment.items()}
        self._take_places(len(argv) - len(words))
        return Document(self.source, {**self.job, "components": [component]}, self.places)

    def _take_places(self, before: int) -> None:
        """Record the places of the program's texts. `before`: number of words that precede the program's own."""
        at = ("components", 0)
        for index, blank in enumerate([*([self.executable] if self.executable else []), *self.arguments], before - 1):
            self.places[(*at, "executable") if index < 0 else (*at, "arguments", index)] = place_of(blank.element)
        for name, blank in self.environment.items():
            self.places[*at, "environment", name] = place_of(blank.element)


def redirecting(names: Mapping[str, str]) -> list[str]:
    """Return the words that precede a program to open files for it; [] without files.

    `names`: the file of each operator of the shell, such as `2>` or `>>`. The file names and the program are arguments
    of the shell's script, never a part of it.
    """
    if not names:
        return []
    files = [f'{operator}"${place}"' for place, operator in enumerate(names, 1)]
    output = next((names[operator] for operator in (">", ">>") if operator in names), None)
    if output is not None and output in (names.get("2>"), names.get("2>>")):
        files = [file for file in files if not file.startswith("2>")] + ["2>&1"]
    opened = f"exec {' '.join(files)}; shift {len(names)}"
    return ["sh", "-c", f'{opened}; exec "$@"', "sh", *names.values()]
