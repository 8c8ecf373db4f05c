"""JSDL 1.0 (OGF GFD.56) with the POSIX or HPC Profile application, and with parameter sweeps (GFD.149).

An element that koalapy cannot honour is refused, with a message that names it and its line.
"""

import re
from collections.abc import Mapping
from decimal import Decimal

from koalapy.languages.jsdl_job import Handler, JsdlJob, add_staging, read_staging
from koalapy.languages.jsdl_sweep import SWEEP, read_sweeps
from koalapy.languages.xmltext import (
    Element,
    elements,
    name_of,
    named,
    namespace_of,
    place_of,
    read_xml,
    text_of,
    word_of,
)
from koalapy.model.errors import RequestError
from koalapy.model.textfile.document import Document
from koalapy.model.textfile.words import shown

JSDL = "http://schemas.ggf.org/jsdl/2005/11/jsdl"
POSIX = "http://schemas.ggf.org/jsdl/2005/11/jsdl-posix"
HPC_PROFILE = "http://schemas.ggf.org/jsdl/2006/07/jsdl-hpcpa"
_APPLICATIONS = {POSIX: "POSIXApplication", HPC_PROFILE: "HPCProfileApplication"}
_OWN_DIRECTORY = "A program runs in a directory of its own, which holds the staged files: write paths relative to it."
_OWN_ACCOUNT = "Remove it; jobs run as you, on each cluster by the account of your grid file."
_COUNTS = ("TotalCPUCount", "IndividualCPUCount", "TotalResourceCount")
_MEMORIES = ("TotalPhysicalMemory", "IndividualPhysicalMemory")
_LINUX = "LINUX"
_UPPER_ONLY = "states an upper bound only, and no number of what the job needs"
_COUNT = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?([eE]\+?[0-9]{1,2})?", re.ASCII)
_ADVICE = {"WorkingDirectory": _OWN_DIRECTORY, "UserName": _OWN_ACCOUNT, "GroupName": _OWN_ACCOUNT}


def document_of(text: str | bytes, source: str) -> Document:
    """Return the job in the form of koalapy's job file. Raises RequestError."""
    root = read_xml(text, source)
    if (namespace_of(root), name_of(root)) != (JSDL, "JobDefinition"):
        message = f"{place_of(root).of(source)}: the file is XML, but {named(root)} begins no JSDL."
        raise RequestError("no_jsdl", message, f'Begin with <JobDefinition xmlns="{JSDL}">.')
    job = JsdlJob(source, places={(): place_of(root)})
    sweeps = [child for child in elements(root) if namespace_of(child) == SWEEP]
    for sweep in sweeps:
        root.remove(sweep)  # an XPath is evaluated on the job without its sweeps
    _each(job, root, JSDL, {"JobDescription": _description})
    read_sweeps(job, root, sweeps)
    add_staging(job)
    values = job.component.values
    values.setdefault("processors", 1)
    if sweeps:
        values["threads_per_process"] = values["processors"]
    else:
        values["launch"] = "once"  # a POSIX application is one process, on any number of processors
    job.add(job.component)
    return job.document()


def _each(job: JsdlJob, parent: Element, namespace: str, handlers: Mapping[str, Handler]) -> None:
    for child in elements(parent):
        handler = handlers.get(name_of(child)) if namespace_of(child) == namespace else None
        if handler is None:
            raise job.refusal(child, "is not supported", _ADVICE.get(name_of(child), "Remove it."))
        handler(job, child)


def _description(job: JsdlJob, element: Element) -> None:
    if job.component.executable is not None:
        raise job.refusal(element, "stands here a second time", "Submit each as a job of its own.")
    handlers: dict[str, Handler] = {
        "JobIdentification": _identification,
        "Application": _application,
        "Resources": _resources,
        "DataStaging": read_staging,
    }
    _each(job, element, JSDL, handlers)
    if job.component.executable is None:
        raise job.refusal(element, "has no program", "Write an Application with POSIXApplication and Executable.")


def _identification(job: JsdlJob, element: Element) -> None:
    handlers: dict[str, Handler] = {
        "JobName": lambda job, child: job.set("name", word_of(child), place_of(child)),
        "JobProject": lambda job, child: job.component.set("account", word_of(child), place_of(child)),
        "Description": _nothing,
        "JobAnnotation": _nothing,
    }
    _each(job, element, JSDL, handlers)


def _application(job: JsdlJob, element: Element) -> None:
    for child in elements(element):
        namespace = namespace_of(child)
        if _APPLICATIONS.get(namespace) == name_of(child):
            _each(job, child, namespace, _PROGRAM)
        elif namespace != JSDL or name_of(child) not in ("ApplicationName", "ApplicationVersion", "Description"):
            advice = "Describe the program by a POSIXApplication."
            raise job.refusal(child, "is an application that koalapy cannot run", advice)


def _nothing(job: JsdlJob, element: Element) -> None:
    """Ignore an element that describes the job to people."""


def _executable(job: JsdlJob, element: Element) -> None:
    if job.component.executable is not None:
        raise job.refusal(element, "stands here a second time", "Submit each as a job of its own.")
    job.component.executable = job.text(element, word_of(element))


def _argument(job: JsdlJob, element: Element) -> None:
    job.component.arguments.append(job.text(element, text_of(element)))


def _variable(job: JsdlJob, element: Element) -> None:
    name = element.get("name") or ""
    if not name or name in job.component.environment:
        what = f"names {shown(name)} a second time" if name else "has no name"
        raise job.refusal(element, what, 'Write <Environment name="…"> once for each variable.')
    job.component.environment[name] = job.text(element, text_of(element))


def _redirection(operator: str) -> Handler:
    def handle(job: JsdlJob, element: Element) -> None:
        job.component.files[operator] = job.text(element, word_of(element))

    return handle


def _walltime(job: JsdlJob, element: Element) -> None:
    if not word_of(element).isdecimal():
        raise job.refusal(element, f"is {shown(word_of(element))}, no number of seconds", "Write whole seconds.")
    job.component.set("walltime", f"{word_of(element)}s", place_of(element))


_PROGRAM: dict[str, Handler] = {
    "Executable": _executable,
    "Argument": _argument,
    "Environment": _variable,
    "Input": _redirection("<"),
    "Output": _redirection(">"),
    "Error": _redirection("2>"),
    "WallTimeLimit": _walltime,
}


# ---- jsdl:Resources (GFD.56, 6.4)


def _resources(job: JsdlJob, element: Element) -> None:
    """Read the processors, the memory and the cluster. Raises RequestError for what koalapy cannot ask for."""
    numbers: dict[str, int] = {}
    found: dict[str, Element] = {}
    for child in elements(element):
        name = name_of(child)
        if name in (*_COUNTS, *_MEMORIES):
            numbers[name], found[name] = _least(job, child), child
        elif name == "ExclusiveExecution":
            job.component.set("exclusive", word_of(child) in ("true", "1"), place_of(child))
        elif name == "CandidateHosts":
            _cluster(job, child)
        elif name == "OperatingSystem":
            _system(job, child)
        else:
            advice = "Remove it, or name a cluster that has it in CandidateHosts."
            raise job.refusal(child, "is not a resource that koalapy can ask for", advice)
    _processors(job, element, numbers)
    _memory(job, numbers, found)


def _processors(job: JsdlJob, element: Element, numbers: dict[str, int]) -> None:
    """Set the number of processors: TotalCPUCount, or the number of resources times the processors of each."""
    each, resources = numbers.get("IndividualCPUCount"), numbers.get("TotalResourceCount")
    total = numbers.get("TotalCPUCount", (each or 1) * (resources or 1))
    if each and resources and each * resources != total:
        what = f"contradicts itself: {resources} resources of {each} processors are not {total}"
        raise job.refusal(element, what, "Leave one of the three out.", "contradiction")
    job.component.set("processors", total, place_of(element))
    per_node = each or (total // resources if resources and total % resources == 0 else None)
    if per_node:
        job.component.set("processors_per_node", per_node, place_of(element))


def _memory(job: JsdlJob, numbers: dict[str, int], found: dict[str, Element]) -> None:
    processors, per_node = (job.component.values.get(key) for key in ("processors", "processors_per_node"))
    for name, among in (("TotalPhysicalMemory", processors), ("IndividualPhysicalMemory", per_node)):
        if name not in numbers:
            continue
        if not among:
            advice = "Add IndividualCPUCount, or write TotalPhysicalMemory instead."
            raise job.refusal(found[name], "is of a node, but the processors of a node are not given", advice)
        job.component.set("memory_per_processor", f"{-(-numbers[name] // among)}B", place_of(found[name]))


def _least(job: JsdlJob, element: Element) -> int:
    """Return the exact number, or the lower bound of a range. Raises RequestError without such a number."""
    for child in elements(element):
        name = name_of(child)
        if name in ("Exact", "LowerBoundedRange"):
            return _number(job, child)
        if name == "Range":
            for bound in elements(child):
                if name_of(bound) == "LowerBound":
                    return _number(job, bound)
    advice = "Write an Exact, or a range with a lower bound, of which the bound is taken."
    is_bounded = any(name_of(each) in ("UpperBoundedRange", "UpperBound") for each in element.iter("{*}*"))
    raise job.refusal(element, _UPPER_ONLY if is_bounded else "has no number", advice)


def _number(job: JsdlJob, element: Element) -> int:
    """Return the count that an xsd:double states, such as 4, 4.0 or 4.2e9. Raises RequestError for no count."""
    number = Decimal(word_of(element)) if _COUNT.fullmatch(word_of(element)) else Decimal(0)
    if number != int(number) or not number:
        raise job.refusal(element, f"is {shown(word_of(element))}, no count", "Write a whole number above 0.")
    return int(number)


def _cluster(job: JsdlJob, element: Element) -> None:
    hosts = list(elements(element))
    if len(hosts) != 1:
        raise job.refusal(element, f"names {len(hosts)} hosts", "Name one cluster of the grid file, or none.")
    job.component.set("cluster", word_of(hosts[0]), place_of(hosts[0]))


def _system(job: JsdlJob, element: Element) -> None:
    for name in element.iter("{*}OperatingSystemName"):
        if word_of(name).upper() != _LINUX:
            raise job.refusal(name, f"is {shown(word_of(name))}", f"Write {_LINUX}, or remove {named(element)}.")
    for version in element.iter("{*}OperatingSystemVersion"):
        raise job.refusal(version, "is not a resource that koalapy can ask for", "Remove it.")
