"""The XML of the multistage co-allocation service (its section 4 and figure 3; docs/flows.md).

It means the same as RSL: `<coallocate>` is the operator `+`, or `*` if another stands inside, and `<resource>` is `&`.
"""

import re
from collections.abc import Iterator, Mapping

from koalapy.languages.parsed import SourceText
from koalapy.languages.rsl import document_of_tree
from koalapy.languages.rsl_tree import Compound, Operator, Relation, Specification, Text
from koalapy.languages.xmltext import Element, bytes_of, elements, name_of, named, place_of, read_xml, word_of
from koalapy.model.errors import RequestError
from koalapy.model.textfile.document import Document

MOST_DEPTH = 100
_UNNAMED = re.compile(rb'<([A-Za-z_]+)=(?=["\'])')  # figure 3 leaves the attribute's name out: <executable="a.out"/>
_INDENT = re.compile(r"[ \t]*")
_LISTS = frozenset({"arguments", "wait"})  # several values, which blanks separate
_OF_RESOURCE = {"name": "resourceManagerContact"}
_OF_GROUP = {
    "name": "label",
    "wait": "wait",
    "on_error": "on_error",
    "max_wait": "max_wait",
    "on_failure": "on_failure",
    "site": "resourceManagerContact",  # as `site:NAME`
}


def document_of(text: str | bytes, source: str) -> Document:
    """Return the job or the flow in the form of koalapy's job file. Raises RequestError."""
    raw = bytes_of(text)
    root = read_xml(_UNNAMED.sub(rb"<\1 name=", raw), source)
    reader = _Reader(SourceText(raw, source))
    if name_of(root) != "coallocate":
        raise reader.refusal(root, "begins no co-allocation", "Begin it with <coallocate>.", "unknown_key")
    return document_of_tree(reader.rsl, reader.group(root, 1))


class _Reader:
    """Makes RSL's syntax tree of elements. The place of each part is the line of its element."""

    def __init__(self, rsl: SourceText) -> None:
        self.rsl = rsl

    def refusal(self, element: Element, what: str, advice: str, code: str = "not_honoured") -> RequestError:
        return self.rsl.refusal(self._at(element), f"<{named(element)}> {what}", advice, code)

    def group(self, element: Element, depth: int) -> Compound:
        """Return the request of a `<coallocate>`. Raises RequestError."""
        if depth > MOST_DEPTH:
            raise self.refusal(element, f"stands inside of {MOST_DEPTH} others", "Write a flatter request.", "too_deep")
        inner = [name_of(each) == "coallocate" for each in elements(element)]
        operator = Operator.MULTISTAGE if any(inner) else Operator.MULTIREQUEST
        parts: list[Specification] = [*self._attributes(element, _OF_GROUP)]
        for each in elements(element):
            parts.append(self.group(each, depth + 1) if name_of(each) == "coallocate" else self._resource(each))
        return Compound(operator, tuple(parts), self._at(element))

    def _resource(self, element: Element) -> Compound:
        if name_of(element) != "resource":
            advice = "Write <resource name=…> or <coallocate> there."
            raise self.refusal(element, "stands inside of <coallocate>", advice, "unknown_key")
        if (kind := element.get("type", "compute")) != "compute":
            raise self.refusal(element, f"is of the type {kind}", "Only compute resources are co-allocated.")
        parts = [*self._attributes(element, _OF_RESOURCE)]
        for each in elements(element):
            if [name for name in each.attrib if name != "name"] or len(each):
                raise self.refusal(each, "holds more than one text", 'Write <count>4</count>, or <count="4"/>.')
            words = [word_of(each), str(each.get("name") or "")]
            values = " ".join(filter(None, words))
            listed = values.split() if name_of(each) in _LISTS else [values]
            parts.append(self._relation(each, name_of(each), listed))
        return Compound(Operator.CONJUNCTION, tuple(self._joined(parts)), self._at(element))

    def _attributes(self, element: Element, known: Mapping[str, str]) -> Iterator[Relation]:
        for name, value in element.attrib.items():
            if str(name) == "type" and name_of(element) == "resource":
                continue
            if str(name) not in known:
                advice = f"It may have {', '.join(known)}."
                raise self.refusal(element, f"has the unknown attribute {name!s}", advice, "unknown_key")
            attribute = known[str(name)]
            word = f"site:{value!s}" if str(name) == "site" else str(value)
            yield self._relation(element, attribute, word.split() if attribute in _LISTS else [word])

    def _relation(self, element: Element, name: str, values: list[str]) -> Relation:
        at = self._at(element)
        return Relation(name, "=", tuple([Text(each, at) for each in values]), at)

    def _joined(self, parts: list[Relation]) -> Iterator[Relation]:
        """Yield the relations, those of repeated `<arguments>` as one."""
        arguments = [each for each in parts if each.attribute == "arguments"]
        for each in parts:
            if arguments and each is arguments[0]:
                yield Relation("arguments", "=", tuple([word for one in arguments for word in one.values]), each.at)
            elif each.attribute != "arguments":
                yield each

    def _at(self, element: Element) -> int:
        """Return the offset of the element's line, behind its indentation."""
        found = _INDENT.match(self.rsl.text, self.rsl.start_of(place_of(element).line))
        return found.end() if found else 0
