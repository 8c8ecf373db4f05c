"""Reads parameter sweeps in JSDL (OGF GFD.149): assignments by XPath become names in the program's texts.

The assignments of one Sweep vary together. A Sweep inside another one varies faster. GFD.149 runs Sweeps side by side
one after the other; koalapy refuses them, since they are several sweeps.
"""

import re
from collections.abc import Iterator
from itertools import chain, count
from typing import Any

from lxml import etree

from koalapy.languages.jsdl_job import JsdlJob
from koalapy.languages.parameters import MOST_NAMES, literal
from koalapy.languages.xmltext import Element, elements, name_of, named, namespace_of, place_of, text_of, word_of
from koalapy.model.counts import counted_as
from koalapy.model.textfile.words import shown

SWEEP = "http://schemas.ogf.org/jsdl/2009/03/sweep"
FUNCTIONS = "http://schemas.ogf.org/jsdl/2009/03/sweep/functions"
_FUNCTIONS = ("Values", "LoopInteger", "LoopDouble")
_SUBSTRING = re.compile(r"\s*substring\s*\((.*?),\s*([0-9]{1,6})\s*(?:,\s*([0-9]{1,6})\s*)?\)\s*", re.DOTALL)
_INTEGER = re.compile(r"[-+]?[0-9]{1,40}", re.ASCII)
_DOUBLE = re.compile(r"[-+]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})([eE][-+]?[0-9]{1,3})?", re.ASCII)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}", re.ASCII)
_LONGEST_XPATH = 1_000
_MOST_ELEMENTS, _MOST_VISITS = 10_000, 200_000  # elements of a job with sweeps; visits by all its XPaths
_MAY_VARY = "Executable, Argument, Environment, Input, Output, Error, and the FileName and URI of DataStaging may vary."
_MOST_SEARCHES = 2  # of all descendants or ancestors
_LITERAL = re.compile(r"""'[^']*'|"[^"]*\"""")
_AXIS = re.compile(r"([\w-]+)\s*::")
_CALL = re.compile(r"([\w:.-]+)\s*\(")
_SEARCH = re.compile(r"//|\.\.|\||(?:descendant|descendant-or-self|parent)\s*::")
_AXES = frozenset({"child", "self", "attribute", "descendant", "descendant-or-self", "parent"})
_CHEAP = re.compile(
    "and|or|mod|div|not|true|false|boolean|number|string|position|last|count|name|local-name|contains|starts-with|"
    "normalize-space|string-length|text|node"
)
# Inside a predicate: a path from elsewhere than the element, or any axis. A star may be a product before a root.
_ELSEWHERE = re.compile(r"//|\.\.|::|\||(?:^|[^\w)\].*])/|[^\[(,/@]\*/|\b(?:and|or|mod|div)/")


_Parts = list[tuple[int, int, str]]
"""The parts of a text that values of parameters replace: start, end and the parameter's name."""


def read_sweeps(job: JsdlJob, root: Element, sweeps: list[Element]) -> None:
    """Add the parameters of the sweeps to the job, and turn its texts into templates.

    `root`: the job without its sweeps. Raises RequestError.
    """
    _check_effort(job, root, sweeps)
    groups: list[list[str]] = []
    parameters: dict[str, Any] = {}
    parts: dict[Element, _Parts] = {element: [] for element in job.texts}
    for assignments in _levels(job, sweeps):
        groups.append([])
        for assignment in assignments:
            name, values = _assign(job, root, assignment, parts, parameters)
            parameters[name] = values
            groups[-1].append(name)
            job.places["parameters", name] = place_of(assignment)
    if parameters:
        job.set("parameters", parameters, place_of(sweeps[0]))
        job.set("combine", groups, place_of(sweeps[0]))
        for element, text in job.texts.items():
            text.text = _template(text.text, parts[element])


def _template(text: str, parts: _Parts) -> str:
    found, at = "", 0
    for start, end, name in sorted(parts):
        found += f"{literal(text[at:start])}{{{name}}}"
        at = end
    return found + literal(text[at:])


def _check_effort(job: JsdlJob, root: Element, sweeps: list[Element]) -> None:
    """Bound the effort of evaluating all XPaths, each of which visits every element. Raises RequestError."""
    nodes = [node for sweep in sweeps for node in sweep.iter(f"{{{SWEEP}}}DocumentNode")]
    if len(nodes) > MOST_NAMES:
        what = f"is number {MOST_NAMES + 1} of {len(nodes)}"
        raise job.refusal(nodes[MOST_NAMES], what, "Name a file of columns in a YAML job.", "too_many")
    if sweeps and (size := sum(1 for _ in root.iter())) > _MOST_ELEMENTS:
        advice = "Put its arguments into a file."
        raise job.refusal(root, f"has {size:,} elements, more than a sweep may", advice, "too_large")
    if sweeps and size * len(nodes) > _MOST_VISITS:
        what = f"is one of {len(nodes):,}, in a job of {size:,} elements"
        raise job.refusal(nodes[-1], what, "Name a file of columns in a YAML job.", "too_large")


def _levels(job: JsdlJob, sweeps: list[Element]) -> Iterator[list[Element]]:
    """Yield the assignments of each Sweep, from the outermost one inwards. Raises RequestError."""
    while sweeps:
        if len(sweeps) > 1:
            advice = "Put it into the other one, to vary them all with all, or submit it as a job of its own."
            raise job.refusal(sweeps[1], "stands beside another one", advice, "several_sweeps")
        assignments = [child for child in elements(sweeps[0]) if name_of(child) == "Assignment"]
        inner = [child for child in elements(sweeps[0]) if name_of(child) == "Sweep"]
        for child in elements(sweeps[0]):
            if namespace_of(child) != SWEEP or name_of(child) not in ("Assignment", "Sweep"):
                raise job.refusal(child, "is not part of a Sweep", "Write Assignments, and a Sweep in it.")
        if not assignments:
            raise job.refusal(sweeps[0], "assigns nothing", "Write an Assignment into it.")
        yield assignments
        sweeps = inner


def _assign(
    job: JsdlJob, root: Element, assignment: Element, parts: dict[Element, _Parts], known: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the parameter's name and its values, and add all parts of texts that they replace. Raises RequestError."""
    for child in elements(assignment):
        if namespace_of(child) == SWEEP and name_of(child) in _FUNCTIONS:
            what = "is in the namespace of sweeps, and the functions have one of their own"
            raise job.refusal(child, what, f"Write it in the namespace {FUNCTIONS}.", "function_namespace")
    nodes = [child for child in elements(assignment) if namespace_of(child) == SWEEP]
    functions = [child for child in elements(assignment) if namespace_of(child) != SWEEP]
    if not nodes or len(functions) != 1:
        what = f"has {counted_as(len(nodes), 'parameter')} and {counted_as(len(functions), 'function')}"
        raise job.refusal(assignment, what, "Write DocumentNodes, and one of Values, LoopInteger and LoopDouble.")
    targets = [(node, *target) for node in nodes for target in _targets(job, root, node)]
    name = _name(job, targets[0][1], known)
    for node, element, start, end in targets:
        if any(begin < end and start < stop for begin, stop, _ in parts[element]):
            what = f"selects {named(element)} in line {place_of(element).line}, which varies already"
            raise job.refusal(node, what, "Assign each text, or each part of it, once.", "assigned_twice")
        parts[element].append((start, end, name))
    return name, _values(job, functions[0])


def _targets(job: JsdlJob, root: Element, node: Element) -> Iterator[tuple[Element, int, int]]:
    """Yield the parts of texts that a DocumentNode selects: element, start and end. Raises RequestError."""
    if name_of(node) != "DocumentNode":
        advice = "Write a DocumentNode; files whose content varies are several files, named by a parameter."
        raise job.refusal(node, "is not a supported parameter", advice)
    match = next((child for child in elements(node) if name_of(child) == "Match"), None)
    if match is None:
        raise job.refusal(node, "has no Match", "Write the XPath of what varies.")
    bindings = {
        child.get("prefix"): child.get("ns") for child in elements(node) if name_of(child) == "NamespaceBinding"
    }
    namespaces = {prefix: uri for prefix, uri in bindings.items() if prefix and uri}
    path, first, length = _parts(word_of(match))
    for element in _selected(job, root, match, path, namespaces):
        text = job.texts[element].text
        start = first - 1 if first else 0
        end = start + length if length is not None else len(text)
        if first == 0 or end > len(text) or end == start != 0:
            what = f"is {shown(word_of(match))}, beyond the {len(text)} characters of {shown(text)}"
            raise job.refusal(match, what, "Characters are counted from 1.")
        yield element, start, end


def _parts(expression: str) -> tuple[str, int | None, int | None]:
    """Return the XPath of a node, and of a substring the first character (from 1) and the length, else None."""
    found = _SUBSTRING.fullmatch(expression)
    if not found:
        return expression, None, None
    return found[1], int(found[2]), None if found[3] is None else int(found[3])


def _selected(job: JsdlJob, root: Element, match: Element, path: str, namespaces: dict[str, str]) -> Iterator[Element]:
    if len(path) > _LONGEST_XPATH:
        raise job.refusal(match, f"has more than {_LONGEST_XPATH} characters", "Write a shorter XPath.")
    if is_costly(path):
        what = f"is {shown(path)}, which searches all of the job again for each of its elements"
        raise job.refusal(
            match, what, "Write //, ::, .. and / from the root outside of [ ], and seldom.", "costly_xpath"
        )
    try:
        found = etree.XPath(path, namespaces=namespaces, regexp=False)(root.getroottree())
    except etree.XPathError as error:
        advice = "Write XPath 1.0, and a NamespaceBinding for each prefix."
        raise job.refusal(match, f"is {shown(path)}, no XPath: {error}", advice, "bad_xpath") from None
    if not isinstance(found, list):
        what = f"is {shown(path)}, which selects no node but is {shown(str(found))}"
        raise job.refusal(match, what, "Select elements, or a substring(…) of one.", "bad_xpath")
    if not found:
        raise job.refusal(match, f"is {shown(path)}, which selects nothing", "Correct the XPath.", "selects_nothing")
    for each in found:
        element = _element(each)
        if element is None or element not in job.texts:
            what = f"selects {named(element) if element is not None else 'an attribute'}, which cannot vary"
            raise job.refusal(match, what, _MAY_VARY, "cannot_vary")
        yield element


def _element(found: Any) -> Element | None:
    """Return the element that an XPath selects directly or by its text; None for other nodes."""
    if getattr(found, "is_text", False):
        found = found.getparent()
    return found if isinstance(found, etree._Element) else None


def _name(job: JsdlJob, element: Element, known: dict[str, Any]) -> str:
    """Return a new parameter name, taken from the text that varies: argument2, input, or a variable's name."""
    name, text = name_of(element).lower(), job.texts[element]
    if text in job.component.arguments:
        name += str(job.component.arguments.index(text) + 1)
    elif _WORD.fullmatch(element.get("name") or ""):
        name = element.get("name", "")
    others = (f"{name}_{number}" for number in count(2))
    return next(each for each in chain([name], others) if each not in known)


def _values(job: JsdlJob, function: Element) -> dict[str, Any]:
    name = name_of(function)
    if namespace_of(function) == FUNCTIONS and name == "Values":
        return {"values": [text_of(value) for value in elements(function)]}
    if namespace_of(function) == FUNCTIONS and name in ("LoopInteger", "LoopDouble"):
        return _loop(job, function, whole=name == "LoopInteger")
    advice = "Use Values, LoopInteger or LoopDouble."
    raise job.refusal(function, "is a function that koalapy does not know", advice, "unknown_function")


def _loop(job: JsdlJob, function: Element, whole: bool) -> dict[str, Any]:
    first, last = (_number(job, function, _attribute(function, name), whole) for name in ("start", "end"))
    step = _number(job, function, _attribute(function, "step") or "1", whole)
    left_out = [
        _number(job, each, _attribute(each, "value") or word_of(each), whole)
        for each in elements(function)
        if name_of(each) == "Exception"
    ]
    loop: dict[str, Any] = {"range": f"{first}:{last}:{step}"}
    return loop | {"except": left_out} if left_out else loop


def _attribute(element: Element, name: str) -> str:
    """Return the value of an attribute with or without the functions' prefix, '' without the attribute."""
    return (element.get(name) or element.get(f"{{{FUNCTIONS}}}{name}") or "").strip()


def _number(job: JsdlJob, element: Element, text: str, whole: bool) -> str:
    """Return an xsd:integer or xsd:double without leading zeros. Raises RequestError for any other text."""
    if not (_INTEGER if whole else _DOUBLE).fullmatch(text):
        kind = "whole number" if whole else "number"
        what = f"has {shown(text)}, which is no {kind}" if text else f"lacks a {kind}"
        raise job.refusal(element, what, "Write start, end and step as numbers.", "wrong_value")
    return re.sub(r"^([-+]?)0+(?=[0-9])", r"\1", text)


# ---- the cost of an XPath


def is_costly(path: str) -> bool:
    """Return whether the effort of an untrusted XPath may grow faster than a small power of the document's length.

    libxml2 cannot be stopped during an evaluation.
    """
    inside, outside = _by_predicate(_LITERAL.sub("''", path))
    if _ELSEWHERE.search(inside) or not all(map(_CHEAP.fullmatch, _CALL.findall(inside))):
        return True
    searches = len(_SEARCH.findall(outside))
    return searches > _MOST_SEARCHES or not _AXES.issuperset(_AXIS.findall(outside)) or "id" in _CALL.findall(outside)


def _by_predicate(path: str) -> tuple[str, str]:
    """Return the text inside predicates, with their brackets, and the text outside."""
    inside: list[str] = []
    outside: list[str] = []
    depth = 0
    for each in path:
        depth += each == "["
        (inside if depth > 0 else outside).append(each)
        depth -= each == "]"
    return "".join(inside), "".join(outside)
