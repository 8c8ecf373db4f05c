"""Read the text of a YAML file into plain values, with the place of each of them.

The schema decides what a scalar means, not YAML. All that stands without quotes is `Plain` text: an account 007, a time
1:30 or the word `no` arrive as they were written. Aliases, tags and several documents are refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from koalapy.model.errors import RequestError
from koalapy.model.textfile import MAX_BYTES, Place
from koalapy.model.textfile.syntax import syntax_error
from koalapy.model.textfile.words import shown

MAX_VALUES = 250_000
MAX_DEPTH = 20

Path = tuple[str | int, ...]

# libyaml where PyYAML was built with it: it is fifty times as fast, and the limit above is a large file.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


class Plain(str):
    """A scalar that was written without quotes: a number, a truth value or text, as its place has it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a file: dict, list, str, Plain and None. `origins` names the source of values from elsewhere.

    `base`: the path of the part that the paths of `place` and `where` are relative to.
    """

    source: str
    data: Any
    places: Mapping[Path, Place] = field(default_factory=dict)
    origins: Mapping[Path, str] = field(default_factory=dict)
    base: Path = ()

    def inside(self, path: Path) -> "Document":
        """Return the document for mistakes of one part of it: the paths of its values begin there."""
        return replace(self, base=(*self.base, *path))

    def place(self, path: Path) -> Place:
        """Return the place of the value or its key, or of what contains it; none if the values come from no file."""
        starts = _prefixes((*self.base, *path))
        return next((self.places[start] for start in starts if start in self.places), Place())

    def where(self, path: Path) -> str:
        """Return the place of the value, such as `grid.yaml:12:5`, or its other origin."""
        for start in _prefixes((*self.base, *path)):
            if start in self.origins:
                return self.origins[start]
        return self.place(path).of(self.source)

    def with_value(self, path: Path, value: Any, origin: str) -> "Document":
        """Return the document with another value. Raises KeyError, IndexError or TypeError if `path` has no place."""
        return replace(self, data=_with(self.data, path, value), origins={**self.origins, path: origin})

    def without(self, path: Path) -> "Document":
        """Return the document without this key, if it is there.

        Raises KeyError, IndexError or TypeError as `with_value` does.
        """
        *above, key = path
        found: Any = self.data
        for step in above:
            inner: Any = found if isinstance(found, dict | list) else _no_place()
            found = inner.get(step) if isinstance(inner, dict) else inner[step]
            if found is None:
                return self
        if not isinstance(found, dict):
            _no_place()
        left = {name: value for name, value in found.items() if name != key}
        return replace(self, data=_with(self.data, tuple(above), left))


def read_document(text: str | bytes, source: str) -> Document:
    """Return the values of a YAML text whose top is a mapping. Raises RequestError for any other text."""
    decoded = _decode(text, source)
    reader = _Reader(decoded, source)
    data = reader.document()
    if data is None:
        raise RequestError("empty_file", f"{source} is empty.", "Write at least its required keys.")
    if not isinstance(data, dict):
        message = f"{reader.places[()].of(source)}: the file holds {kind_of(data)} where keys and values belong."
        raise RequestError("not_a_mapping", message, "Write lines such as `key: value`.")
    return Document(source, data, reader.places)


def read_value(text: str, source: str) -> Any:
    """Return one value as it would stand in a file. A list, a mapping or quoted text is YAML; all else is as written.

    Raises RequestError for invalid YAML.
    """
    if text.lstrip().startswith(("[", "{", '"', "'")):
        return _Reader(_decode(text, source), source).document()
    return None if text in _NULLS else Plain(text)


def kind_of(value: object) -> str:
    """Describe the kind of a value for a reader, such as `a mapping`."""
    if isinstance(value, str):
        return shown(value)
    names = {dict: "a mapping", list: "a list", tuple: "a list", bool: "a truth value", type(None): "nothing"}
    return names.get(
        type(value), "a number" if isinstance(value, int | float) else shown(type(value).__name__, quote="")
    )


class _Reader:
    """A builder of one document's values from the parser's events. Its methods raise RequestError."""

    def __init__(self, text: str, source: str) -> None:
        self.places: dict[Path, Place] = {}
        self._source = source
        self._events = _events(text, source)
        self._values = 0

    def document(self) -> Any:
        """Return the values; None for a text without any document."""
        next(self._events)  # the stream's start
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        data = self._value(next(self._events), ())
        next(self._events)  # the document's end
        after = next(self._events)
        if not isinstance(after, yaml.StreamEndEvent):
            raise self._refusal("two_documents", after, "a second document begins", "Keep one document in a file.")
        return data

    def _value(self, event: Any, path: Path) -> Any:
        self._check(event, path)
        self.places.setdefault(path, _place(event.start_mark))
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return [self._value(item, (*path, index)) for index, item in enumerate(self._until(yaml.SequenceEndEvent))]
        if event.style:
            return event.value
        return None if event.value in _NULLS else Plain(event.value)

    def _mapping(self, path: Path) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for event in self._until(yaml.MappingEndEvent):
            key = self._key(event, path)
            if key in mapping:
                raise self._twice(event, (*path, key))
            self.places[*path, key] = _place(event.start_mark)
            mapping[key] = self._value(next(self._events), (*path, key))
        return mapping

    def _key(self, event: Any, path: Path) -> str:
        self._check(event, path)
        if not isinstance(event, yaml.ScalarEvent):
            raise self._refusal(
                "bad_key", event, "a list or mapping stands where a key belongs", "Write a word as the key."
            )
        if not event.style and event.value in _NULLS:
            raise self._refusal(
                "bad_key", event, "a key is missing before the colon", "Write the key, or quote the text."
            )
        return str(event.value)

    def _until(self, end: type) -> Iterator[Any]:
        while not isinstance(event := next(self._events), end):
            yield event

    def _check(self, event: Any, path: Path) -> None:
        self._values += 1
        if isinstance(event, yaml.AliasEvent):
            raise self._refusal(
                "alias", event, f"*{event.anchor} is an alias", "Quote it if it is text; aliases are not read."
            )
        if event.tag is not None:
            raise self._refusal(
                "tag",
                event,
                f"{shown(event.tag.replace('tag:yaml.org,2002:', '!!'))} is a tag",
                "Quote it if it is text; tags are not read.",
            )
        if len(path) >= MAX_DEPTH:
            raise _too_deep(self._source, event.start_mark)
        if self._values > MAX_VALUES:
            raise self._refusal("too_large", event, f"the file holds over {MAX_VALUES} values", "Write a shorter file.")

    def _twice(self, event: Any, path: Path) -> RequestError:
        what = f"{dotted(path)} stands here a second time, after line {self.places[path].line}"
        return self._refusal("duplicate_key", event, what, "Remove one of the two.")

    def _refusal(self, code: str, event: Any, what: str, advice: str) -> RequestError:
        return RequestError(code, f"{_place(event.start_mark).of(self._source)}: {what}.", advice)


def dotted(path: Path) -> str:
    """Return a path as text, such as `clusters.vu.queue` or `components.0.processors`."""
    return ".".join(shown(step, quote="") for step in path)


def _events(text: str, source: str) -> Iterator[Any]:
    """Yield the parser's events. Raises RequestError for a syntax error.

    PyYAML's own parser raises ValueError for an impossible escape or version. Newer releases of libyaml scan ahead of
    the events, and refuse a depth of their own.
    """
    try:
        yield from yaml.parse(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        if error.problem == "exceeded maximum nesting depth" and error.problem_mark is not None:
            raise _too_deep(source, error.problem_mark) from error
        raise syntax_error(error, text, source) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise syntax_error(error, text, source) from error


def _too_deep(source: str, mark: Any) -> RequestError:
    """Return the error for a file with more than MAX_DEPTH levels."""
    message = f"{_place(mark).of(source)}: more than {MAX_DEPTH} levels are nested."
    return RequestError("too_deep", message, "Write a flatter file.")


def _decode(text: str | bytes, source: str) -> str:
    try:
        raw = text.encode() if isinstance(text, str) else text
        if len(raw) > MAX_BYTES:
            message = f"{source} has {len(raw):,} bytes, more than the {MAX_BYTES:,} that are read."
            raise RequestError("too_large", message, "Give the right file, or shorten it.")
        decoded = raw.decode("utf-8-sig")
    except UnicodeError as error:
        raise _not_text(source) from error
    if "\0" in decoded:
        raise _not_text(source)
    return decoded


def _not_text(source: str) -> RequestError:
    message = f"{source} is not text but binary data, or not in UTF-8."
    return RequestError("not_text", message, "Save the file as text in UTF-8.")


def _place(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


def _prefixes(path: Path) -> Iterator[Path]:
    return (path[:length] for length in range(len(path), -1, -1))


def _with(data: Any, path: Path, value: Any) -> Any:
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(data, dict):
        inner = data.get(step)
        return {**data, step: _with({} if inner is None else inner, rest, value)}
    copy = list(data) if isinstance(data, list) else _no_place()
    copy[step] = _with(copy[step], rest, value)  # type: ignore[index]
    return copy


def _no_place() -> list[Any]:
    raise TypeError("a scalar has no parts")
