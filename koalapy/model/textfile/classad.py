"""Divides a text in the ClassAd language into tokens, and checks its expressions, before any library evaluates them.

The checks bound what an evaluation can cost: characters, terms, nesting, functions and regular expressions. Nothing is
evaluated here. Names of attributes and functions have no upper and lower case.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from koalapy.model.cluster import Value
from koalapy.model.textfile.words import listed, nearest, shown

MAX_TEXT = 16_384  # bytes of a job's text, and of an expression
MAX_TERMS = 500  # operands of an expression
MAX_DEPTH = 50  # parentheses, lists and conditions inside of each other
MAX_PATTERN = 200  # characters of a regular expression

OWN_ATTRIBUTES = ("MinNumCPU", "MaxNumCPU", "NodeNumber")  # what an expression may read of its own job
_FUNCTIONS = (
    "allCompare", "anyCompare", "avg", "bool", "ceiling", "floor", "identicalMember", "ifThenElse", "int", "isBoolean",
    "isError", "isInteger", "isList", "isReal", "isString", "isUndefined", "max", "member", "min", "pow", "quantize",
    "real", "regexp", "round", "size", "strcat", "strcmp", "stricmp", "string", "stringListIMember",
    "stringListMember", "stringListSize", "substr", "sum", "toLower", "toUpper", "versionEQ", "versionGE", "versionGT",
    "versionLE", "versionLT",
)  # fmt: skip
_ALLOWED = {name.casefold() for name in _FUNCTIONS}
_OWN = {name.casefold(): name for name in OWN_ATTRIBUTES}
_LITERALS = frozenset({"true", "false", "undefined", "error"})
_OF_CLUSTER, _OF_JOB = frozenset({"other", "target"}), frozenset({"self", "my"})
# Their precedence does not matter for a check.
_BINARY = frozenset(
    {
        "||", "&&", "|", "^", "&", "==", "!=", "=?=", "=!=", "<", "<=", ">", ">=", "<<", ">>", ">>>", "+", "-", "*",
        "/", "%", "is", "isnt",
    }
)  # fmt: skip
_UNARY = frozenset(["+", "-", "!", "~"])
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "'": "'", "\\": "\\"}
_COMPARE = "Compare with ==; a single = only names an attribute."


class Kind(StrEnum):
    NAME = "name"
    NUMBER = "number"
    TEXT = "text"
    SIGN = "sign"
    END = "end"


class Token(NamedTuple):
    """A part of the text. `text`: as written. `at`: its offset in characters."""

    kind: Kind
    text: str
    at: int

    @property
    def word(self) -> str:
        """The token for comparisons."""
        return self.text.casefold() if self.kind is Kind.NAME else self.text


class ClassAdError(Exception):
    """A mistake at an offset of the text. `what` is a sentence without its full stop."""

    def __init__(self, at: int, what: str, advice: str, code: str = "syntax") -> None:
        super().__init__(what)
        self.at, self.what, self.advice, self.code = at, what, advice, code


@dataclass(frozen=True, slots=True)
class Expression:
    """A checked expression.

    `text`: in one line without comments, each attribute with its scope. `attributes`: those of the cluster that it
    reads, as they were written, each once. `constant`: the kind of the only token; None for anything longer.
    """

    text: str
    attributes: tuple[str, ...] = ()
    constant: Kind | None = None


_TOKENS = re.compile(
    r"""(?P<blank>[ \t\r\n]+|//[^\n]*|\#[^\n]*|/\*.*?\*/)
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<number>(?:[0-9]+\.[0-9]*|\.?[0-9]+)(?:[eE][+-]?[0-9]+)?)
      |(?P<text>"(?:[^"\\\n]|\\.)*")
      |(?P<sign>=\?=|=!=|>>>|<<|>>|<=|>=|==|!=|&&|\|\||/(?!\*)|[-+*%!~<>&|^?:.,;=(){}\[\]])""",
    re.VERBOSE | re.DOTALL,
)


def tokens(text: str) -> list[Token]:
    """Return the tokens without blanks and comments, an END last.

    Comments are `//` and `#` up to the line's end, and `/* */`. Raises ClassAdError.
    """
    if (size := len(text.encode("utf-8", "surrogatepass"))) > MAX_TEXT:
        what = f"the text has {size:,} bytes, more than {MAX_TEXT:,}"
        raise ClassAdError(0, what, "Shorten it.", "too_large")
    return [*_scan(text)]


def _scan(text: str) -> Iterator[Token]:
    at = 0
    while at < len(text):
        found = _TOKENS.match(text, at)
        if found is None:
            raise _no_token(text, at)
        if found.lastgroup != "blank":
            yield Token(Kind(str(found.lastgroup)), found[0], at)
        at = found.end()
    yield Token(Kind.END, "", len(text))


def _no_token(text: str, at: int) -> ClassAdError:
    if text[at] == '"':
        return ClassAdError(at, "this text has no end", 'End it with " on the same line.')
    if text.startswith("/*", at):
        return ClassAdError(at, "this comment has no end", "End it with */.")
    if text[at] == "'":
        return ClassAdError(at, "a single quote stands here", 'Quote texts with ".')
    return ClassAdError(at, f"{shown(text[at])} means nothing here", "Remove it, or put it into double quotes.")


def unquoted(token: Token) -> str:
    """Return the content of a text's token. Raises ClassAdError for an escape that means nothing, or a NUL."""

    def character(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPES:
            known = listed((f"\\{each}" for each in _ESCAPES), "and")
            raise ClassAdError(token.at + 1 + found.start(), f"{found[0]} is no escape", f"Known are {known}.")
        return _ESCAPES[found[1]]

    content = re.sub(r"\\(.)", character, token.text[1:-1], flags=re.DOTALL)
    if "\0" in content:
        raise ClassAdError(token.at, "a NUL character stands in this text", "Remove it.", "not_text")
    return content


def check_expression(text: str) -> Expression:
    """Check a text that is one expression. Raises ClassAdError."""
    checker = Checker(tokens(text))
    expression = checker.expression()
    if checker.next.kind is not Kind.END:
        raise unexpected(checker.next)
    return expression


@lru_cache(1 << 12)
def attributes_read(expression: str) -> tuple[str, ...]:
    """Return the clusters' attributes that a checked expression reads, each once; none for ''."""
    return check_expression(expression).attributes if expression else ()


@dataclass(slots=True)
class Checker:
    """A walk over tokens. `expression` checks the one that begins at `next`, and moves behind it.

    `own`: values that are written in place of the job's own attributes, by names in lower case. `unreadable`: names of
    other attributes that the job has: without a scope, they would be its own.
    """

    tokens: list[Token]
    index: int = 0
    own: Mapping[str, str] = field(default_factory=dict)
    unreadable: Collection[str] = ()
    _terms: int = 0
    _written: list[str] = field(default_factory=list)
    _attributes: dict[str, str] = field(default_factory=dict)  # by name without case: as it was written

    @property
    def next(self) -> Token:
        return self.tokens[self.index]

    def advance(self) -> Token:
        self.index += 1
        return self.tokens[self.index - 1]

    def expression(self) -> Expression:
        """Raises ClassAdError."""
        first, self._terms, self._written, self._attributes = self.index, 0, [], {}
        self._whole(0)
        alone = self.tokens[first].kind if self.index == first + 1 else None
        return Expression(" ".join(self._written), tuple(self._attributes.values()), alone)

    def _whole(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            what = f"more than {MAX_DEPTH} parentheses, lists and conditions are inside of each other"
            raise ClassAdError(self.next.at, what, "Write a flatter expression.", "too_deep")
        self._operand(depth)
        while self.next.word in _BINARY and self.next.kind in (Kind.SIGN, Kind.NAME):
            self._keep()
            self._operand(depth)
        if self.next.text == "?":
            self._keep()
            self._whole(depth + 1)
            self._expect(":")
            self._whole(depth + 1)

    def _operand(self, depth: int) -> None:
        self._terms += 1
        if self._terms > MAX_TERMS:
            what = f"this expression has more than {MAX_TERMS} terms"
            raise ClassAdError(self.next.at, what, "Write a shorter one.", "too_large")
        while self.next.text in _UNARY:
            self._terms += 1
            self._keep()
            if self._terms > MAX_TERMS:
                raise ClassAdError(self.next.at, f"more than {MAX_TERMS} signs are here", "Remove them.", "too_large")
        token = self.next
        if token.kind in (Kind.NUMBER, Kind.TEXT):
            self._literal()
        elif token.kind is Kind.NAME:
            self._name(depth)
        elif token.text == "(":
            self._keep()
            self._whole(depth + 1)
            self._expect(")")
        elif token.text == "{":
            self._listed("}", depth)
        elif token.text == "[":
            advice = "Compare attributes of the cluster; a record has no place in an expression here."
            raise ClassAdError(token.at, "a record begins here", advice, "not_honoured")
        else:
            raise unexpected(token)
        while self.next.text == "[":
            self._keep()
            self._whole(depth + 1)
            self._expect("]")

    def _literal(self) -> None:
        if self.next.kind is Kind.TEXT:
            unquoted(self.next)
        elif len(self.next.text) > 18:
            raise ClassAdError(self.next.at, "this number has more than 18 digits", "Write a shorter one.")
        self._keep()

    def _name(self, depth: int) -> None:
        token = self.next
        after = self.tokens[self.index + 1]
        if after.text == "(":
            self._call(depth)
        elif after.text == "." and token.word in _OF_CLUSTER | _OF_JOB:
            self.index += 2
            if self.next.kind is not Kind.NAME:
                raise unexpected(self.next, "an attribute's name")
            self._attribute(self.advance(), own=token.word in _OF_JOB)
        elif token.word in _LITERALS:
            self._keep()
        else:
            self._attribute(self.advance(), own=token.word in _OWN or token.word in self.unreadable)
        if self.next.text == ".":
            advice = "Write other.NAME for an attribute of the cluster, self.NAME for one of the job."
            raise ClassAdError(self.next.at, "a dot stands here", advice)

    def _attribute(self, token: Token, own: bool) -> None:
        if own and token.word not in _OWN:
            what = f"{shown(token.text, quote='')} is not an attribute of the job that expressions can read"
            raise ClassAdError(token.at, what, f"There are {listed(OWN_ATTRIBUTES, 'and')}.", "unknown_name")
        if not own:
            self._attributes.setdefault(token.word, token.text)
        written = f"{'self' if own else 'other'}.{token.text}"
        self._written.append(self.own.get(token.word, written) if own else written)

    def _call(self, depth: int) -> None:
        token = self.next
        if token.word not in _ALLOWED:
            meant = nearest(token.text, _FUNCTIONS)
            advice = f"Did you mean {meant}?" if meant else f"There are {listed(_FUNCTIONS, 'and', len(_FUNCTIONS))}."
            what = f"{shown(token.text, quote='')} is not a function that may be used here"
            raise ClassAdError(token.at, what, advice, "unknown_function")
        self._keep()
        if token.word == "regexp":
            pattern = self.tokens[self.index + 1]
            if pattern.kind is not Kind.TEXT or len(pattern.text) > MAX_PATTERN + 2:
                what = f"the pattern of regexp is not a text of at most {MAX_PATTERN} characters"
                raise ClassAdError(pattern.at, what, 'Write regexp("…", other.NAME).', "bad_pattern")
        self._listed(")", depth)

    def _listed(self, end: str, depth: int) -> None:
        self._keep()
        if self.next.text != end or self.next.kind is not Kind.SIGN:
            self._whole(depth + 1)
            while self.next.text == ",":
                self._keep()
                self._whole(depth + 1)
        self._expect(end)

    def _expect(self, sign: str) -> None:
        if self.next.text != sign or self.next.kind is not Kind.SIGN:
            raise unexpected(self.next, sign)
        self._keep()

    def _keep(self) -> None:
        self._written.append(self.advance().text)


def unexpected(token: Token, wanted: str = "") -> ClassAdError:
    """Return the error for a token that cannot stand at its place. `wanted`: what belongs there."""
    what = "the text ends here" if token.kind is Kind.END else f"{shown(token.text, quote='')} stands here"
    if token.text == "=" and not wanted:
        return ClassAdError(token.at, "a single = stands inside of an expression", _COMPARE)
    if wanted:
        return ClassAdError(token.at, f"{what} where {wanted} belongs", f"Write {wanted} before it.")
    return ClassAdError(
        token.at, f"{what} where a value belongs", "Write a number, a text, an attribute or ( before it."
    )


def in_classad(attributes: Iterable[tuple[str, Value]]) -> str:
    """Return a record of these attributes as the library reads it."""
    return f"[{';'.join(f'{name}={_value(value)}' for name, value in attributes)}]"


def _value(value: Value) -> str:
    if isinstance(value, tuple):
        return f"{{{','.join(map(_value, value))}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
        return f'"{quoted}"'
    return repr(value)
