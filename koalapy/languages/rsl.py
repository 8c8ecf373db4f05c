"""Globus RSL 1.0: conjunctions, multirequests as one co-allocated job, multistage requests as flows (docs/rsl.md).

The order of the jobs in a multistage request is that of "Flow-based Multistage Co-allocation Service", section 6. An
attribute that koalapy cannot honour is refused, with a message that names it, its line and its column.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Union

from koalapy.languages.parsed import ParsedJob, SourceText
from koalapy.languages.rsl_attributes import (
    COMPONENT_ATTRIBUTES,
    CONTACT,
    FLOW_ATTRIBUTES,
    JOB_ATTRIBUTES,
    Attribute,
    Reading,
    RslComponent,
    read_component_attribute,
    read_contact,
    site_named_by,
)
from koalapy.languages.rsl_tree import Compound, Operator, Relation, Specification
from koalapy.languages.rsl_values import SUBSTITUTION, Evaluation, Scope, canonical
from koalapy.model.counts import counted_as
from koalapy.model.textfile.document import Document
from koalapy.model.textfile.words import shown


@dataclass(frozen=True, slots=True)
class Stage:
    """A multistage request. `parts`: its stages, and the places of its jobs in the whole request, from 0."""

    parts: tuple[Union["Stage", int], ...]


def document_of(text: str | bytes, source: str) -> Document:
    """Return the job in the form of koalapy's job file. Raises RequestError."""
    from koalapy.languages.rsl_grammar import parse  # late: lark takes longer to import than all else here

    rsl = SourceText(text, source)
    return document_of_tree(rsl, parse(rsl))


def document_of_tree(rsl: SourceText, tree: Specification) -> Document:
    """Return the request of a syntax tree in the form of koalapy's job file. Raises RequestError."""
    _check_operators(rsl, tree)
    evaluation = Evaluation(rsl)
    if isinstance(tree, Compound) and tree.operator is Operator.MULTISTAGE:
        return _flow(rsl, evaluation, tree, {})
    reading = _job(rsl, evaluation, tree, {})
    if reading.waits is not None:
        what = "wait names jobs of a multistage request, and this is one job"
        raise rsl.refusal(reading.waits.at, what, "Write *(…)(…), or koala submit --after ID.", "not_honoured")
    return reading.job.document()


def _check_operators(rsl: SourceText, request: Specification, outer: Operator = Operator.MULTISTAGE) -> None:
    """Raises RequestError for an operator or a relation that no job can have. `outer`: the operator around it."""
    if isinstance(request, Relation):
        if request.operator != "=":
            name = shown(request.attribute, quote="")
            what = f"{name} is compared by {request.operator}, but takes one exact value"
            raise rsl.refusal(request.at, what, f"Write {name}=….", "not_honoured")
        return
    if request.operator is Operator.MULTISTAGE and outer is not Operator.MULTISTAGE:
        what = f"* is a multistage request, which cannot stand inside of {outer}"
        raise rsl.refusal(request.at, what, "Let the request begin with *, and write its jobs inside.", "not_honoured")
    if request.operator is Operator.DISJUNCTION:
        what = "| offers alternatives, of which koalapy cannot choose"
        advice = "Write one of them; without resourceManagerContact any cluster may be taken."
        raise rsl.refusal(request.at, what, advice, "not_honoured")
    for part in request.parts:
        _check_operators(rsl, part, request.operator)


def _job(rsl: SourceText, evaluation: Evaluation, tree: Specification, outer: Scope) -> Reading:
    """Read the request of one job. Raises RequestError."""
    reading = Reading(rsl, evaluation, ParsedJob(rsl.source, {"components": []}))
    if isinstance(tree, Compound) and tree.operator is Operator.MULTIREQUEST:
        _multirequest(reading, tree, outer)
    else:
        component = RslComponent(at=tree.at)
        for attribute in _attributes(reading, tree, outer):
            JOB_ATTRIBUTES.get(attribute.key, read_component_attribute)(reading, component, attribute)
        _add_component(reading, component)
    if not reading.communicates:
        reading.job.values.setdefault("communication", "none")
    return reading


def _flow(rsl: SourceText, evaluation: Evaluation, tree: Compound, outer: Scope, sent: bool = False) -> Document:
    """Return a multistage request in the form of a job file with `jobs`. Raises RequestError."""
    flow, jobs = Reading(rsl, evaluation, ParsedJob(rsl.source)), list[Reading]()
    whole = _stage(flow, jobs, tree, outer, sent=sent)
    names = [reading.job.values.setdefault("name", str(number)) for number, reading in enumerate(jobs, 1)]
    order = _explicit_order(rsl, jobs) if any(each.waits is not None for each in jobs) else implicit_order(whole)
    flow.job.values["jobs"] = [each.job.values for each in jobs]
    for index, reading in enumerate(jobs):
        if after := order[index]:
            reading.job.values["after"] = [names[each] for each in after]
        if reading.waits is not None:
            reading.job.places["after",] = rsl.place(reading.waits.at)
        flow.job.places.update({("jobs", index, *path): each for path, each in reading.job.places.items()})
    return flow.job.document()


def _stage(
    flow: Reading, jobs: list[Reading], tree: Compound, outer: Scope, inside: bool = False, sent: bool = False
) -> Stage:
    """Read the jobs of a multistage request, and of those inside it, in their order. Raises RequestError.

    `sent`: it is the outermost one of those that a site runs.
    """
    scope = flow.evaluation.scope(tree, outer)
    for attribute in _own_attributes(flow, tree, scope):
        if attribute.key == "label" and inside:
            continue  # it is for people, like that of a subrequest
        if sent and attribute.key in _OF_SENT:
            continue  # it is of the job that the whole is in the flow around it
        if attribute.key not in FLOW_ATTRIBUTES or inside:
            what = "stands beside the jobs of *, and belongs into one"
            advice = f"Write *(&({attribute.name}=…)…)."
            if site_named_by(attribute) is not None:
                what, advice = "names a site beside the outermost *", f"Write *(*({attribute.name}=…)(&…)…)."
            raise flow.refusal(attribute, what, advice)
        FLOW_ATTRIBUTES[attribute.key](flow, RslComponent(at=tree.at), attribute)
    parts: list[Stage | int] = []
    for part in tree.parts:
        if isinstance(part, Relation):
            continue
        if part.operator is Operator.MULTISTAGE and (found := _subtree(flow, part, scope)) is not None:
            parts.append(Stage((len(jobs),)))
            jobs.append(found)
        elif part.operator is Operator.MULTISTAGE:
            parts.append(_stage(flow, jobs, part, scope, inside=True))
        else:
            parts.append(len(jobs))
            jobs.append(_job(flow.rsl, flow.evaluation, part, scope))
            flow.job.places["jobs", len(jobs) - 1] = flow.rsl.place(part.at)
    return Stage(tuple(parts))


def _subtree(flow: Reading, tree: Compound, outer: Scope) -> Reading | None:
    """Read a multistage request that a site runs, as one job of the flow; None if it names no site."""
    own = list(_own_attributes(flow, tree, flow.evaluation.scope(tree, outer)))
    if not any(site_named_by(each) for each in own):
        return None
    inner = _flow(flow.rsl, flow.evaluation, tree, outer, sent=True)
    job = ParsedJob(inner.source, inner.data, {**inner.places, (): flow.rsl.place(tree.at)})
    found = Reading(flow.rsl, flow.evaluation, job)
    for attribute in own:
        if attribute.key == CONTACT:
            read_contact(found, RslComponent(at=tree.at), attribute)
        elif attribute.key in _OF_SENT:
            JOB_ATTRIBUTES[attribute.key](found, RslComponent(at=tree.at), attribute)
    return found


_OF_SENT = frozenset({CONTACT, "wait"})


def _explicit_order(rsl: SourceText, jobs: Sequence[Reading]) -> dict[int, tuple[int, ...]]:
    """Return the jobs for which each job waits by its `wait`, which counts the request's jobs from 1 (section 6.2).

    Raises RequestError for a number that no job has.
    """
    order: dict[int, tuple[int, ...]] = {}
    for place, reading in enumerate(jobs):
        numbers = reading.waits.numbers if reading.waits is not None else ()
        for number, at in numbers:
            if not 1 <= number <= len(jobs):
                what = f"wait names job {number}, and the request has {len(jobs)}"
                raise rsl.refusal(at, what, "Count the jobs in the order of the text, from 1.", "unknown_name")
        order[place] = tuple([number - 1 for number, _ in numbers])
    return order


def _multirequest(reading: Reading, request: Compound, outer: Scope) -> None:
    """Add the components of a multirequest, also of those inside it. Raises RequestError."""
    scope = reading.evaluation.scope(request, outer)
    whole = RslComponent(at=request.at)  # what stands beside the subrequests is of the job
    for attribute in _own_attributes(reading, request, scope):
        of_component = attribute.key in COMPONENT_ATTRIBUTES and site_named_by(attribute) is None
        if of_component and attribute.key not in JOB_ATTRIBUTES:
            what = "stands beside the subrequests of +, and belongs into one"
            raise reading.refusal(attribute, what, f"Write +(&({attribute.name}=…)…).")
        JOB_ATTRIBUTES.get(attribute.key, read_component_attribute)(reading, whole, attribute)
    for part in request.parts:
        if isinstance(part, Compound) and part.operator is Operator.MULTIREQUEST:
            _multirequest(reading, part, scope)
        elif isinstance(part, Compound):
            component = RslComponent(at=part.at)
            for attribute in _attributes(reading, part, scope):
                if attribute.key in JOB_ATTRIBUTES and attribute.key != "label":
                    what = "is of one subrequest, but koalapy knows it of the whole job only"
                    raise reading.refusal(
                        attribute, what, f"Write it beside the subrequests: +({attribute.name}=…)(&…)."
                    )
                if site_named_by(attribute) is not None:
                    what = "names a site, which runs whole jobs, in one subrequest"
                    raise reading.refusal(attribute, what, f"Write it beside them: +({attribute.name}=…)(&…).")
                read_component_attribute(reading, component, attribute)
            _add_component(reading, component)


def _attributes(reading: Reading, request: Specification, outer: Scope) -> Iterator[Attribute]:
    """Yield the attributes of a conjunction, also of those inside it. Raises RequestError."""
    seen: dict[str, Attribute] = {}
    for attribute in _nested_attributes(reading, request, outer):
        if attribute.key in seen:
            what = f"stands here a second time, after line {reading.rsl.place(seen[attribute.key].at).line}"
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


def _add_component(reading: Reading, component: RslComponent) -> None:
    """Add a component to the job. Raises RequestError for what its attributes do not give together."""
    place, numbers = reading.rsl.place, component.numbers
    if component.executable is None:
        advice = "Write (executable=…)."
        raise reading.rsl.refusal(component.at, "this request has no executable", advice, "missing_key")
    count, at = numbers.get("count", (1, component.at))
    component.places[()] = place(component.at)
    component.set("processors", count, place(at))
    if "hostcount" in numbers:
        _divide_hosts(reading, component, count, *numbers["hostcount"])
    processes = 1 if component.values.get("launch") == "once" else count
    _share_memory(reading, component, max(1, count // max(1, processes)))
    if "mincount" in numbers:
        least, at = numbers["mincount"]
        component.set("processors", {"want": count, "least": least}, place(at))
    component.append = processes > 1
    reading.job.add(component)
    reading.communicates |= component.communicates


def _divide_hosts(reading: Reading, component: RslComponent, count: int, hosts: int, at: int) -> None:
    if hosts < 1 or count % hosts:
        processes = counted_as(count, "process is", "processes are")
        what = f"hostCount is {hosts}, among which {processes} not divided equally"
        raise reading.rsl.refusal(at, what, f"Write a number that divides the count, {count}.")
    component.set("processors_per_node", count // hosts, reading.rsl.place(at))


def _share_memory(reading: Reading, component: RslComponent, processors: int) -> None:
    """Set the memory of each processor from that of one process, which has so many processors."""
    least, most = component.numbers.get("minmemory"), component.numbers.get("maxmemory")
    if least and most and least[0] > most[0]:
        what = f"minMemory is {least[0]}, more than maxMemory, {most[0]}"
        raise reading.rsl.refusal(least[1], what, "Exchange the two, or leave one out.", "contradiction")
    if found := most or least:
        megabytes, at = found
        component.set("memory_per_processor", f"{-(-megabytes // processors)}M", reading.rsl.place(at))


def implicit_order(whole: Stage) -> dict[int, tuple[int, ...]]:
    """Return the jobs for which each job waits by its place in the tree (section 6.1).

    In each stage the stages inside it run first, together. When all that is in them is done, the jobs of the stage
    itself start together. Only those of each inner stage are named that end last: they wait for the others.
    """
    after: dict[int, tuple[int, ...]] = {}
    _order(whole, after)
    return after


def _order(stage: Stage, after: dict[int, tuple[int, ...]]) -> Sequence[int]:
    """Enter the order of a stage. Returns the jobs after whose end it has ended."""
    below = [last for part in stage.parts if isinstance(part, Stage) for last in _order(part, after)]
    own = [part for part in stage.parts if not isinstance(part, Stage)]
    for place in own:
        after[place] = tuple(below)
    return own or below
