"""Divides RSL into parentheses, operators and words; knows quoting, comments and implicit concatenation."""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from koalapy.languages.parsed import SourceText
from koalapy.model.textfile.words import shown

MOST_TOKENS = 250_000
MOST_DEPTH = 100  # of parentheses
_BLANKS = re.compile(r"[ \t\r\n]+")
_WORD = re.compile(r"""[^\x00-\x20\x7f+&|=!<>()"'^*$#?~][^\x00-\x20\x7f=!<>()"'^*$#?~]*""")
_RELATION = re.compile(r"!=|<=|>=|[=<>]")
_QUOTE = "Quote it: '…'."


class Kind(StrEnum):
    """The kinds of tokens, as the grammar names them."""

    TEXT = "TEXT"
    OPEN = "OPEN"
    CLOSE = "_CLOSE"
    PREFIX = "PREFIX"  # of a request: & + * |
    RELATION = "RELATION"
    JOIN = "_JOIN"  # #, or implicit
    DOLLAR = "DOLLAR"


class Token(NamedTuple):
    """A part of the text. `text` is without quotes. `at`: its offset in characters."""

    kind: Kind
    text: str
    at: int


def tokens(rsl: SourceText) -> Iterator[Token]:
    """Yield the tokens. Raises RequestError for a text that has none, and beyond the limits."""
    if (at := rsl.text.find("\0")) >= 0:
        raise rsl.refusal(at, "a NUL character stands here, which no text can contain", "Remove it.", "not_text")
    scanner = _Scanner(rsl)
    for count, token in enumerate(scanner.run(), 1):
        if count > MOST_TOKENS:
            what = f"the text has more than {MOST_TOKENS:,} words and signs"
            raise rsl.refusal(token.at, what, "Put long lists into a file, and stage it in.", "too_large")
        yield token


def is_stage(rsl: SourceText, at: int) -> bool:
    """Return whether a parenthesis, `*` and a group stand here: a multistage request, where a request may stand."""
    return rsl.text.startswith("(*(", at)


class _Scanner:
    """A pass over the text. It remembers the token before, and what the open parentheses are."""

    def __init__(self, rsl: SourceText) -> None:
        self._rsl, self._text = rsl, rsl.text
        self._at = 0
        self._open: list[bool] = []  # for each open parenthesis: whether a $ stands before it
        self._values_depth: int | None = None  # the depth of the relation whose values are read
        self._before: Kind | None = None
        self._joins_word = self._joins_variable = self._is_quoted = False  # what the token before does if touched

    def run(self) -> Iterator[Token]:
        while self._at < len(self._text):
            if blanks := _BLANKS.match(self._text, self._at):
                self._at = blanks.end()
                self._untouch()
            elif self._text.startswith("(*", self._at) and not self._is_multistage():
                self._skip_comment()
                self._untouch()
            else:
                yield from self._token()

    def _untouch(self) -> None:
        self._joins_word = self._joins_variable = self._is_quoted = False

    def _is_multistage(self) -> bool:
        """Return whether `(*` opens a multistage request: a group follows at once, and a request may stand here."""
        may_stand = self._values_depth is None and self._before in (Kind.PREFIX, Kind.CLOSE)
        return may_stand and is_stage(self._rsl, self._at)

    def _skip_comment(self) -> None:
        end = self._text.find("*)", self._at + 2)
        if end < 0:
            advice = "End it with *), or write the operator * and its first group without a blank between: (*(…)…)."
            raise self._rsl.refusal(self._at, "this comment has no end", advice)
        self._at = end + 2

    def _token(self) -> Iterator[Token]:
        at, sign = self._at, self._text[self._at]
        if word := _WORD.match(self._text, at):
            self._at = word.end()
            yield from self._text_token(word[0], at, is_quoted=False)
        elif sign in "\"'^":
            yield from self._text_token(self._quoted(), at, is_quoted=True)
        elif sign == "$":
            if self._is_quoted:
                advice = "Put # between them to join them, or a blank to separate them."
                raise self._rsl.refusal(at, "a variable touches the quoted text before it", advice)
            if self._joins_variable:
                yield Token(Kind.JOIN, "", at)
            yield self._sign(Kind.DOLLAR, sign)
        elif sign == "(":
            yield self._opened()
        elif sign == ")":
            yield self._closed()
        elif relation := _RELATION.match(self._text, at):
            if self._values_depth is None:
                self._values_depth = len(self._open)
            yield self._sign(Kind.RELATION, relation[0])
        elif sign in "&+*|":
            yield self._sign(Kind.PREFIX, sign)
        elif sign == "#":
            yield self._sign(Kind.JOIN, sign)
        else:
            raise self._rsl.refusal(at, f"{shown(sign)} stands outside of quotes", _QUOTE)

    def _sign(self, kind: Kind, sign: str) -> Token:
        token = Token(kind, sign, self._at)
        self._at += len(sign)
        self._before = kind
        self._untouch()
        return token

    def _text_token(self, text: str, at: int, is_quoted: bool) -> Iterator[Token]:
        if self._joins_word:
            yield Token(Kind.JOIN, "", at)
        yield Token(Kind.TEXT, text, at)
        self._before = Kind.TEXT
        self._joins_word, self._joins_variable, self._is_quoted = False, not is_quoted, is_quoted

    def _opened(self) -> Token:
        if len(self._open) >= MOST_DEPTH:
            what = f"more than {MOST_DEPTH} parentheses are open"
            raise self._rsl.refusal(self._at, what, "Write a flatter request.", "too_deep")
        self._open.append(self._before is Kind.DOLLAR)
        return self._sign(Kind.OPEN, "(")

    def _closed(self) -> Token:
        if not self._open:
            raise self._rsl.refusal(self._at, "this parenthesis closes none", "Remove it.")
        is_variable = self._open.pop()
        if self._values_depth is not None and len(self._open) < self._values_depth:
            self._values_depth = None
        token = self._sign(Kind.CLOSE, ")")
        self._joins_word = self._joins_variable = is_variable
        return token

    def _quoted(self) -> str:
        """Return the quoted text that begins here, and move behind it. A doubled delimiter stands for itself."""
        start = self._at
        begin = start + (2 if self._text[start] == "^" else 1)
        delimiter = self._text[begin - 1 : begin]
        parts: list[str] = []
        at = begin
        while delimiter and (end := self._text.find(delimiter, at)) >= 0:
            if self._text[end + 1 : end + 2] != delimiter:
                self._at = end + 1
                return delimiter.join([*parts, self._text[at:end]])
            parts.append(self._text[at:end])
            at = end + 2
        advice = f"End it with {shown(delimiter)}." if delimiter else "Write the character that ends the text behind ^."
        raise self._rsl.refusal(start, "this quoted text has no end", advice)
