"""The language of a job file, by the ending of its name or by its first characters."""

import re

DEFAULT_LANGUAGE = "yaml"
_LANGUAGES = {"yaml": "yaml", "yml": "yaml", "json": "yaml", "jsdl": "jsdl", "xml": "jsdl", "rsl": "rsl", "jdl": "jdl"}


def language_of(source: str, text: str | bytes = "") -> str:
    """The registered name of the language.

    The text decides for an unknown ending, and for none: XML begins as YAML cannot. All else is YAML, of which JSON is
    a part.
    """
    ending = source.rpartition("/")[2].rpartition(".")[2].casefold()
    return _LANGUAGES.get(ending) or ("jsdl" if _is_xml(text) else DEFAULT_LANGUAGE)


def _is_xml(text: str | bytes) -> bool:
    begin = text[:1000] if isinstance(text, bytes) else text[:1000].encode("utf-8", "replace")
    return re.match(rb"(\xef\xbb\xbf)?\s*<[?!A-Za-z_]", begin) is not None


def stem_of(source: str) -> str:
    """The name of a file without folder and ending: `poisson` of `jobs/poisson.yaml`; "" if nothing is left."""
    name = source.rpartition("/")[2]
    return name.rpartition(".")[0] or name
