"""Determines the language of a job file by the ending of its name, or by its first characters."""

import re

DEFAULT_LANGUAGE = "yaml"
_LANGUAGES = {"yaml": "yaml", "yml": "yaml", "json": "yaml", "jsdl": "jsdl", "xml": "jsdl", "rsl": "rsl", "jdl": "jdl"}


def language_of(source: str, text: str | bytes = "") -> str:
    """Return the registered name of the language.

    If the ending is unknown or missing, the text decides: it is JSDL if it begins like XML, else YAML, which includes
    JSON.
    """
    ending = source.rpartition("/")[2].rpartition(".")[2].casefold()
    return _LANGUAGES.get(ending) or ("jsdl" if _is_xml(text) else DEFAULT_LANGUAGE)


def _is_xml(text: str | bytes) -> bool:
    begin = text[:1000] if isinstance(text, bytes) else text[:1000].encode("utf-8", "replace")
    return re.match(rb"(\xef\xbb\xbf)?\s*<[?!A-Za-z_]", begin) is not None


def stem_of(source: str) -> str:
    """Return a file's name without directory and ending, such as `poisson` for `jobs/poisson.yaml`."""
    name = source.rpartition("/")[2]
    return name.rpartition(".")[0] or name
