"""Reads jsdl:Resources (GFD.56, 6.4): the number of processors, the memory, the cluster."""

import re
from decimal import Decimal

from koalapy.languages.drafts import Draft
from koalapy.languages.xmltext import Element, elements, name_of, named, word_of
from koalapy.model.textfile.words import shown

_COUNTS = ("TotalCPUCount", "IndividualCPUCount", "TotalResourceCount")
_MEMORIES = ("TotalPhysicalMemory", "IndividualPhysicalMemory")
_LINUX = "LINUX"
_UPPER_ONLY = "states an upper bound only, and no number of what the job needs"
_NUMBER = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?([eE]\+?[0-9]{1,2})?", re.ASCII)


def read_resources(draft: Draft, element: Element) -> None:
    """Read a JSDL Resources element. Raises an error of the file for one that koalapy cannot serve."""
    numbers: dict[str, int] = {}
    found: dict[str, Element] = {}
    for child in elements(element):
        name = name_of(child)
        if name in (*_COUNTS, *_MEMORIES):
            numbers[name], found[name] = _least(draft, child), child
        elif name == "ExclusiveExecution":
            draft.of_component("exclusive", word_of(child) in ("true", "1"), child)
        elif name == "CandidateHosts":
            _cluster(draft, child)
        elif name == "OperatingSystem":
            _system(draft, child)
        else:
            advice = "Remove it, or name a cluster that has it in CandidateHosts."
            raise draft.refusal(child, "is not a resource that koalapy can ask for", advice)
    _processors(draft, element, numbers)
    _memory(draft, numbers, found)


def _processors(draft: Draft, element: Element, numbers: dict[str, int]) -> None:
    """Set the number of processors: TotalCPUCount, or the number of resources times the processors of each."""
    each, resources = numbers.get("IndividualCPUCount"), numbers.get("TotalResourceCount")
    total = numbers.get("TotalCPUCount", (each or 1) * (resources or 1))
    if each and resources and each * resources != total:
        what = f"contradicts itself: {resources} resources of {each} processors are not {total}"
        raise draft.refusal(element, what, "Leave one of the three out.", "contradiction")
    draft.of_component("processors", total, element)
    per_node = each or (total // resources if resources and total % resources == 0 else None)
    if per_node:
        draft.of_component("processors_per_node", per_node, element)


def _memory(draft: Draft, numbers: dict[str, int], found: dict[str, Element]) -> None:
    processors, per_node = draft.component["processors"], draft.component.get("processors_per_node")
    for name, among in (("TotalPhysicalMemory", processors), ("IndividualPhysicalMemory", per_node)):
        if name not in numbers:
            continue
        if not among:
            advice = "Add IndividualCPUCount, or write TotalPhysicalMemory instead."
            raise draft.refusal(found[name], "is of a node, but the processors of a node are not given", advice)
        draft.of_component("memory_per_processor", f"{-(-numbers[name] // among)}B", found[name])


def _least(draft: Draft, element: Element) -> int:
    """Return the exact number, or the lower bound of a range. Raises RequestError without such a number."""
    for child in elements(element):
        name = name_of(child)
        if name in ("Exact", "LowerBoundedRange"):
            return _number(draft, child)
        if name == "Range":
            for bound in elements(child):
                if name_of(bound) == "LowerBound":
                    return _number(draft, bound)
    advice = "Write an Exact, or a range with a lower bound, of which the bound is taken."
    is_bounded = any(name_of(each) in ("UpperBoundedRange", "UpperBound") for each in element.iter("{*}*"))
    raise draft.refusal(element, _UPPER_ONLY if is_bounded else "has no number", advice)


def _number(draft: Draft, element: Element) -> int:
    """Return the count that an xsd:double states, such as 4, 4.0 or 4.2e9. Raises RequestError for no count."""
    number = Decimal(word_of(element)) if _NUMBER.fullmatch(word_of(element)) else Decimal(0)
    if number != int(number) or not number:
        raise draft.refusal(element, f"is {shown(word_of(element))}, no count", "Write a whole number above 0.")
    return int(number)


def _cluster(draft: Draft, element: Element) -> None:
    hosts = list(elements(element))
    if len(hosts) != 1:
        raise draft.refusal(element, f"names {len(hosts)} hosts", "Name one cluster of the grid file, or none.")
    draft.of_component("cluster", word_of(hosts[0]), hosts[0])


def _system(draft: Draft, element: Element) -> None:
    for name in element.iter("{*}OperatingSystemName"):
        if word_of(name).upper() != _LINUX:
            raise draft.refusal(name, f"is {shown(word_of(name))}", f"Write {_LINUX}, or remove {named(element)}.")
    for version in element.iter("{*}OperatingSystemVersion"):
        raise draft.refusal(version, "is not a resource that koalapy can ask for", "Remove it.")
