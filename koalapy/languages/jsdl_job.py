"""A job while it is read from JSDL: its texts, which sweeps turn into templates, and the files that it stages."""

import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field

from koalapy.languages.parsed import ParsedComponent, ParsedJob, ParsedText
from koalapy.languages.paths import path_of_uri, staged_name, staged_out_to
from koalapy.languages.xmltext import Element, elements, name_of, named, place_of, word_of
from koalapy.model.errors import RequestError
from koalapy.model.textfile.words import shown

_STAGING = ("FileName", "CreationFlag", "DeleteOnTermination", "Source", "Target")


@dataclass(slots=True)
class JsdlJob(ParsedJob):
    """A job of one component. `texts`: those that a sweep may vary, by their elements.

    `staging`: the job file's key for each staged file, and the elements of its place on the cluster and of its path.
    """

    component: ParsedComponent = field(default_factory=ParsedComponent)
    texts: dict[Element, ParsedText] = field(default_factory=dict)
    staging: list[tuple[str, Element, Element]] = field(default_factory=list)

    def text(self, element: Element, text: str) -> ParsedText:
        """Return the element's text as one that a sweep may vary. Raises RequestError if it names a file system."""
        if element.get("filesystemName"):
            what = "names a file system, which koalapy does not honour"
            raise self.refusal(element, what, "Write a path instead.")
        self.texts[element] = found = ParsedText(text, place_of(element))
        return found

    def refusal(self, element: Element, what: str, advice: str, code: str = "not_honoured") -> RequestError:
        """Return an error that names the element and its line. `what`: the rest of the sentence after the name."""
        return RequestError(code, f"{place_of(element).of(self.source)}: {named(element)} {what}.", advice)


Handler = Callable[[JsdlJob, Element], None]


def read_staging(job: JsdlJob, element: Element) -> None:
    """Read a JSDL DataStaging element. Raises RequestError for one that koalapy cannot serve."""
    parts = {name_of(child): child for child in elements(element)}
    for name, child in parts.items():
        if name not in _STAGING:
            raise job.refusal(child, "is not supported", "Remove it.")
    if "FileName" not in parts or not parts.keys() & {"Source", "Target"}:
        raise job.refusal(element, "stages nothing", "Write a FileName, and a Source or Target with its URI.")
    place = parts["FileName"]
    job.texts[place] = ParsedText(posixpath.normpath(word_of(place)), place_of(place))
    for name, key in (("Source", "stage_in"), ("Target", "stage_out")):
        if name in parts:
            job.staging.append((key, place, _uri(job, parts[name])))


def _uri(job: JsdlJob, element: Element) -> Element:
    """Enter the path of a URI with scheme file, or a relative path as it is. Returns the URI's element.

    Raises RequestError for others.
    """
    uri = next((child for child in elements(element) if name_of(child) == "URI"), None)
    if uri is None:
        raise job.refusal(element, "has no URI", "Write one, such as file:///home/me/data.txt or data.txt.")
    path = path_of_uri(word_of(uri))
    if path is None:
        what = f"is {shown(word_of(uri))}, no file of this machine"
        raise job.refusal(uri, what, "Fetch it here first, and write file:///its/path.")
    job.texts[uri] = ParsedText(path, place_of(uri))
    return uri


def add_staging(job: JsdlJob) -> None:
    """Set the keys of the job file for staging, once the sweeps are known. Raises RequestError."""
    for key, place_element, element in job.staging:
        place, path = job.texts[place_element].text, job.texts[element].text
        entry = path if key == "stage_in" else staged_out_to(place, path)
        if key == "stage_in" and staged_name(path) != place:
            what = f"is {shown(path)}, which lies at {shown(staged_name(path))} on the cluster, not at {shown(place)}"
            raise job.refusal(element, what, "Write that as the FileName; files are not renamed on their way.")
        if entry is None:
            what = f"is {shown(path)}, another name than {shown(place)}"
            raise job.refusal(element, what, "Let it end with the FileName; files are not renamed on their way.")
        job.places.setdefault((key,), place_of(element))
        job.append(key, entry, place_of(element))
