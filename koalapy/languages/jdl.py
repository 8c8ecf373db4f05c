"""JDL, the Job Description Language of the EU-DataGrid, with the attributes that CrossGrid added (docs/jdl.md).

A text is one record of the ClassAd language. An attribute that koalapy cannot honour is refused, with a message that
names it, its line and its column.
"""

import re
import shlex
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from koalapy.languages.parsed import ParsedComponent, ParsedJob, ParsedText, SourceText
from koalapy.languages.paths import path_of_uri
from koalapy.model.request import LOWEST_PRIORITY, MAX_PROCESSORS
from koalapy.model.textfile import Place
from koalapy.model.textfile.classad import (
    Checker,
    ClassAdError,
    Expression,
    Kind,
    Token,
    tokens,
    unexpected,
    unquoted,
)
from koalapy.model.textfile.document import Document
from koalapy.model.textfile.words import listed, shown, use_known
from koalapy.model.units import SECOND, Instant, format_instant

_LAST_SECOND = 1 << 35
_LIST = 'Write a text, or several in braces: {"a", "b"}.'
_ONE_CLUSTER = {"mpich": "mpich", "mpich-p4": "mpich", "openmpi": "openmpi"}  # by type: whose mpirun starts the job
_GROUP = "mpich-g2"
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")  # such as gsiftp://host/path, lfn:/grid/name and file:///home/me/a
_JOB_TYPES = ("Normal", "MPICH", "MPICH-P4", "OpenMPI", "MPICH-G2")
_INTERACTIVE = "Interactive"  # a type by itself, or beside one of these
# Attributes of JDL that koalapy does not honour, and what to write in their place.
_REFUSED = {
    "dataaccessprotocol": "Stage files in by InputSandbox.",
    "inputdata": "Stage files in by InputSandbox.",
    "outputdata": "Name the files in OutputSandbox.",
    "outputse": "Name the files in OutputSandbox; they come back beside the job file.",
    "replicacatalog": "Stage files in by InputSandbox.",
    "storageindex": "Stage files in by InputSandbox.",
    "inputsandboxbaseuri": "Name each file by its path.",
    "outputsandboxbaseuri": "Files come back beside the job file.",
    "outputsandboxdesturi": "Files come back beside the job file.",
    "hlrlocation": "Remove it; `koala usage` sums up processor time.",
    "myproxyserver": "Remove it; koalapy logs in as you do.",
    "shallowretrycount": "Write RetryCount.",
    "allowzippedisb": "Remove it.",
    "perusalfileenable": "Remove it; `koala logs -f` follows the output.",
    "prologue": "Let the executable be a script that does both.",
    "epilogue": "Let the executable be a script that does both.",
    "nodes": "Write a flow in YAML, with the keys jobs and after.",
    "dependencies": "Write a flow in YAML, with the keys jobs and after.",
    "parameters": "Write a sweep in YAML, and submit it by `koala sweep`.",
    "parameterstart": "Write a sweep in YAML, and submit it by `koala sweep`.",
    "parameterstep": "Write a sweep in YAML, and submit it by `koala sweep`.",
    "datarequirements": "Stage files in by InputSandbox.",
    "cpunumber": 'Write JobType = "MPICH"; and NodeNumber.',
    "smpgranularity": "Write `-o components.0.processors_per_node=4`.",
    "hostnumber": "Write `-o components.0.processors_per_node=4`.",
    "wholenodes": "Write `-o components.0.exclusive=true`.",
    "subjobtype": 'Write JobType = "MPICH"; or "OpenMPI".',
    "queuename": "Write `-o components.0.queue=NAME`.",
    "batchsystem": 'Write Requirements = other.LRMSType == "…".',
    "outputsandboxbasedesturi": "Files come back beside the job file.",
    "usertags": "Remove it, or write the job in YAML, with labels.",
    "cputime": "Write `-o components.0.walltime=1h`.",
    "site": 'Write Requirements = other.Name == "…".',
    "sites": 'Write Requirements = other.Name == "…".',
    "bannedsites": 'Write Requirements = other.Name != "…".',
    "submitto": 'Write Requirements = other.Name == "…".',
    "fuzzyrank": "Remove it; of equal ranks, the order of the grid file decides.",
    "userdata": "Remove it.",
    "jobsteps": "Remove it.",
    "currentstep": "Remove it.",
    "listenerport": "Remove it.",
    "listenerhost": "Remove it.",
}


class Attribute(NamedTuple):
    """An attribute of the text: its name as written, the offset of it, its value, and the tokens of the value."""

    name: str
    at: int
    value: Expression
    tokens: list[Token]


def document_of(text: str | bytes, source: str) -> Document:
    """Return the job in the form of koalapy's job file. Raises RequestError."""
    parsed = SourceText(text, source)
    try:
        return _Reading(parsed, _attributes(parsed)).document()
    except ClassAdError as error:
        raise parsed.refusal(error.at, error.what, error.advice, error.code) from None


def _attributes(source: SourceText) -> dict[str, Attribute]:
    """Return the attributes by their names in lower case. The brackets around them may be missing.

    Raises ClassAdError.
    """
    checker = Checker(tokens(source.text))
    begin = checker.advance() if checker.next.text == "[" else None
    found: dict[str, Attribute] = {}
    while checker.next.kind is Kind.NAME:
        name = checker.advance()
        if checker.next.text != "=":
            raise unexpected(checker.next, "=")
        if name.word in _REFUSED:
            what = f"{shown(name.text, quote='')} cannot be honoured"
            raise ClassAdError(name.at, what, _REFUSED[name.word], "not_honoured")
        checker.advance()
        first = checker.index
        value = checker.expression()
        if name.word in found:
            before = source.place(found[name.word].at).line
            what = f"{shown(name.text, quote='')} stands here a second time, after line {before}"
            raise ClassAdError(name.at, what, "Remove one of the two.", "duplicate_key")
        found[name.word] = Attribute(name.text, name.at, value, checker.tokens[first : checker.index])
        after = checker.next
        if after.text == ";":
            checker.advance()
        elif after.text == "=":
            raise unexpected(after)
        elif after.text != "]" and after.kind is not Kind.END:
            raise unexpected(after, ";")
    _check_end(checker, begin)
    if not found:
        raise ClassAdError(0, "the text has no attribute", 'Write at least Executable = "…";.', "empty_file")
    return found


def _check_end(checker: Checker, begin: Token | None) -> None:
    if checker.next.text == "]" and begin is not None:
        checker.advance()
    elif checker.next.kind is Kind.END and begin is not None:
        raise ClassAdError(begin.at, "this bracket is not closed", "Write ] at the end, or leave both out.")
    if checker.next.text == "]":
        raise ClassAdError(checker.next.at, "this bracket closes none", "Write [ at the beginning, or leave both out.")
    if checker.next.kind is not Kind.END:
        raise unexpected(checker.next, "an attribute's name")


class _Reading:
    """The translation of attributes into a job file. Its methods raise ClassAdError."""

    def __init__(self, source: SourceText, attributes: Mapping[str, Attribute]) -> None:
        self._source, self._attributes = source, attributes
        self._job, self._component = ParsedJob(source.source), ParsedComponent()

    def document(self) -> Document:
        handlers: dict[str, Callable[[Attribute], None]] = {
            "type": self._type,
            "jobname": lambda found: self._job.set("name", self._text_of(found), self._place_of(found)),
            "priority": self._priority,
            "retrycount": self._retry_count,
            "environment": self._environment,
            "virtualorganisation": self._label,
            "inputsandbox": lambda found: self._files(found, "stage_in"),
            "outputsandbox": lambda found: self._files(found, "stage_out"),
            "requirements": lambda found: self._expression(found, "requirements"),
            "rank": lambda found: self._expression(found, "rank"),
            "expirytime": self._expiry_time,
        }
        together = (
            "executable", "arguments", "stdinput", "stdoutput", "stderror", "jobtype", "nodenumber", "minnumcpu",
            "maxnumcpu",
        )  # fmt: skip
        for key, found in self._attributes.items():
            if key in handlers:
                handlers[key](found)
            elif key not in together:
                raise self._refusal(found, [*handlers, *together])
        self._processors()
        self._interactive()
        self._program()
        self._job.add(self._component)
        return self._job.document()

    def _refusal(self, found: Attribute, known: Collection[str]) -> ClassAdError:
        names = [_SPELLED.get(each, each) for each in known]
        what = f"{shown(found.name, quote='')} is not an attribute that is known"
        return ClassAdError(found.at, what, use_known(found.name, names), "unknown_key")

    # ---- the job

    def _type(self, found: Attribute) -> None:
        if (text := self._text_of(found)).casefold() != "job":
            what = f"Type is {shown(text)}, which koalapy does not run"
            raise ClassAdError(found.tokens[0].at, what, 'Write Type = "Job"; and each job by itself.', "not_honoured")

    def _priority(self, found: Attribute) -> None:
        self._job.set("priority", self._number_of(found, 0, LOWEST_PRIORITY), self._place_of(found))

    def _retry_count(self, found: Attribute) -> None:
        self._job.set("on_error", self._number_of(found, 0, 1_000), self._place_of(found))

    def _expiry_time(self, found: Attribute) -> None:
        """Read the instant until which the job may wait, in seconds since 1970."""
        expires = format_instant(Instant(self._number_of(found, 1, _LAST_SECOND) * SECOND))
        self._job.set("expires", expires, self._place_of(found))

    def _label(self, found: Attribute) -> None:
        self._job.set("labels", {found.name: self._text_of(found)}, self._place_of(found))

    def _files(self, found: Attribute, key: str) -> None:
        self._job.set(key, [], self._place_of(found))
        for token, text in self._texts_of(found):
            path = path_of_uri(text) if _ADDRESS.match(text) else text
            if path is None:
                what = f"{found.name} names {shown(text)}, which is elsewhere"
                raise ClassAdError(token.at, what, "Name files of this machine.", "not_honoured")
            self._job.append(key, path, self._place(token))

    def _environment(self, found: Attribute) -> None:
        variables = self._component.environment
        self._component.places["environment",] = self._place_of(found)
        for token, text in self._texts_of(found):
            name, sign, value = text.partition("=")
            if not sign or name in variables:
                what = f"{shown(text)} sets no variable" if not sign else f"{shown(name)} is set a second time"
                raise ClassAdError(token.at, what, 'Write each variable once, as "NAME=value".')
            variables[name] = ParsedText(value, self._place(token))

    def _expression(self, found: Attribute, key: str) -> None:
        end = Token(Kind.END, "", found.tokens[-1].at)
        checker = Checker([*found.tokens, end], own=self._own(), unreadable=self._attributes.keys())
        self._component.set(key, checker.expression().text, self._place_of(found))

    def _own(self) -> dict[str, str]:
        """Return the numbers of processors by the names that expressions have for them."""
        least, most = self._counts()
        return {"minnumcpu": str(least), "nodenumber": str(least), "maxnumcpu": str(most)}

    # ---- the program and its processors

    def _job_type(self) -> str:
        found = self._attributes.get("jobtype")
        texts = [] if found is None else self._texts_of(found)
        types = (*_JOB_TYPES, _INTERACTIVE)
        known = {each.casefold() for each in types}
        for token, text in texts:
            if text.casefold() not in known:
                what = f"JobType is {shown(text)}, which koalapy does not run"
                raise ClassAdError(token.at, what, f"Write {listed(types)}.", "not_honoured")
        kinds = [each for each in texts if each[1].casefold() != _INTERACTIVE.casefold()]
        if len(kinds) > 1:
            raise ClassAdError(kinds[1][0].at, "JobType has a second kind", "Write one of them.", "not_honoured")
        return kinds[0][1].casefold() if kinds else "normal"

    def _interactive(self) -> None:
        found = self._attributes.get("jobtype")
        if found is not None and any(text.casefold() == _INTERACTIVE.casefold() for _, text in self._texts_of(found)):
            self._job.set("interactive", True, self._place_of(found))

    def _counts(self) -> tuple[int, int]:
        """Return the least and the most processors."""
        counts = {
            key: self._number_of(found, 1, MAX_PROCESSORS)
            for key in ("nodenumber", "minnumcpu", "maxnumcpu")
            if (found := self._attributes.get(key)) is not None
        }
        least = counts.get("minnumcpu", counts.get("nodenumber", 1))
        most = counts.get("maxnumcpu", least)
        if "nodenumber" in counts and counts["nodenumber"] != least:
            what = f"NodeNumber is {counts['nodenumber']}, but MinNumCPU is {least}"
            raise ClassAdError(self._attributes["nodenumber"].at, what, "Leave one of them out.", "contradiction")
        if most < least:
            what = f"MaxNumCPU is {most}, less than the {least} that are needed at least"
            raise ClassAdError(self._attributes["maxnumcpu"].at, what, "Exchange the two.", "contradiction")
        return least, most

    def _processors(self) -> None:
        kind, (least, most) = self._job_type(), self._counts()
        named = next((self._attributes[key] for key in _COUNTS if key in self._attributes), None)
        if kind == "normal" and named is not None:
            what = f"{named.name} is for parallel jobs, and JobType names none"
            advice = f"Write JobType = {listed(map(_quoted, _JOB_TYPES[1:]))}."
            raise ClassAdError(named.at, what, advice, "contradiction")
        if kind != "normal" and not {"minnumcpu", "nodenumber"} & self._attributes.keys():
            at = self._attributes["jobtype"].at
            raise ClassAdError(at, "a parallel job has no MinNumCPU", "Write MinNumCPU = 4;.", "missing_key")
        component = self._component
        component.values["processors"] = least if least == most else {"want": most, "least": least}
        if kind in _ONE_CLUSTER:
            component.values |= {"launch": "mpi", "mpi": _ONE_CLUSTER[kind]}
        elif kind == _GROUP:
            component.values["spread"] = True
        else:
            component.values["launch"] = "once"
        if named is not None:
            component.places |= {(key,): self._place(named) for key in ("processors", "launch", "mpi", "spread")}

    def _program(self) -> None:
        found = self._attributes.get("executable")
        if found is None:
            first = next(iter(self._attributes.values()))
            raise ClassAdError(first.at, "the job has no Executable", 'Write Executable = "…";.', "missing_key")
        component, program = self._component, self._text_of(found)
        sandbox = [path.rpartition("/")[2] for path in self._job.values.get("stage_in", ())]
        if "/" not in program and program in sandbox:
            program = f"./{program}"  # it is looked up in the job's own directory
        component.executable = ParsedText(program, self._place_of(found))
        component.append = self._job_type() != "normal"
        component.files = {
            operator: ParsedText(self._text_of(file), self._place_of(file))
            for name, operator in {"stdinput": "<", "stdoutput": ">", "stderror": "2>"}.items()
            if (file := self._attributes.get(name)) is not None
        }
        arguments = self._attributes.get("arguments")
        component.places["arguments",] = place = self._place_of(arguments or found)
        if arguments is not None:
            component.arguments = [ParsedText(word, place) for word in self._words_of(arguments)]

    def _words_of(self, found: Attribute) -> list[str]:
        """Return the words of Arguments, which are divided and quoted as for a shell; there is no shell."""
        try:
            return shlex.split(self._text_of(found))
        except ValueError:
            what = "Arguments has a quote or an escape without its end"
            raise ClassAdError(found.tokens[0].at, what, "Close it, as for a shell.") from None

    # ---- values

    def _text_of(self, found: Attribute) -> str:
        if found.value.constant is not Kind.TEXT:
            raise self._wrong(found, "a text", f'Write {found.name} = "…";.')
        return unquoted(found.tokens[0])

    def _texts_of(self, found: Attribute) -> list[tuple[Token, str]]:
        """Return the texts of a list, or one text, each with its token."""
        if found.value.constant is Kind.TEXT:
            return [(found.tokens[0], unquoted(found.tokens[0]))]
        inner, is_list = found.tokens[1:-1], found.tokens[0].text == "{" and found.tokens[-1].text == "}"
        texts, commas = inner[::2], inner[1::2]
        if not is_list or any(each.kind is not Kind.TEXT for each in texts) or any(each.text != "," for each in commas):
            raise self._wrong(found, "a text, or a list of texts", _LIST)
        return [(each, unquoted(each)) for each in texts]

    def _number_of(self, found: Attribute, least: int, most: int) -> int:
        token = found.tokens[0]
        if found.value.constant is not Kind.NUMBER or not token.text.isdecimal():
            raise self._wrong(found, "a whole number", f"Write one from {least} to {most:,}.")
        if not least <= int(token.text) <= most:
            what = f"{found.name} is {token.text}, which is not from {least} to {most:,}"
            raise ClassAdError(token.at, what, "Write a number in this range.", "wrong_value")
        return int(token.text)

    def _wrong(self, found: Attribute, wanted: str, advice: str) -> ClassAdError:
        what = f"{shown(found.name, quote='')} is not {wanted}"
        return ClassAdError(found.tokens[0].at, what, advice, "wrong_value")

    def _place_of(self, found: Attribute) -> Place:
        """Return the place of the attribute's value."""
        return self._place(found.tokens[0])

    def _place(self, part: Attribute | Token) -> Place:
        return self._source.place(part.at)


def _quoted(text: str) -> str:
    return f'"{text}"'


_COUNTS = ("nodenumber", "minnumcpu", "maxnumcpu")
_SPELLED = {
    each.casefold(): each
    for each in (
        "Type", "JobType", "JobName", "Executable", "Arguments", "StdInput", "StdOutput", "StdError", "InputSandbox",
        "OutputSandbox", "Environment", "Requirements", "Rank", "MinNumCPU", "MaxNumCPU", "NodeNumber", "Priority",
        "RetryCount", "ExpiryTime", "VirtualOrganisation",
    )
}  # fmt: skip
