"""Hide secrets in texts: known values, and what looks like a secret."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

HIDDEN = "***"
_SHORTEST = 4  # characters: shorter values of an environment are words such as `1` and `yes`
_NAMES = r"(?:pass(?:word|wd|phrase)?|secret|token|api_?key|access_?key|credentials?|authorization|cookie)"
_SECRET_KEY = re.compile(_NAMES, re.IGNORECASE)
_SECRET_OPTION = re.compile(rf"--?[\w-]*{_NAMES}[\w-]*", re.IGNORECASE)
_PATTERNS = [
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), HIDDEN),
    # The password of a URL ends at its last @: an unescaped one may have an @ or a / in it.
    (re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://[^\s:/@'\"]*:)[^\s'\"]*@"), rf"\1{HIDDEN}@"),
    (re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9+/=._~-]{8,}", re.IGNORECASE), rf"\1 {HIDDEN}"),
    # password: x, "api_token"="x", --secret x, ?sslpassword=x
    (re.compile(rf"((?:\b|[\w-])[\w-]*{_NAMES}[\w-]*[\"']?\s*[:=]\s*)(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s,;&}}\]]+)", re.I),
     rf"\1{HIDDEN}"),
    (re.compile(rf"(--?[\w-]*{_NAMES}[\w-]*\s+)[^\s,;]+", re.IGNORECASE), rf"\1{HIDDEN}"),
    # NAME=value, as `export` and options of batch systems have it
    (re.compile(r"\b([A-Z_][A-Z0-9_]+=)(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s,;]+)"), rf"\1{HIDDEN}"),
    (re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{32,}(?![0-9A-Za-z])"), HIDDEN),
    # webhook: https://hooks.example/SECRET, as grid and job files have it
    (re.compile(r"(\bwebhook[\"']?\s*:\s*)(?:\"[^\"\n]*\"|'[^'\n]*'|[^\s,}]+)"), rf"\1{HIDDEN}"),
]  # fmt: skip


class Secrets:
    """Values that must not be shown, with patterns of other texts that must not be shown."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        known = {line for value in values for line in (value, *value.splitlines()) if len(line) >= _SHORTEST}
        longest_first = sorted(known, key=lambda value: (-len(value), value))
        self._known = re.compile("|".join(map(re.escape, longest_first))) if known else None

    def hide(self, text: str) -> str:
        """Return the text with *** in place of each secret."""
        if self._known is not None:
            text = self._known.sub(HIDDEN, text)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text

    def hide_words(self, words: Sequence[str]) -> list[str]:
        """Return the words of a command line with *** for secrets.

        The word after an option that is named for secrets becomes *** too.
        """
        names = ["", *words]
        return [
            HIDDEN if _SECRET_OPTION.fullmatch(before) else self.hide(word)
            for before, word in zip(names, words, strict=False)
        ]

    def hidden(self, document: Any) -> Any:
        """Return a JSON document with *** for secrets in its texts.

        All values of `environment`, and texts under keys that are named for secrets, become *** as a whole.
        """
        if isinstance(document, str):
            return self.hide(document)
        if isinstance(document, list):
            return [self.hidden(each) for each in document]
        if isinstance(document, dict):
            return {self.hide(key): self._of_key(key, value) for key, value in document.items()}
        return document

    def _of_key(self, key: str, value: Any) -> Any:
        if key == "environment" and isinstance(value, dict):
            return dict.fromkeys(value, HIDDEN)
        if _SECRET_KEY.search(key) and isinstance(value, str):
            return HIDDEN
        return self.hidden(value)
