"""Reads jsdl:DataStaging (GFD.56, 6.5): files of this machine to stage in and out."""

import posixpath

from koalapy.languages.drafts import Blank, Draft, Staging
from koalapy.languages.paths import landing, path_of_uri, staged_out_to
from koalapy.languages.xmltext import Element, elements, name_of, place_of, word_of
from koalapy.model.textfile.words import shown

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
