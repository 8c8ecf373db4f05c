"""JSDL 1.0 (OGF GFD.56) with the POSIX or HPC Profile application, and with parameter sweeps (GFD.149).

An element that koalapy cannot honour is refused, with a message that names it and its line.
"""

import posixpath
from collections.abc import Callable, Mapping

from koalapy.languages.drafts import Blank, Draft, Staging
from koalapy.languages.jsdl_resources import read_resources
from koalapy.languages.jsdl_sweep import SWEEP, read_sweeps
from koalapy.languages.paths import landing, path_of_uri, staged_out_to
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
_ADVICE = {"WorkingDirectory": _OWN_DIRECTORY, "UserName": _OWN_ACCOUNT, "GroupName": _OWN_ACCOUNT}

Handler = Callable[[Draft, Element], None]


def document_of(text: str | bytes, source: str) -> Document:
    """Return the job in the form of koalapy's job file. Raises RequestError."""
    root = read_xml(text, source)
    if (namespace_of(root), name_of(root)) != (JSDL, "JobDefinition"):
        message = f"{place_of(root).of(source)}: the file is XML, but {named(root)} begins no JSDL."
        raise RequestError("no_jsdl", message, f'Begin with <JobDefinition xmlns="{JSDL}">.')
    draft = Draft(source, places={(): place_of(root)})
    sweeps = [child for child in elements(root) if namespace_of(child) == SWEEP]
    for sweep in sweeps:
        root.remove(sweep)  # an XPath is evaluated on the job without its sweeps
    _each(draft, root, JSDL, {"JobDescription": _description})
    read_sweeps(draft, root, sweeps)
    settle_staging(draft)
    draft.component.setdefault("processors", 1)
    if sweeps:
        draft.component["threads_per_process"] = draft.component["processors"]
    else:
        draft.component["launch"] = "once"  # a POSIX application is one process, on any number of processors
    return draft.document()


def _each(draft: Draft, parent: Element, namespace: str, handlers: Mapping[str, Handler]) -> None:
    for child in elements(parent):
        handler = handlers.get(name_of(child)) if namespace_of(child) == namespace else None
        if handler is None:
            raise draft.refusal(child, "is not supported", _ADVICE.get(name_of(child), "Remove it."))
        handler(draft, child)


def _description(draft: Draft, element: Element) -> None:
    if draft.executable is not None:
        raise draft.refusal(element, "stands here a second time", "Submit each as a job of its own.")
    handlers: dict[str, Handler] = {
        "JobIdentification": _identification,
        "Application": _application,
        "Resources": read_resources,
        "DataStaging": read_staging,
    }
    _each(draft, element, JSDL, handlers)
    if draft.executable is None:
        raise draft.refusal(element, "has no program", "Write an Application with POSIXApplication and Executable.")


def _identification(draft: Draft, element: Element) -> None:
    handlers: dict[str, Handler] = {
        "JobName": lambda draft, child: draft.of_job("name", word_of(child), child),
        "JobProject": lambda draft, child: draft.of_component("account", word_of(child), child),
        "Description": _nothing,
        "JobAnnotation": _nothing,
    }
    _each(draft, element, JSDL, handlers)


def _application(draft: Draft, element: Element) -> None:
    for child in elements(element):
        namespace = namespace_of(child)
        if _APPLICATIONS.get(namespace) == name_of(child):
            _each(draft, child, namespace, _PROGRAM)
        elif namespace != JSDL or name_of(child) not in ("ApplicationName", "ApplicationVersion", "Description"):
            advice = "Describe the program by a POSIXApplication."
            raise draft.refusal(child, "is an application that koalapy cannot run", advice)


def _nothing(draft: Draft, element: Element) -> None:
    """Ignore an element that describes the job to people."""


def _executable(draft: Draft, element: Element) -> None:
    if draft.executable is not None:
        raise draft.refusal(element, "stands here a second time", "Submit each as a job of its own.")
    draft.executable = _blank(draft, element, word_of(element))


def _argument(draft: Draft, element: Element) -> None:
    draft.arguments.append(_blank(draft, element, text_of(element)))


def _variable(draft: Draft, element: Element) -> None:
    name = element.get("name") or ""
    if not name or name in draft.environment:
        what = f"names {shown(name)} a second time" if name else "has no name"
        raise draft.refusal(element, what, 'Write <Environment name="…"> once for each variable.')
    draft.environment[name] = _blank(draft, element, text_of(element))


def _redirection(operator: str) -> Handler:
    def handle(draft: Draft, element: Element) -> None:
        draft.redirections[operator] = _blank(draft, element, word_of(element))

    return handle


def _walltime(draft: Draft, element: Element) -> None:
    if not word_of(element).isdecimal():
        raise draft.refusal(element, f"is {shown(word_of(element))}, no number of seconds", "Write whole seconds.")
    draft.of_component("walltime", f"{word_of(element)}s", element)


def _blank(draft: Draft, element: Element, text: str) -> Blank:
    if element.get("filesystemName"):
        raise draft.refusal(element, "names a file system, which koalapy does not honour", "Write a path instead.")
    return Blank(text, element)


_PROGRAM: dict[str, Handler] = {
    "Executable": _executable,
    "Argument": _argument,
    "Environment": _variable,
    "Input": _redirection("<"),
    "Output": _redirection(">"),
    "Error": _redirection("2>"),
    "WallTimeLimit": _walltime,
}


_SUPPORTED = ("FileName", "CreationFlag", "DeleteOnTermination", "Source", "Target")


def read_staging(draft: Draft, element: Element) -> None:
    """Read a JSDL DataStaging element. Raises an error of the file for one that koalapy cannot serve."""
    parts = {name_of(child): child for child in elements(element)}
    for name, child in parts.items():
        if name not in _SUPPORTED:
            raise draft.refusal(child, "is not supported", "Remove it.")
    if "FileName" not in parts or not parts.keys() & {"Source", "Target"}:
        raise draft.refusal(element, "stages nothing", "Write a FileName, and a Source or Target with its URI.")
    place = Blank(posixpath.normpath(word_of(parts["FileName"])), parts["FileName"])
    for name, key in (("Source", "stage_in"), ("Target", "stage_out")):
        if name in parts:
            draft.staging.append(Staging(key, place, _path(draft, parts[name])))


def settle_staging(draft: Draft) -> None:
    """Set the keys of the job file for staging, once the sweeps are known. Raises RequestError."""
    for key, place, path in draft.staging:
        if key == "stage_in":
            _stage_in(draft, path.element, draft.written(path), draft.written(place))
        else:
            _stage_out(draft, path.element, draft.written(path), draft.written(place))


def _stage_in(draft: Draft, element: Element, path: str, place: str) -> None:
    if landing(path) != place:
        what = f"is {shown(path)}, which lies at {shown(landing(path))} on the cluster, not at {shown(place)}"
        raise draft.refusal(element, what, "Write that as the FileName; files are not renamed on their way.")
    _add(draft, "stage_in", path, element)


def _stage_out(draft: Draft, element: Element, path: str, place: str) -> None:
    if (entry := staged_out_to(place, path)) is not None:
        _add(draft, "stage_out", entry, element)
    else:
        what = f"is {shown(path)}, another name than {shown(place)}"
        raise draft.refusal(element, what, "Let it end with the FileName; files are not renamed on their way.")


def _add(draft: Draft, key: str, value: object, element: Element) -> None:
    listed = draft.job.setdefault(key, [])
    draft.places.setdefault((key,), place_of(element))
    draft.places[key, len(listed)] = place_of(element)
    listed.append(value)


def _path(draft: Draft, element: Element) -> Blank:
    """Return the path of a URI with scheme file, or a relative path as it is. Raises RequestError for others."""
    uri = next((child for child in elements(element) if name_of(child) == "URI"), None)
    if uri is None:
        raise draft.refusal(element, "has no URI", "Write one, such as file:///home/me/data.txt or data.txt.")
    path = path_of_uri(word_of(uri))
    if path is None:
        what = f"is {shown(word_of(uri))}, no file of this machine"
        raise draft.refusal(uri, what, "Fetch it here first, and write file:///its/path.")
    return Blank(path, uri)
