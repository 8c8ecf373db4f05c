"""Globus RSL 1.0: conjunctions, and multirequests as one co-allocated job (docs/rsl.md).

An attribute that koalapy cannot honour is refused, with a message that names it, its line and its column.
"""

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic_core import PydanticCustomError

from koalapy.languages.native import request_of
from koalapy.languages.paths import as_executable, landing, path_of_uri, staged_out_to
from koalapy.languages.redirection import redirecting
from koalapy.languages.rsl_tokens import RslText
from koalapy.languages.rsl_tree import Compound, Operator, Relation, Specification
from koalapy.languages.rsl_values import SUBSTITUTION, Evaluated, Evaluation, Group, Scope, Word, canonical
from koalapy.languages.sweepfiles import OpenFile
from koalapy.model.errors import RequestError
from koalapy.model.request import Request
from koalapy.model.textfile.document import Document, Path
from koalapy.model.textfile.words import listed, shown, use_known

_REMOVE = "Remove it."
_ONE_AFTER_ANOTHER = "Submit its jobs one after another: koala submit --wait first.rsl && koala submit second.rsl."
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def read(
    text: str | bytes,
    source: str,
    directory: str,
    clusters: Collection[str] | None = None,
    overrides: Mapping[str, str] | None = None,
    open_file: OpenFile | None = None,
) -> Request:
    """Read a text in RSL like `native.read`. Keys in overrides are those of koalapy's job file.

    Raises RequestError.
    """
    return request_of(document_of(text, source), directory, clusters, overrides, open_file)


def document_of(text: str | bytes, source: str) -> Document:
    """Return the job in the form of koalapy's job file. Raises RequestError."""
    from koalapy.languages.rsl_grammar import parse  # late: lark takes longer to import than all else here

    rsl = RslText(text, source)
    tree = parse(rsl)
    _check_operators(rsl, tree)
    reading = _Reading(rsl, Evaluation(rsl))
    if isinstance(tree, Compound) and tree.operator is Operator.MULTIREQUEST:
        _multirequest(reading, tree, {})
    else:
        component = _Component(tree.at)
        for attribute in _attributes(reading, tree, {}):
            _JOB_ATTRIBUTES.get(attribute.key, _component_attribute)(reading, component, attribute)
        _add_component(reading, component)
    if not reading.communicates:
        reading.job.setdefault("communication", "none")
    return Document(source, reading.job, reading.lines, reading.origins)


def _check_operators(rsl: RslText, request: Specification) -> None:
    """Raises RequestError for an operator or a relation that no job can have."""
    if isinstance(request, Relation):
        if request.operator != "=":
            name = shown(request.attribute, quote="")
            what = f"{name} is compared by {request.operator}, but takes one exact value"
            raise rsl.refusal(request.at, what, f"Write {name}=….", "not_honoured")
        return
    if request.operator is Operator.MULTISTAGE:
        what = "* is a multistage request, whose jobs wait for each other, which koalapy cannot run yet"
        raise rsl.refusal(request.at, what, _ONE_AFTER_ANOTHER, "not_honoured")
    if request.operator is Operator.DISJUNCTION:
        what = "| offers alternatives, of which koalapy cannot choose"
        advice = "Write one of them; without resourceManagerContact any cluster may be taken."
        raise rsl.refusal(request.at, what, advice, "not_honoured")
    for part in request.parts:
        _check_operators(rsl, part)


class _Attribute(NamedTuple):
    """A relation whose values have no variables. `name`: as it is shown to people. `key`: its canonical form."""

    name: str
    key: str
    values: tuple[Evaluated, ...]
    at: int


@dataclass(slots=True)
class _Component:
    """The attributes of one subrequest, before they become a component."""

    at: int
    keys: dict[str, tuple[Any, int]] = field(default_factory=dict)  # of the job file: (value, offset)
    executable: Word | None = None
    arguments: tuple[Word, ...] = ()
    files: dict[str, Word] = field(default_factory=dict)  # by stdin, stdout, stderr
    hosts: tuple[int, int] | None = None  # (number, offset)
    memory_mb: dict[str, tuple[int, int]] = field(default_factory=dict)  # by minmemory, maxmemory: (number, offset)
    communicates: bool = True


@dataclass(slots=True)
class _Reading:
    """The job file that comes into being, with the places of its values in the text."""

    rsl: RslText
    evaluation: Evaluation
    job: dict[str, Any] = field(default_factory=lambda: {"components": []})
    lines: dict[Path, int] = field(default_factory=dict)
    origins: dict[Path, str] = field(default_factory=dict)
    communicates: bool = False  # whether a component does

    def mark(self, path: Path, at: int) -> None:
        """Record the place of a value."""
        self.lines[path], self.origins[path] = self.rsl.line(at), self.rsl.where(at)

    def of_job(self, key: str, value: object, at: int) -> None:
        """Set a key of the job file. Raises RequestError if it is set already."""
        if key in self.job:
            what = f"{key} of the job stands here a second time, after line {self.lines[key,]}"
            raise self.rsl.refusal(at, what, "Remove one of the two.", "duplicate_key")
        self.job[key] = value
        self.mark((key,), at)

    def refusal(self, attribute: _Attribute, what: str, advice: str, code: str = "not_honoured") -> RequestError:
        """Return an error that names the attribute and its place. `what`: the rest of the sentence after the name."""
        return self.rsl.refusal(attribute.at, f"{attribute.name} {what}", advice, code)


_Handler = Callable[[_Reading, _Component, _Attribute], None]


def _multirequest(reading: _Reading, request: Compound, outer: Scope) -> None:
    """Add the components of a multirequest, also of those inside it. Raises RequestError."""
    scope = reading.evaluation.scope(request, outer)
    whole = _Component(request.at)  # what stands beside the subrequests is of the job
    for attribute in _own_attributes(reading, request, scope):
        if attribute.key in _COMPONENT_ATTRIBUTES and attribute.key not in _JOB_ATTRIBUTES:
            what = "stands beside the subrequests of +, and belongs into one"
            raise reading.refusal(attribute, what, f"Write +(&({attribute.name}=…)…).")
        _JOB_ATTRIBUTES.get(attribute.key, _component_attribute)(reading, whole, attribute)
    for part in request.parts:
        if isinstance(part, Compound) and part.operator is Operator.MULTIREQUEST:
            _multirequest(reading, part, scope)
        elif isinstance(part, Compound):
            component = _Component(part.at)
            for attribute in _attributes(reading, part, scope):
                if attribute.key in _JOB_ATTRIBUTES and attribute.key != "label":
                    what = "is of one subrequest, but koalapy knows it of the whole job only"
                    raise reading.refusal(
                        attribute, what, f"Write it beside the subrequests: +({attribute.name}=…)(&…)."
                    )
                _component_attribute(reading, component, attribute)
            _add_component(reading, component)


def _attributes(reading: _Reading, request: Specification, outer: Scope) -> Iterator[_Attribute]:
    """Yield the attributes of a conjunction, also of those inside it. Raises RequestError."""
    seen: dict[str, _Attribute] = {}
    for attribute in _nested_attributes(reading, request, outer):
        if attribute.key in seen:
            what = f"stands here a second time, after line {reading.rsl.line(seen[attribute.key].at)}"
            raise reading.refusal(attribute, what, "Remove one of the two.", "duplicate_key")
        seen[attribute.key] = attribute
        yield attribute


def _nested_attributes(reading: _Reading, request: Specification, outer: Scope) -> Iterator[_Attribute]:
    if isinstance(request, Relation):
        yield from _own_attributes(reading, Compound(Operator.CONJUNCTION, (request,), request.at), outer)
        return
    if request.operator is Operator.MULTIREQUEST:
        advice = "Let the request begin with +, and write what is common into each subrequest."
        raise reading.rsl.refusal(request.at, "+ stands inside of &", advice, "not_honoured")
    scope = reading.evaluation.scope(request, outer)
    yield from _own_attributes(reading, request, scope)
    for part in request.parts:
        if isinstance(part, Compound):
            yield from _nested_attributes(reading, part, scope)


def _own_attributes(reading: _Reading, request: Compound, scope: Scope) -> Iterator[_Attribute]:
    """Yield the relations of a request, without its definitions of variables. Raises RequestError."""
    for part in request.parts:
        if isinstance(part, Relation) and canonical(part.attribute) != SUBSTITUTION:
            values = reading.evaluation.values(part.values, scope)
            yield _Attribute(shown(part.attribute, quote=""), canonical(part.attribute), values, part.at)


def _component_attribute(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    """Read an attribute of a component. Raises RequestError for an unknown one, or one that cannot be honoured."""
    if attribute.key in _REFUSED:
        what, advice = _REFUSED[attribute.key]
        raise reading.refusal(attribute, what, advice)
    if attribute.key not in _COMPONENT_ATTRIBUTES:
        raise reading.refusal(attribute, "is not a known attribute", use_known(attribute.name, _NAMES), "unknown_key")
    _COMPONENT_ATTRIBUTES[attribute.key](reading, component, attribute)


def _add_component(reading: _Reading, component: _Component) -> None:
    """Add a component to the job file. Raises RequestError for what its attributes do not give together."""
    index = len(reading.job["components"])
    at: Path = ("components", index)
    reading.mark(at, component.at)
    if component.executable is None:
        advice = "Write (executable=…)."
        raise reading.rsl.refusal(component.at, "this request has no executable", advice, "missing_key")
    count = component.keys.setdefault("processors", (1, component.at))[0]
    _divide_hosts(reading, component, count)
    processes = 1 if component.keys.get("launch", ("",))[0] == "once" else count
    _share_memory(reading, component, max(1, count // max(1, processes)))
    words = [component.executable, *component.arguments]
    before = redirecting(_redirections(component, processes))
    argv = [*before, *(word.text for word in words)]
    found = {"executable": argv[0], "arguments": argv[1:], **{key: value for key, (value, _) in component.keys.items()}}
    reading.job["components"].append(found)
    for place, word in enumerate(words, len(before)):
        reading.mark((*at, "arguments", place - 1) if place else (*at, "executable"), word.at)
    for key, (_, offset) in component.keys.items():
        reading.mark((*at, key), offset)
    reading.communicates |= component.communicates


def _redirections(component: _Component, processes: int) -> dict[str, str]:
    """Return the file of each operator of the shell. Several processes append to one file, each line being whole."""
    more = ">" if processes > 1 else ""
    operators = {"stdin": "<", "stdout": f">{more}", "stderr": f"2>{more}"}
    return {operator: component.files[name].text for name, operator in operators.items() if name in component.files}


def _divide_hosts(reading: _Reading, component: _Component, count: int) -> None:
    if component.hosts is None:
        return
    hosts, at = component.hosts
    if hosts < 1 or count % hosts:
        advice = f"Write a number that divides the count, {count}."
        raise reading.rsl.refusal(
            at, f"hostCount is {hosts}, among which {count} processes are not divided equally", advice
        )
    component.keys["processors_per_node"] = (count // hosts, at)


def _share_memory(reading: _Reading, component: _Component, processors: int) -> None:
    """Set the memory of each processor from that of one process, which has so many processors."""
    least, most = component.memory_mb.get("minmemory"), component.memory_mb.get("maxmemory")
    if least and most and least[0] > most[0]:
        what = f"minMemory is {least[0]}, more than maxMemory, {most[0]}"
        raise reading.rsl.refusal(least[1], what, "Exchange the two, or leave one out.", "contradiction")
    if found := most or least:
        component.keys["memory_per_processor"] = (f"{-(-found[0] // processors)}M", found[1])


def _word(reading: _Reading, attribute: _Attribute) -> Word:
    """Return the only value of the attribute. Raises RequestError for a list or several values."""
    match attribute.values:
        case (Word() as word,):
            return word
    what = f"has {len(attribute.values)} values, but takes one" if len(attribute.values) > 1 else "is a list"
    raise reading.refusal(attribute, what, "Write one value, in quotes if it has blanks.", "wrong_value")


def _words(reading: _Reading, attribute: _Attribute) -> tuple[Word, ...]:
    """Return the values of the attribute. Raises RequestError for one in parentheses."""
    words = tuple(value for value in attribute.values if isinstance(value, Word))
    if len(words) < len(attribute.values):
        raise reading.refusal(attribute, "contains a list", "Write values without parentheses.", "wrong_value")
    return words


def _pairs(reading: _Reading, attribute: _Attribute, form: str) -> Iterator[tuple[Word, Word]]:
    """Yield the values of the attribute, each a pair in parentheses. Raises RequestError for any other."""
    for value in attribute.values:
        match value:
            case Group((Word() as first, Word() as second)):
                yield first, second
            case _:
                what = f"{attribute.name} has a value here that is no pair in parentheses"
                raise reading.rsl.refusal(value.at, what, f"Write ({attribute.name} = {form}).", "wrong_value")


def _one_of(reading: _Reading, attribute: _Attribute, known: Collection[str]) -> str:
    """Return the attribute's value, one of `known`. Raises RequestError for any other."""
    word = _word(reading, attribute)
    if word.text.casefold() not in known:
        advice = f"Write {listed(known)}."
        raise reading.refusal(attribute, f"is {shown(word.text)}", advice, "wrong_value")
    return word.text.casefold()


def _number(reading: _Reading, attribute: _Attribute) -> int:
    word = _word(reading, attribute)
    if not re.fullmatch(r"[0-9]{1,9}", word.text):
        raise reading.refusal(
            attribute, f"is {shown(word.text)}, no whole number", "Write a whole number.", "wrong_value"
        )
    return int(word.text)


def _path(reading: _Reading, attribute: _Attribute) -> Word:
    """Return the attribute's value. Raises RequestError for none, and for an address such as https://…"""
    word = _word(reading, attribute)
    if not word.text:
        raise reading.refusal(attribute, "is empty", "Name a file.", "wrong_value")
    if _ADDRESS.match(word.text):
        advice = "Name a file; file_stage_in brings files of this machine, and file_stage_out fetches them."
        raise reading.refusal(
            attribute, f"is the address {shown(word.text)}, from or to which koalapy moves nothing", advice
        )
    return word


def _executable(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    """Read the program. As in Globus, a name without a slash is a file in the working directory."""
    word = _path(reading, attribute)
    try:
        as_executable(word.text)
    except PydanticCustomError as error:
        found = error.context or {}
        raise reading.refusal(attribute, str(found["what"]), str(found["advice"]), "wrong_value") from None
    component.executable = word if "/" in word.text else Word(f"./{word.text}", word.at)


def _arguments(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    component.arguments = _words(reading, attribute)


def _environment(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    variables: dict[str, str] = {}
    for name, value in _pairs(reading, attribute, "(NAME value)"):
        if name.text in variables:
            what = f"{attribute.name} names {shown(name.text)} a second time"
            raise reading.rsl.refusal(name.at, what, "Remove one of the two.", "duplicate_key")
        variables[name.text] = value.text
        reading.mark(("components", len(reading.job["components"]), "environment", name.text), name.at)
    component.keys["environment"] = (variables, attribute.at)


def _file(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    component.files[attribute.key] = _path(reading, attribute)


def _count(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    component.keys["processors"] = (_number(reading, attribute), attribute.at)


def _host_count(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    component.hosts = (_number(reading, attribute), attribute.at)


def _walltime(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    if "walltime" in component.keys:
        raise reading.refusal(
            attribute, "stands beside another limit of the run time", "Remove one of the two.", "contradiction"
        )
    component.keys["walltime"] = (f"{_number(reading, attribute)}m", attribute.at)


def _memory(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    component.memory_mb[attribute.key] = (_number(reading, attribute), attribute.at)


def _job_type(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    kind = _one_of(reading, attribute, ("multiple", "single", "mpi", "condor"))
    if kind == "mpi":
        advice = "Write (jobType=single), and let the executable be mpirun or a script that calls it."
        raise reading.refusal(attribute, "is mpi, but koalapy calls no mpirun", advice)
    if kind == "condor":
        raise reading.refusal(
            attribute, "is condor, a universe that no batch system here has", "Write multiple or single."
        )
    component.keys["launch"] = ("once" if kind == "single" else "per-processor", attribute.at)


def _start_type(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    kind = _one_of(reading, attribute, ("strict-barrier", "loose-barrier", "no-barrier"))
    if kind == "no-barrier":
        advice = "Remove it: the program itself calls no barrier, and starts when all components have come."
        raise reading.refusal(attribute, "is no-barrier, but the components of a job start together", advice)
    component.keys["optional"] = (kind == "loose-barrier", attribute.at)


def _communication_type(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    kind = _one_of(reading, attribute, ("blocking-join", "independent"))
    component.communicates = kind == "blocking-join"


def _key(key: str) -> _Handler:
    """Return the handler of an attribute whose value is that of a key of the job file's component."""

    def handle(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
        component.keys[key] = (_word(reading, attribute).text, attribute.at)

    return handle


def _without_effect(*known: str) -> _Handler:
    """Return the handler of an attribute that, with these values, asks for what koalapy does anyway."""

    def handle(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
        _one_of(reading, attribute, known)

    return handle


def _dry_run(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    if _one_of(reading, attribute, ("yes", "no")) == "yes":
        advice = "Remove it, and submit with --check: koala submit --check job.rsl."
        raise reading.refusal(attribute, "is yes, which is an option of the command here", advice)


def _label(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    """Read a label. Labels of subrequests are for people, and for programs that use DUROC's library."""
    _word(reading, attribute)


def _name(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    reading.of_job("name", _word(reading, attribute).text, attribute.at)


def _communication(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    reading.of_job("communication", _one_of(reading, attribute, ("all", "none")), attribute.at)


def _stage_in(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    staged = reading.job.setdefault("stage_in", [])
    reading.mark(("stage_in",), attribute.at)
    for source, place in _pairs(reading, attribute, "(file:///path/name name)"):
        path = _local_path(reading, attribute, source)
        if landing(path) != posixpath.normpath(place.text):
            what = f"{shown(path)} lies at {shown(landing(path))} on the cluster, not at {shown(place.text)}"
            raise reading.rsl.refusal(place.at, what, "Write that as its place; files are not renamed on their way.")
        reading.mark(("stage_in", len(staged)), source.at)
        staged.append(path)


def _stage_out(reading: _Reading, component: _Component, attribute: _Attribute) -> None:
    staged = reading.job.setdefault("stage_out", [])
    reading.mark(("stage_out",), attribute.at)
    for place, target in _pairs(reading, attribute, "(name file:///path/name)"):
        entry = staged_out_to(posixpath.normpath(place.text), _local_path(reading, attribute, target))
        if entry is None:
            what = f"{shown(target.text)} is another name than {shown(place.text)}"
            raise reading.rsl.refusal(target.at, what, "Let it end with that name; files are not renamed on their way.")
        reading.mark(("stage_out", len(staged)), place.at)
        staged.append(entry)


def _local_path(reading: _Reading, attribute: _Attribute, word: Word) -> str:
    """Return the path of a file URI, or a path as it is. Raises RequestError for another address."""
    path = path_of_uri(word.text) if _ADDRESS.match(word.text) or word.text.startswith("file:") else word.text
    if not path:
        what = f"{attribute.name} names {shown(word.text)}, no file of this machine"
        raise reading.rsl.refusal(word.at, what, "Write file:///its/path.", "not_honoured")
    return posixpath.normpath(path)


# The attributes of a whole job. In a multirequest they stand beside its subrequests.
_OF_JOB: dict[str, _Handler] = {
    "label": _name,
    "communication": _communication,
    "file_stage_in": _stage_in,
    "file_stage_out": _stage_out,
}
_OF_COMPONENT: dict[str, _Handler] = {
    "executable": _executable,
    "arguments": _arguments,
    "environment": _environment,
    "stdin": _file,
    "stdout": _file,
    "stderr": _file,
    "count": _count,
    "hostCount": _host_count,
    "maxWallTime": _walltime,
    "maxTime": _walltime,
    "minMemory": _memory,
    "maxMemory": _memory,
    "jobType": _job_type,
    "queue": _key("queue"),
    "project": _key("account"),
    "account": _key("account"),
    "resourceManagerContact": _key("cluster"),
    "label": _label,
    "subjobStartType": _start_type,
    "subjobCommsType": _communication_type,
    "dryRun": _dry_run,
    "save_state": _without_effect("yes", "no"),
    "gramMyJob": _without_effect("collective"),
}
_NAMES = (*_OF_COMPONENT, *_OF_JOB, "rsl_substitution")
_JOB_ATTRIBUTES = {canonical(name): handler for name, handler in _OF_JOB.items()}
_COMPONENT_ATTRIBUTES = {canonical(name): handler for name, handler in _OF_COMPONENT.items()}
_SESSION = "belongs to a session with Globus's job manager, which koalapy does not have"
# By canonical name: what is wrong with an attribute, and what to do.
_REFUSED: dict[str, tuple[str, str]] = {
    "directory": (
        "is not supported",
        "A program runs in a directory of its own, which holds the staged files: write paths relative to it.",
    ),
    "maxcputime": (
        "limits the processor time, but koalapy limits the run time only",
        "Write maxWallTime, in minutes.",
    ),
    "mincount": ("lets a job have fewer processors, which koalapy cannot do yet", "Write the count that it needs."),
    "wait": ("makes a job wait for others, which koalapy cannot do yet", _ONE_AFTER_ANOTHER),
    "onerror": (
        "sets how often one job is tried again, which koalapy cannot do yet",
        "Remove it; retries.submission of the grid file holds for all jobs.",
    ),
    "reservation": ("is not of a job", "Remove it, and name the reservation in the grid file."),
    "reservationid": ("is not of a job", "Remove it, and name the reservation in the grid file."),
    "resourcemanagername": (
        "names a resource of Globus",
        "Write resourceManagerContact, with a cluster of the grid file.",
    ),
    "filestageinshared": (
        "is not supported",
        "Write file_stage_in; a cluster keeps staged files for further jobs anyway.",
    ),
    "filecleanup": ("is not supported", "Remove it; the job's own directory is removed with all that is in it."),
    "scratchdir": ("is not supported", "Remove it; each attempt has a directory of its own."),
    "gasscache": ("is not supported", "Remove it; koalapy has no GASS cache."),
    "librarypath": ("is not supported", "Write (environment = (LD_LIBRARY_PATH …))."),
    "username": ("is not supported", "Remove it; jobs run as you, on each cluster by the account of your grid file."),
    "remoteiourl": ("names a server of files, which koalapy does not use", "Write file_stage_in and file_stage_out."),
    "twophase": (_SESSION, _REMOVE),
    "expiration": (_SESSION, _REMOVE),
    "restart": (_SESSION, _REMOVE),
    "restartcontacts": (_SESSION, _REMOVE),
    "stdoutposition": (_SESSION, _REMOVE),
    "stderrposition": (_SESSION, _REMOVE),
    "proxytimeout": (_SESSION, _REMOVE),
    "savejobdescription": (_SESSION, _REMOVE),
    "loglevel": (_SESSION, _REMOVE),
    "logpattern": (_SESSION, _REMOVE),
}
