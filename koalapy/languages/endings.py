"""Determines the language of a job file by the ending of its name, or by its first characters."""

import re

DEFAULT_LANGUAGE = "yaml"
_LANGUAGES = {"yaml": "yaml", "yml": "yaml", "json": "yaml", "jsdl": "jsdl", "rsl": "rsl", "jdl": "jdl"}

_BEGINNINGS = {
    "coallocate": re.compile(rb"(\xef\xbb\xbf)?\s*(<\?[^>]*>\s*|<!--.*?-->\s*)*<coallocate\b", re.DOTALL),
    "jsdl": re.compile(rb"(\xef\xbb\xbf)?\s*<[?!A-Za-z_]"),
    "jdl": re.compile(rb"(\xef\xbb\xbf)?(\s|#[^\n]*\n|//[^\n]*\n)*(\[\s*\w|\w+\s*=[^=])"),
    "rsl": re.compile(rb"(\xef\xbb\xbf)?\s*(\(\*|[&+*|]\s*\()"),
}


def language_of(source: str, text: str | bytes = "") -> str:
    """Return the registered name of the language.

    If the ending is unknown or missing, the text decides. XML is JSDL, unless it begins with `<coallocate>`. A text is
    RSL if it begins with a comment of RSL, or with an operator and a group. It is JDL if it begins with a bracket and a
    name, or with a name and `=`. Else it is YAML, which includes JSON.
    """
    ending = source.rpartition("/")[2].rpartition(".")[2].casefold()
    if ending == "xml":
        return "coallocate" if _language_of_text(text) == "coallocate" else "jsdl"
    return _LANGUAGES.get(ending) or _language_of_text(text)


def _language_of_text(text: str | bytes) -> str:
    begin = text[:1000] if isinstance(text, bytes) else text[:1000].encode("utf-8", "replace")
    found = (language for language, pattern in _BEGINNINGS.items() if pattern.match(begin))
    return next(found, DEFAULT_LANGUAGE)


def stem_of(source: str) -> str:
    """Return a file's name without directory and ending, such as `poisson` for `jobs/poisson.yaml`."""
    name = source.rpartition("/")[2]
    return name.rpartition(".")[0] or name
