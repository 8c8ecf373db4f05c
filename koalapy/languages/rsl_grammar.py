"""The grammar of RSL 1.0 and of multistage requests. Import it late: lark is imported with it."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedToken, v_args
from lark.lexer import Lexer

from koalapy.languages.parsed import SourceText
from koalapy.languages.rsl_tokens import Kind, is_stage, tokens
from koalapy.languages.rsl_tree import (
    Compound,
    Joined,
    Listed,
    Operator,
    Relation,
    Specification,
    Text,
    Value,
    Variable,
)
from koalapy.model.errors import RequestError
from koalapy.model.textfile.words import listed, shown

_GRAMMAR = """
?start: compound | relation
compound: PREFIX group+
?group: OPEN start _CLOSE      -> group
relation: TEXT RELATION value+
?value: OPEN value+ _CLOSE     -> listed
      | simple (_JOIN simple)* -> joined
?simple: TEXT                  -> text
       | DOLLAR OPEN value+ _CLOSE -> variable
%declare TEXT OPEN _CLOSE PREFIX RELATION _JOIN DOLLAR
"""
_BELONGS = {
    Kind.PREFIX: "a request (& or +)",
    Kind.TEXT: "a word",
    Kind.RELATION: "=",
    Kind.OPEN: "(",
    Kind.CLOSE: ")",
    Kind.DOLLAR: "$(…)",
    Kind.JOIN: "#",
    "$END": "the end",
}


def parse(rsl: SourceText) -> Specification:
    """Return the syntax tree. Raises RequestError, with line and column."""
    try:
        tree: Any = _parser().parse(rsl)
    except UnexpectedToken as error:
        raise _syntax_error(rsl, error) from None
    assert isinstance(tree, Compound | Relation)
    return tree


def _syntax_error(rsl: SourceText, error: UnexpectedToken) -> RequestError:
    """Return an error for the first token that fits nothing there."""
    if error.token.type == "$END":
        unclosed = []
        for token in tokens(rsl):
            if token.kind is Kind.OPEN:
                unclosed.append(token.at)
            elif token.kind is Kind.CLOSE:
                unclosed.pop()
        if unclosed:
            return rsl.refusal(unclosed[-1], "this parenthesis is not closed", "Add ) where its content ends.")
        at, what = len(rsl.text), "the text ends"
    else:
        at, what = error.token.start_pos or 0, f"{shown(str(error.token))} stands here"
        if error.token.type == Kind.JOIN and not error.token:
            what = "a variable stands here"
    belongs = [words for kind, words in _BELONGS.items() if kind in (error.accepts or error.expected)]
    advice = "Write a request such as &(executable=/bin/date)(count=2)."
    if error.token.type == Kind.PREFIX and Kind.PREFIX not in error.expected:
        advice = f"Quote {error.token} if it is text; a request in a group needs parentheses."
    before = takewhile(lambda token: token.at < at, tokens(rsl))
    if stages := [token.at - 1 for token in before if token.kind is Kind.PREFIX and is_stage(rsl, token.at - 1)]:
        line, column = rsl.place(stages[-1])
        advice = f"If the (*( at {line}:{column} begins a comment, write a blank behind its *: here it is an operator."
    return rsl.refusal(at, f"{what} where {listed(belongs)} belongs", advice)


@lru_cache
def _parser() -> Lark:
    return Lark(_GRAMMAR, parser="lalr", lexer=_Tokens, transformer=_Tree())


class _Tokens(Lexer):
    """The tokens as lark takes them."""

    def __init__(self, lexer_conf: object) -> None:
        """There is nothing to configure."""

    def lex(self, data: SourceText) -> Iterator[Token]:  # type: ignore[override]
        for token in tokens(data):
            yield Token(token.kind, token.text, start_pos=token.at)


@v_args(inline=True)
class _Tree(Transformer[Token, Specification]):
    """The syntax tree's nodes, made while the text is read."""

    def compound(self, prefix: Token, *parts: Specification) -> Compound:
        return Compound(Operator(str(prefix)), parts, _at(prefix))

    def group(self, _open: Token, inner: Specification) -> Specification:
        return inner

    def relation(self, name: Token, operator: Token, *values: Value) -> Relation:
        return Relation(str(name), str(operator), values, _at(name))

    def listed(self, begin: Token, *values: Value) -> Listed:
        return Listed(values, _at(begin))

    def joined(self, *parts: Any) -> Text | Variable | Joined:
        return parts[0] if len(parts) == 1 else Joined(parts, parts[0].at)

    def text(self, word: Token) -> Text:
        return Text(str(word), _at(word))

    def variable(self, dollar: Token, _open: Token, *parts: Value) -> Variable:
        return Variable(parts, _at(dollar))


def _at(token: Token) -> int:
    return token.start_pos or 0
