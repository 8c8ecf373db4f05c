"""Globus RSL 1.0: conjunctions, and multirequests as one co-allocated job (docs/rsl.md).

An attribute that koalapy cannot honour is refused, with a message that names it, its line and its column.
"""

from collections.abc import Collection, Iterator, Mapping

from koalapy.languages.native import request_of
from koalapy.languages.redirection import redirecting
from koalapy.languages.rsl_attributes import (
    COMPONENT_ATTRIBUTES,
    JOB_ATTRIBUTES,
    ONE_AFTER_ANOTHER,
    Attribute,
    ComponentAttributes,
    Reading,
    read_component_attribute,
)
from koalapy.languages.rsl_tokens import RslText
from koalapy.languages.rsl_tree import Compound, Operator, Relation, Specification
from koalapy.languages.rsl_values import SUBSTITUTION, Evaluation, Scope, canonical
from koalapy.languages.sweepfiles import OpenFile
from koalapy.model.request import Request
from koalapy.model.textfile.document import Document, Path
from koalapy.model.textfile.words import shown


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
    reading = Reading(rsl, Evaluation(rsl))
    if isinstance(tree, Compound) and tree.operator is Operator.MULTIREQUEST:
        _multirequest(reading, tree, {})
    else:
        component = ComponentAttributes(tree.at)
        for attribute in _attributes(reading, tree, {}):
            JOB_ATTRIBUTES.get(attribute.key, read_component_attribute)(reading, component, attribute)
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
        raise rsl.refusal(request.at, what, ONE_AFTER_ANOTHER, "not_honoured")
    if request.operator is Operator.DISJUNCTION:
        what = "| offers alternatives, of which koalapy cannot choose"
        advice = "Write one of them; without resourceManagerContact any cluster may be taken."
        raise rsl.refusal(request.at, what, advice, "not_honoured")
    for part in request.parts:
        _check_operators(rsl, part)


def _multirequest(reading: Reading, request: Compound, outer: Scope) -> None:
    """Add the components of a multirequest, also of those inside it. Raises RequestError."""
    scope = reading.evaluation.scope(request, outer)
    whole = ComponentAttributes(request.at)  # what stands beside the subrequests is of the job
    for attribute in _own_attributes(reading, request, scope):
        if attribute.key in COMPONENT_ATTRIBUTES and attribute.key not in JOB_ATTRIBUTES:
            what = "stands beside the subrequests of +, and belongs into one"
            raise reading.refusal(attribute, what, f"Write +(&({attribute.name}=…)…).")
        JOB_ATTRIBUTES.get(attribute.key, read_component_attribute)(reading, whole, attribute)
    for part in request.parts:
        if isinstance(part, Compound) and part.operator is Operator.MULTIREQUEST:
            _multirequest(reading, part, scope)
        elif isinstance(part, Compound):
            component = ComponentAttributes(part.at)
            for attribute in _attributes(reading, part, scope):
                if attribute.key in JOB_ATTRIBUTES and attribute.key != "label":
                    what = "is of one subrequest, but koalapy knows it of the whole job only"
                    raise reading.refusal(
                        attribute, what, f"Write it beside the subrequests: +({attribute.name}=…)(&…)."
                    )
                read_component_attribute(reading, component, attribute)
            _add_component(reading, component)


def _attributes(reading: Reading, request: Specification, outer: Scope) -> Iterator[Attribute]:
    """Yield the attributes of a conjunction, also of those inside it. Raises RequestError."""
    seen: dict[str, Attribute] = {}
    for attribute in _nested_attributes(reading, request, outer):
        if attribute.key in seen:
            what = f"stands here a second time, after line {reading.rsl.line(seen[attribute.key].at)}"
            raise reading.refusal(attribute, what, "Remove one of the two.", "duplicate_key")
        seen[attribute.key] = attribute
        yield attribute


def _nested_attributes(reading: Reading, request: Specification, outer: Scope) -> Iterator[Attribute]:
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


def _own_attributes(reading: Reading, request: Compound, scope: Scope) -> Iterator[Attribute]:
    """Yield the relations of a request, without its definitions of variables. Raises RequestError."""
    for part in request.parts:
        if isinstance(part, Relation) and canonical(part.attribute) != SUBSTITUTION:
            values = reading.evaluation.values(part.values, scope)
            yield Attribute(shown(part.attribute, quote=""), canonical(part.attribute), values, part.at)


def _add_component(reading: Reading, component: ComponentAttributes) -> None:
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


def _redirections(component: ComponentAttributes, processes: int) -> dict[str, str]:
    """Return the file of each operator of the shell. Several processes append, so that none truncates the file."""
    more = ">" if processes > 1 else ""
    operators = {"stdin": "<", "stdout": f">{more}", "stderr": f"2>{more}"}
    return {operator: component.files[name].text for name, operator in operators.items() if name in component.files}


def _divide_hosts(reading: Reading, component: ComponentAttributes, count: int) -> None:
    if component.hosts is None:
        return
    hosts, at = component.hosts
    if hosts < 1 or count % hosts:
        advice = f"Write a number that divides the count, {count}."
        raise reading.rsl.refusal(
            at, f"hostCount is {hosts}, among which {count} processes are not divided equally", advice
        )
    component.keys["processors_per_node"] = (count // hosts, at)


def _share_memory(reading: Reading, component: ComponentAttributes, processors: int) -> None:
    """Set the memory of each processor from that of one process, which has so many processors."""
    least, most = component.memory_mb.get("minmemory"), component.memory_mb.get("maxmemory")
    if least and most and least[0] > most[0]:
        what = f"minMemory is {least[0]}, more than maxMemory, {most[0]}"
        raise reading.rsl.refusal(least[1], what, "Exchange the two, or leave one out.", "contradiction")
    if found := most or least:
        component.keys["memory_per_processor"] = (f"{-(-found[0] // processors)}M", found[1])
