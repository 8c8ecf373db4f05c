"""jsdl:DataStaging (GFD.56, 6.5): files of this machine, to where koalapy's staging lays them and back."""

import posixpath
import re

from koalapy.languages.drafts import Draft
from koalapy.languages.paths import landing
from koalapy.languages.xmltext import Element, elements, line_of, name_of, word_of
from koalapy.model.textfile.words import shown

_FILE = re.compile(r"(?:file:(?://(?:localhost)?(?=/))?)?(?![A-Za-z][A-Za-z0-9+.-]*:|//)([^?#]+)")
_SAID = ("FileName", "CreationFlag", "DeleteOnTermination", "Source", "Target")


def read_staging(draft: Draft, element: Element) -> None:
    """A Source is staged in, a Target out; a file's place on the cluster follows from its path (docs/staging.md)."""
    parts = {name_of(child): child for child in elements(element)}
    for name, child in parts.items():
        if name not in _SAID:
            raise draft.refusal(child, "is nothing that koalapy honours", "Remove it.")
    if "FileName" not in parts or not parts.keys() & {"Source", "Target"}:
        raise draft.refusal(element, "stages nothing", "Write a FileName, and a Source or Target with its URI.")
    place = posixpath.normpath(word_of(parts["FileName"]))
    if "Source" in parts:
        _stage_in(draft, parts["Source"], place)
    if "Target" in parts:
        _stage_out(draft, parts["Target"], place)


def _stage_in(draft: Draft, element: Element, place: str) -> None:
    path = _path(draft, element)
    if landing(path) != place:
        what = f"is {shown(path)}, which lies at {shown(landing(path))} on the cluster, not at {shown(place)}"
        raise draft.refusal(element, what, "Write that as the FileName; files are not renamed on their way.")
    _add(draft, "stage_in", path, element)


def _stage_out(draft: Draft, element: Element, place: str) -> None:
    path = _path(draft, element)
    if path == place:
        _add(draft, "stage_out", place, element)
    elif path.endswith(f"/{place}"):
        _add(draft, "stage_out", {"path": place, "to": path[: -len(place) - 1] or "/"}, element)
    else:
        what = f"is {shown(path)}, another name than {shown(place)}"
        raise draft.refusal(element, what, "Let it end with the FileName; files are not renamed on their way.")


def _add(draft: Draft, key: str, value: object, element: Element) -> None:
    listed = draft.job.setdefault(key, [])
    draft.lines[key, len(listed)] = line_of(element)
    listed.append(value)


def _path(draft: Draft, element: Element) -> str:
    """The path of a file: URI, or a relative one as it is."""
    uri = next((child for child in elements(element) if name_of(child) == "URI"), None)
    if uri is None:
        raise draft.refusal(element, "has no URI", "Write one, such as file:///home/me/data.txt or data.txt.")
    found = _FILE.fullmatch(word_of(uri))
    if not found:
        what = f"is {shown(word_of(uri))}, no file of this machine"
        raise draft.refusal(uri, what, "Fetch it here first, and write file:///its/path.")
    escaped = re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes.fromhex(match[1].decode()), found[1].encode())
    return posixpath.normpath(escaped.decode("utf-8", "surrogateescape"))
