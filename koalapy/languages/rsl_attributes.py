"""The attributes of RSL: what each becomes in a job, and which are refused (docs/rsl.md)."""

import posixpath
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic_core import PydanticCustomError

from koalapy.languages.parsed import ParsedComponent, ParsedJob, ParsedText, SourceText
from koalapy.languages.paths import as_executable, path_of_uri, staged_name, staged_out_to
from koalapy.languages.rsl_values import Evaluated, Evaluation, Group, Word, canonical
from koalapy.model.errors import RequestError
from koalapy.model.textfile.document import Plain
from koalapy.model.textfile.words import listed, shown, use_known

_REMOVE = "Remove it."
CONTACT = "resourcemanagercontact"
_SITE = "site:"  # before the name of a neighbouring site
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class Attribute(NamedTuple):
    """A relation whose values have no variables. `name`: as it is shown to people. `key`: its canonical form."""

    name: str
    key: str
    values: tuple[Evaluated, ...]
    at: int


@dataclass(slots=True)
class RslComponent(ParsedComponent):
    """A subrequest. `at`: its offset. `numbers`: by the keys of attributes that count together, with their offsets."""

    at: int = 0
    numbers: dict[str, tuple[int, int]] = field(default_factory=dict)
    communicates: bool = True


class Waits(NamedTuple):
    """The jobs for which a job waits: (number from 1, offset) of each, and the offset of the attribute."""

    numbers: tuple[tuple[int, int], ...]
    at: int


@dataclass(slots=True)
class Reading:
    """The reading of one job or flow. `communicates`: whether a component of the job does."""

    rsl: SourceText
    evaluation: Evaluation
    job: ParsedJob
    communicates: bool = False
    waits: Waits | None = None

    def set_once(self, key: str, value: object, at: int) -> None:
        """Set a key of the job file. Raises RequestError if it is set already."""
        if key in self.job.values:
            what = f"{key} of the job stands here a second time, after line {self.job.places[key,].line}"
            raise self.rsl.refusal(at, what, "Remove one of the two.", "duplicate_key")
        self.job.set(key, value, self.rsl.place(at))

    def text(self, word: Word) -> ParsedText:
        return ParsedText(word.text, self.rsl.place(word.at))

    def refusal(self, attribute: Attribute, what: str, advice: str, code: str = "not_honoured") -> RequestError:
        """Return an error that names the attribute and its place. `what`: the rest of the sentence after the name."""
        return self.rsl.refusal(attribute.at, f"{attribute.name} {what}", advice, code)


Handler = Callable[[Reading, RslComponent, Attribute], None]


def read_component_attribute(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    """Read an attribute of a component. Raises RequestError for an unknown one, or one that cannot be honoured."""
    if attribute.key in UNSUPPORTED:
        what, advice = UNSUPPORTED[attribute.key]
        raise reading.refusal(attribute, what, advice)
    if attribute.key not in COMPONENT_ATTRIBUTES:
        raise reading.refusal(attribute, "is not a known attribute", use_known(attribute.name, _NAMES), "unknown_key")
    COMPONENT_ATTRIBUTES[attribute.key](reading, component, attribute)


def _word(reading: Reading, attribute: Attribute) -> Word:
    """Return the only value of the attribute. Raises RequestError for a list or several values."""
    match attribute.values:
        case (Word() as word,):
            return word
    what = f"has {len(attribute.values)} values, but takes one" if len(attribute.values) > 1 else "is a list"
    raise reading.refusal(attribute, what, "Write one value, in quotes if it has blanks.", "wrong_value")


def _words(reading: Reading, attribute: Attribute) -> tuple[Word, ...]:
    """Return the values of the attribute. Raises RequestError for one in parentheses."""
    words = tuple(value for value in attribute.values if isinstance(value, Word))
    if len(words) < len(attribute.values):
        raise reading.refusal(attribute, "contains a list", "Write values without parentheses.", "wrong_value")
    return words


def _pairs(reading: Reading, attribute: Attribute, form: str) -> Iterator[tuple[Word, Word]]:
    """Yield the values of the attribute, each a pair in parentheses. Raises RequestError for any other."""
    for value in attribute.values:
        match value:
            case Group((Word() as first, Word() as second)):
                yield first, second
            case _:
                what = f"{attribute.name} has a value here that is no pair in parentheses"
                raise reading.rsl.refusal(value.at, what, f"Write ({attribute.name} = {form}).", "wrong_value")


def _one_of(reading: Reading, attribute: Attribute, known: Collection[str]) -> str:
    """Return the attribute's value, one of `known`. Raises RequestError for any other."""
    word = _word(reading, attribute)
    if word.text.casefold() not in known:
        advice = f"Write {listed(known)}."
        raise reading.refusal(attribute, f"is {shown(word.text)}", advice, "wrong_value")
    return word.text.casefold()


def _number(reading: Reading, attribute: Attribute) -> int:
    word = _word(reading, attribute)
    if not re.fullmatch(r"[0-9]{1,9}", word.text):
        raise reading.refusal(
            attribute, f"is {shown(word.text)}, no whole number", "Write a whole number.", "wrong_value"
        )
    return int(word.text)


def _path(reading: Reading, attribute: Attribute) -> Word:
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


def _executable(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    """Read the program. As in Globus, a name without a slash is a file in the working directory."""
    word = _path(reading, attribute)
    try:
        as_executable(word.text)
    except PydanticCustomError as error:
        found = error.context or {}
        raise reading.refusal(attribute, str(found["what"]), str(found["advice"]), "wrong_value") from None
    program = word.text if "/" in word.text else f"./{word.text}"
    component.executable = ParsedText(program, reading.rsl.place(word.at))


def _arguments(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    component.arguments = [reading.text(word) for word in _words(reading, attribute)]


def _environment(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    component.places["environment",] = reading.rsl.place(attribute.at)
    for name, value in _pairs(reading, attribute, "(NAME value)"):
        if name.text in component.environment:
            what = f"{attribute.name} names {shown(name.text)} a second time"
            raise reading.rsl.refusal(name.at, what, "Remove one of the two.", "duplicate_key")
        component.environment[name.text] = ParsedText(value.text, reading.rsl.place(name.at))


def _file(operator: str) -> Handler:
    """Return the handler of a file to which the program is redirected by this operator."""

    def handle(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
        component.files[operator] = reading.text(_path(reading, attribute))

    return handle


def _counted(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    """Read a number that has a meaning together with others."""
    component.numbers[attribute.key] = (_number(reading, attribute), attribute.at)


def _walltime(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    if "walltime" in component.values:
        raise reading.refusal(
            attribute, "stands beside another limit of the run time", "Remove one of the two.", "contradiction"
        )
    component.set("walltime", f"{_number(reading, attribute)}m", reading.rsl.place(attribute.at))


_LAUNCHES = {"multiple": "per-processor", "single": "once", "mpi": "mpi"}


def _job_type(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    kind = _one_of(reading, attribute, ("multiple", "single", "mpi", "condor"))
    if kind == "condor":
        raise reading.refusal(
            attribute, "is condor, a universe that no batch system here has", "Write multiple or single."
        )
    component.set("launch", _LAUNCHES[kind], reading.rsl.place(attribute.at))


def _start_type(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    kind = _one_of(reading, attribute, ("strict-barrier", "loose-barrier", "no-barrier"))
    if kind == "no-barrier":
        advice = "Remove it: the program itself calls no barrier, and starts when all components have come."
        raise reading.refusal(attribute, "is no-barrier, but the components of a job start together", advice)
    component.set("optional", kind == "loose-barrier", reading.rsl.place(attribute.at))


def _communication_type(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    kind = _one_of(reading, attribute, ("blocking-join", "independent"))
    component.communicates = kind == "blocking-join"


def _key(key: str) -> Handler:
    """Return the handler of an attribute whose value is that of a key of the job file's component."""

    def handle(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
        component.set(key, _word(reading, attribute).text, reading.rsl.place(attribute.at))

    return handle


def site_named_by(attribute: Attribute) -> str | None:
    """Return the site that a resourceManagerContact names, such as `site:lyon`; None for any other attribute."""
    match attribute.values:
        case (Word(text=text),) if attribute.key == CONTACT and text.startswith(_SITE):
            return text.removeprefix(_SITE)
    return None


def read_contact(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    """Read the cluster of a component, or the site that runs the whole job. Raises RequestError."""
    site = site_named_by(attribute)
    if site is None:
        component.set("cluster", _word(reading, attribute).text, reading.rsl.place(attribute.at))
    else:
        reading.set_once("site", site, attribute.at)


def _without_effect(*known: str) -> Handler:
    """Return the handler of an attribute that, with these values, asks for what koalapy does anyway."""

    def handle(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
        _one_of(reading, attribute, known)

    return handle


def _dry_run(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    if _one_of(reading, attribute, ("yes", "no")) == "yes":
        advice = "Remove it, and submit with --check: koala submit --check job.rsl."
        raise reading.refusal(attribute, "is yes, which is an option of the command here", advice)


def _label(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    """Read a label. Labels of subrequests are for people, and for programs that use DUROC's library."""
    _word(reading, attribute)


def _name(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    reading.set_once("name", _word(reading, attribute).text, attribute.at)


def _wait(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    """Read the numbers of jobs, which commas may separate too, as in the paper: `wait = 1, 2`."""
    numbers = []
    for word in _words(reading, attribute):
        for part in filter(None, word.text.split(",")):
            if not re.fullmatch(r"[0-9]{1,9}", part):
                what = f"is {shown(word.text)}, no number of a job"
                raise reading.refusal(attribute, what, "Write (wait = 1, 2): jobs are counted from 1.", "wrong_value")
            numbers.append((int(part), word.at))
    reading.waits = Waits(tuple(numbers), attribute.at)


def _on_error(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    reading.set_once("on_error", Plain(_word(reading, attribute).text), attribute.at)


def _max_wait(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    """Read how many minutes the job may wait for its start, counted as in maxWallTime."""
    reading.set_once("expires", f"{_number(reading, attribute)}m", attribute.at)


def _on_failure(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    reading.set_once("on_failure", _one_of(reading, attribute, ("continue", "stop")), attribute.at)


def _communication(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    reading.set_once("communication", _one_of(reading, attribute, ("all", "none")), attribute.at)


def _stage_in(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    reading.job.places["stage_in",] = reading.rsl.place(attribute.at)
    for source, place in _pairs(reading, attribute, "(file:///path/name name)"):
        path = _local_path(reading, attribute, source)
        if staged_name(path) != posixpath.normpath(place.text):
            what = f"{shown(path)} lies at {shown(staged_name(path))} on the cluster, not at {shown(place.text)}"
            raise reading.rsl.refusal(place.at, what, "Write that as its place; files are not renamed on their way.")
        reading.job.append("stage_in", path, reading.rsl.place(source.at))


def _stage_out(reading: Reading, component: RslComponent, attribute: Attribute) -> None:
    reading.job.places["stage_out",] = reading.rsl.place(attribute.at)
    for place, target in _pairs(reading, attribute, "(name file:///path/name)"):
        entry = staged_out_to(posixpath.normpath(place.text), _local_path(reading, attribute, target))
        if entry is None:
            what = f"{shown(target.text)} is another name than {shown(place.text)}"
            raise reading.rsl.refusal(target.at, what, "Let it end with that name; files are not renamed on their way.")
        reading.job.append("stage_out", entry, reading.rsl.place(place.at))


def _local_path(reading: Reading, attribute: Attribute, word: Word) -> str:
    """Return the path of a file URI, or a path as it is. Raises RequestError for another address."""
    path = path_of_uri(word.text) if _ADDRESS.match(word.text) or word.text.startswith("file:") else word.text
    if not path:
        what = f"{attribute.name} names {shown(word.text)}, no file of this machine"
        raise reading.rsl.refusal(word.at, what, "Write file:///its/path.", "not_honoured")
    return posixpath.normpath(path)


# The attributes of a whole job. In a multirequest they stand beside its subrequests.
_OF_JOB: dict[str, Handler] = {
    "label": _name,
    "communication": _communication,
    "file_stage_in": _stage_in,
    "file_stage_out": _stage_out,
    "wait": _wait,
    "on_error": _on_error,
    "max_wait": _max_wait,
}
_OF_FLOW: dict[str, Handler] = {"label": _name, "on_failure": _on_failure}
_OF_COMPONENT: dict[str, Handler] = {
    "executable": _executable,
    "arguments": _arguments,
    "environment": _environment,
    "stdin": _file("<"),
    "stdout": _file(">"),
    "stderr": _file("2>"),
    "count": _counted,
    "min_count": _counted,
    "hostCount": _counted,
    "maxWallTime": _walltime,
    "maxTime": _walltime,
    "minMemory": _counted,
    "maxMemory": _counted,
    "jobType": _job_type,
    "queue": _key("queue"),
    "project": _key("account"),
    "account": _key("account"),
    "resourceManagerContact": read_contact,
    "label": _label,
    "subjobStartType": _start_type,
    "subjobCommsType": _communication_type,
    "dryRun": _dry_run,
    "save_state": _without_effect("yes", "no"),
    "gramMyJob": _without_effect("collective"),
}
_NAMES = (*_OF_COMPONENT, *_OF_JOB, *_OF_FLOW, "rsl_substitution")
JOB_ATTRIBUTES = {canonical(name): handler for name, handler in _OF_JOB.items()}
FLOW_ATTRIBUTES = {canonical(name): handler for name, handler in _OF_FLOW.items()}
COMPONENT_ATTRIBUTES = {canonical(name): handler for name, handler in _OF_COMPONENT.items()}
_SESSION = "belongs to a session with Globus's job manager, which koalapy does not have"
# By canonical name: what is wrong with an attribute, and what to do.
UNSUPPORTED: dict[str, tuple[str, str]] = {
    "directory": (
        "is not supported",
        "A program runs in a directory of its own, which holds the staged files: write paths relative to it.",
    ),
    "maxcputime": (
        "limits the processor time, but koalapy limits the run time only",
        "Write maxWallTime, in minutes.",
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
    "expiration": (_SESSION, "Remove it; max_wait bounds the minutes that the job waits for its start."),
    "restart": (_SESSION, _REMOVE),
    "restartcontacts": (_SESSION, _REMOVE),
    "stdoutposition": (_SESSION, _REMOVE),
    "stderrposition": (_SESSION, _REMOVE),
    "proxytimeout": (_SESSION, _REMOVE),
    "savejobdescription": (_SESSION, _REMOVE),
    "loglevel": (_SESSION, _REMOVE),
    "logpattern": (_SESSION, _REMOVE),
}
