"""Parses XML without document type and entities, so that it can neither read other files nor expand."""

import re
from collections.abc import Iterator

from lxml import etree

from koalapy.model.errors import RequestError
from koalapy.model.textfile import MAX_BYTES, Place, place_at
from koalapy.model.textfile.words import shown

Element = etree._Element

_MOST_ELEMENTS = 250_000
_DECLARED = re.compile(rb"""\s*<\?xml\b[^>]*?\bencoding\s*=\s*["']([A-Za-z][\w.-]{0,39})["']""", re.ASCII)
_OF_ONE_BYTE = re.compile(r"(ISO-?8859-\d{1,2}|windows-125\d|latin-?\d{1,2}|koi8-[ru])", re.ASCII | re.IGNORECASE)


def read_xml(text: str | bytes, source: str) -> Element:
    """Return the root element. Raises RequestError.

    Bytes are read in the encoding that they declare, if that has ASCII in it as it is, else as UTF-8.
    """
    data = _in_utf8(bytes_of(text), source)
    if len(data) > MAX_BYTES:
        message = f"{source} has {len(data):,} bytes, more than {MAX_BYTES:,}."
        raise RequestError("too_large", message, "Put long lists of values into a file, and name it in a YAML job.")
    if found := re.search(rb"<!(DOCTYPE|ENTITY)", data):
        before = data[: found.start()].decode("utf-8", "replace")
        where = place_at(before, len(before)).of(source)
        message = f"{where}: the file declares a document type or entities, which are not read."
        raise RequestError("entities", message, "Remove the <!DOCTYPE …>, and write out what its entities stand for.")
    return _parsed(data, source)


def bytes_of(text: str | bytes) -> bytes:
    """Return the bytes of a text; those that surrogate escapes stand for as they were.

    Other lone surrogates become bytes that are not UTF-8: the parser refuses them with their place.
    """
    if isinstance(text, bytes):
        return text
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _in_utf8(data: bytes, source: str) -> bytes:
    """Return the document in UTF-8. Raises RequestError for bytes that are not of the encoding that it declares.

    A document that is UTF-8 stays as it is: a text that somebody has converted may still declare its former encoding.
    """
    declared = _DECLARED.match(data)
    if declared is None or _is_utf8(data):
        return data
    name = declared[1].decode()
    if not _OF_ONE_BYTE.fullmatch(name):
        return data
    try:
        return data.decode(name).encode()
    except (LookupError, UnicodeDecodeError):
        message = f"{source}: the file declares the encoding {name}, which it is not in."
        raise RequestError("syntax", message, "Save it as UTF-8, and declare that.") from None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def elements(element: Element) -> Iterator[Element]:
    """Return the child elements."""
    return (child for child in element if isinstance(child.tag, str))


def text_of(element: Element) -> str:
    """Return the element's text, with line breaks and tabs as spaces (xsd:normalizedString)."""
    return re.sub(r"[\t\r\n]", " ", "".join(map(str, element.itertext())))


def word_of(element: Element) -> str:
    """Return the element's text without surrounding spaces."""
    return text_of(element).strip()


def namespace_of(element: Element) -> str:
    return etree.QName(element).namespace or ""


def name_of(element: Element) -> str:
    """Return the element's name without its namespace."""
    return etree.QName(element).localname


def named(element: Element) -> str:
    """Return the element's name with its prefix, for messages."""
    return shown(f"{element.prefix}:{name_of(element)}" if element.prefix else name_of(element), quote="")


def place_of(element: Element) -> Place:
    """Return the line of the element. lxml does not keep the column."""
    line = element.sourceline
    return Place(line if isinstance(line, int) else 0)


def _parsed(data: bytes, source: str) -> Element:
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        huge_tree=False,
        remove_comments=True,
        remove_pis=True,
    )
    try:
        root = etree.fromstring(data, parser)
    except etree.XMLSyntaxError as error:
        line, column = error.position
        message = f"{source}:{line}:{column}: this is not XML: {shown(_words(error), quote='')}."
        raise RequestError("syntax", message, "Correct it there or shortly before.") from None
    if sum(1 for _ in root.iter()) > _MOST_ELEMENTS:
        message = f"{source} has more than {_MOST_ELEMENTS:,} elements."
        raise RequestError("too_large", message, "Put long lists of values into a file, and name it in a YAML job.")
    return root


def _words(error: etree.XMLSyntaxError) -> str:
    """Return the parser's message without the position that it repeats."""
    return re.sub(r", line \d+, column \d+.*$", "", error.msg or "it is empty", flags=re.DOTALL)
