"""Values and names in error messages: shortened, harmless to a terminal, and with the nearest known word."""

import difflib
import re
from collections.abc import Collection, Iterable

_SHOWN = 60
# What a terminal obeys or what changes the order of what is read: C0 but tab and line feed, DEL, C1, line and paragraph
# separators, bidirectional controls (UAX #9), and surrogates, which stand for bytes that are no text.
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def shown(value: object, quote: str = "'") -> str:
    """Return the value in one short line of printable characters."""
    text = "".join(
        character if character.isprintable() else _escaped(character) for character in str(value)[: _SHOWN + 1]
    )
    cut = f"{text[: _SHOWN - 1]}…" if len(text) > _SHOWN else text
    return f"{quote}{cut}{quote}" if isinstance(value, str) else cut


def visible(text: str) -> str:
    """Return the text with each control character as an escape such as `\\x1b`; tabs and line feeds stay."""
    return HIDDEN.sub(lambda found: _escaped(found[0]), text)


def visible_line(text: str) -> str:
    """Return the text on one line, with each line feed and control character as an escape."""
    return visible(text).replace("\n", "\\n")


def visible_json(text: str) -> str:
    """Return a JSON text of the same meaning without control characters. `text` is as json.dumps writes it."""
    return HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def nearest(word: str, known: Collection[str]) -> str | None:
    """Return the known word that was probably meant; None if none is close."""
    folded = {name.casefold(): name for name in known}
    close = difflib.get_close_matches(word[:_SHOWN].casefold(), folded, n=1, cutoff=0.6)
    return folded[close[0]] if close else None


def listed(words: Iterable[str], joint: str = "or", most: int = 12) -> str:
    """Return the words as `a, b or c`; of very many, the first ones."""
    names = [shown(word, quote="") for word in words]
    if len(names) > most:
        return f"{', '.join(names[:most])}, …"
    return f" {joint} ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def use_known(word: str, known: Collection[str]) -> str:
    """Return the advice for a word that is not among the known ones."""
    meant = nearest(word, known)
    if meant is not None:
        return f"Did you mean {meant}?"
    return f"Write one of {listed(known)}." if known else "Remove it."


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()


def valid_text(text: str) -> str:
    """Replace the bytes of a file name or value that are not UTF-8."""
    return text.encode("utf-8", "replace").decode()
