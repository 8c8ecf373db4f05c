"""Records of what commands of the PBS family print: OpenPBS's JSON, Torque's XML, and the text of both."""

import json
import re
from typing import Any, Dict, List, NamedTuple, Tuple
from xml.etree import ElementTree

from koalapy_adapters.batch.classify import unreadable
from koalapy_adapters.errors import Result, UnreadableError

# Attributes by name; a resource is `Resource_List.ncpus`, as in the text. Numbers are numbers in JSON only.
Fields = Dict[str, Any]

# A user's variables, which may have any text, also with line breaks, in them.
_VARIABLES = re.compile(r'^([ \t]*)"Variable_List":\s*\{\n.*?\n\1\}(,?)$', re.MULTILINE | re.DOTALL)
# The lines of PBS's JSON: the begin of a table, record or resource list, its end, and a value.
_OPENS = re.compile(r'\s*(?:"([^"]*)"\s*:\s*)?\{\s*\Z')
_CLOSES = re.compile(r"\s*\},?\s*\Z")
_VALUE = re.compile(r'\s*"([^"]*)"\s*:\s*(".*"|\[.*\]|\{\}|[^"\s\[{][^"]*?)\s*,?\s*\Z')
_HEADING = re.compile(r"(?:Job Id|Queue|Server):\s*(\S+)\s*\Z")
_ATTRIBUTE = re.compile(r"(?: +|\t)([A-Za-z_][\w.-]*) = (.*)\Z", re.DOTALL)
# XML 1.0 does not allow them, but anybody's job may bring them in.
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")


class Record(NamedTuple):
    """A job, queue, server or node: its name and its attributes."""

    name: str
    fields: Fields


def asked(result: Result, command: str) -> Result:
    """The result of a command that `sh -c SCRIPT NAME ARGUMENT...` ran, under that command's own name."""
    return result._replace(argv=[command, *result.argv[4:]])


def records(result: Result, table: str) -> List[Record]:
    """The records of a `qstat -f`. `table` is their name in JSON. Raises UnreadableError if they cannot be read."""
    text = result.stdout.lstrip()
    if text.startswith("{"):
        return _records_of_json(result, table)
    if text.startswith("<"):
        return _records_of_xml(result)
    return _records_of_text(result)


def nodes(result: Result) -> List[Record]:
    """The records of a `pbsnodes -a`. Every server has nodes; without any, pbsnodes fails.

    Raises UnreadableError if the answer cannot be read or lists none.
    """
    is_json = result.stdout.lstrip().startswith("{")
    found = _records_of_json(result, "nodes") if is_json else _nodes_of_text(result)
    if not found:
        raise unreadable(result, "listed no nodes")
    return found


def number(record: Record, name: str, result: Result, absent: int = 0) -> int:
    """A count among the attributes, or `absent` without the attribute. Raises UnreadableError if its value is no
    number.
    """
    value = record.fields.get(name, absent)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.match(r"-?[0-9]{1,18}\s*\Z", value):
        return int(value)
    raise unreadable(result, "has %s of %s as %.100r" % (name, record.name, value))


def word(record: Record, name: str) -> str:
    """An attribute as text; "" if the record does not have it."""
    value = record.fields.get(name, "")
    return value if isinstance(value, str) else str(value)


def size(text: str) -> int:
    """The bytes of `4gb`, `51200kb` or `100`, in powers of 1024 as in pbs_resources(7); 0 for text that is no size."""
    match = re.match(r"([0-9]{1,18})([kmgtp]?)([bw]?)\Z", text.strip().lower())
    if not match:
        return 0
    bits = 10 * " kmgtp".index(match.group(2) or " ")
    return int(match.group(1)) << bits + (3 if match.group(3) == "w" else 0)


def _document(result: Result) -> Dict[str, Any]:
    """The JSON object that a command printed. Raises UnreadableError, without anybody's text, if it printed none."""
    try:
        found = _loaded(result.stdout)
    except (ValueError, RecursionError) as error:
        raise unreadable(result._replace(stdout=""), "printed JSON that cannot be read (%s)" % error) from error
    if not isinstance(found, dict):
        raise unreadable(result, "printed JSON that is not an object")
    return found


def _nodes_of_text(result: Result) -> List[Record]:
    """The nodes of a `pbsnodes -a`: a name at the beginning of a line, attributes below it, and then an empty line."""
    found: List[Record] = []
    for line in result.stdout.splitlines():
        match = _ATTRIBUTE.match(line)
        if match and found:
            found[-1].fields[match.group(1)] = match.group(2).strip()
        elif re.match(r"[\w.:-]+\Z", line):
            found.append(Record(line, {}))
        elif line.strip():
            raise unreadable(result, "printed a line that is not a node (%.100r)" % line)
    return found


def _records_of_json(result: Result, table: str) -> List[Record]:
    """The records of a table. OpenPBS omits the whole table if there are no jobs."""
    found = _document(result).get(table, {})
    if not isinstance(found, dict) or not all(isinstance(fields, dict) for fields in found.values()):
        raise unreadable(result, "printed JSON with %s that are none" % table)
    return [Record(name, _flat(fields)) for name, fields in found.items()]


def _loaded(text: str) -> Any:
    """The object of a text, which in PBS Pro 20 and before may be no JSON because of one value in one record.

    They wrote backslashes and quotes of users as they are, and numbers such as 007. Raises ValueError.
    """
    try:
        return json.loads(text, strict=False, object_pairs_hook=_joined)
    except ValueError:
        plain = _VARIABLES.sub(r'\1"Variable_List":{}\2', text)
    try:
        return json.loads(plain, strict=False, object_pairs_hook=_joined)
    except ValueError:
        return _by_lines(plain)


def _joined(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """An object with all values of a repeated key, as the text form has them: PBS repeats max_run for each limit."""
    found: Dict[str, Any] = {}
    for key, value in pairs:
        before = found.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            value = dict(before, **value)
        elif isinstance(before, str) and isinstance(value, str) and before != value:
            value = before + "," + value
        found[key] = value
    return found


def _by_lines(text: str) -> Dict[str, Any]:
    """The object whose lines are laid out as PBS does it; each is read for itself. Several objects are one.

    Raises ValueError for other lines. The error has the number of the line, not its text, which may be anybody's.
    """
    open_objects: List[Tuple[str, List[Tuple[str, Any]]]] = [("", [])]
    for place, line in enumerate(text.splitlines(), 1):
        value, opens = _VALUE.match(line), _OPENS.match(line)
        if value:
            open_objects[-1][1].append((value.group(1), _value(value.group(2))))
        elif opens:
            open_objects.append((opens.group(1) or "", []))
        elif _CLOSES.match(line) and len(open_objects) > 1:
            name, pairs = open_objects.pop()
            open_objects[-1][1].append((name, _joined(pairs)))
        elif line.strip():
            raise ValueError("line %d is laid out in another way" % place)
    documents = [value for name, value in open_objects[0][1] if not name and isinstance(value, dict)]
    if len(open_objects) > 1 or not documents:
        raise ValueError("it is cut off")
    found: Dict[str, Any] = {}
    for table, records_of in (item for document in documents for item in document.items()):
        is_more = isinstance(found.get(table), dict) and isinstance(records_of, dict)
        found[table] = dict(found[table], **records_of) if is_more else records_of
    return found


def _value(text: str) -> Any:
    """A value; as its own text, without its quotes, if it is no JSON."""
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return text[1:-1].replace('\\"', '"') if text.startswith('"') else text


def _flat(fields: Fields) -> Fields:
    flat: Fields = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            flat.update(("%s.%s" % (name, resource), amount) for resource, amount in value.items())
        else:
            flat[name] = value
    return flat


def _records_of_text(result: Result) -> List[Record]:
    """The records of a `qstat -f`. A long value continues on the next line after a tab; a user may have put line breaks
    into it.
    """
    found: List[Record] = []
    last = ""
    for line in result.stdout.splitlines():
        heading, attribute = _HEADING.match(line), _ATTRIBUTE.match(line)
        if heading:
            found.append(Record(heading.group(1), {}))
            last = ""
        elif not found and line.strip():
            raise unreadable(result, "printed a line that belongs to nothing (%.100r)" % line)
        elif attribute:
            last = attribute.group(1)
            # The first counts: what follows a line break in a value could pretend to be an attribute.
            found[-1].fields.setdefault(last, attribute.group(2).strip())
        elif last and line.startswith("\t"):
            found[-1].fields[last] += line[1:]
    return found


def _records_of_xml(result: Result) -> List[Record]:
    """The jobs of Torque's `qstat -x`. A document type is refused, and with it all attacks by entities."""
    text = _NO_XML.sub("?", result.stdout)
    if "<!" in text:
        raise unreadable(result, "printed XML with a document type")
    try:
        root = ElementTree.fromstring(text)
    except (ElementTree.ParseError, RecursionError) as error:
        raise unreadable(result, "printed XML that cannot be read (%s)" % error) from error
    if root.tag != "Data":
        raise unreadable(result, "printed XML that lists no jobs")
    return [_record_of_xml(job, result) for job in root.iter("Job")]


def _record_of_xml(job: ElementTree.Element, result: Result) -> Record:
    fields: Fields = {}
    for attribute in job:
        fields[attribute.tag] = (attribute.text or "").strip()
        for resource in attribute:
            fields["%s.%s" % (attribute.tag, resource.tag)] = (resource.text or "").strip()
    if not fields.get("Job_Id"):
        raise _nameless(result)
    return Record(fields["Job_Id"], fields)


def _nameless(result: Result) -> UnreadableError:
    return unreadable(result, "printed a job without an id")
