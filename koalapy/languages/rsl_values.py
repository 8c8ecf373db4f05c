"""Evaluates the values of RSL: concatenations, and variables that `rsl_substitution` defines."""

import re
from collections import ChainMap
from collections.abc import MutableMapping, Sequence
from typing import NamedTuple

from koalapy.languages.parsed import SourceText
from koalapy.languages.rsl_tree import Compound, Joined, Listed, Relation, Text, Value, Variable
from koalapy.model.textfile import MAX_BYTES
from koalapy.model.textfile.words import nearest, shown

SUBSTITUTION = "rslsubstitution"
_GLOBUS = re.compile(r"(HOME|LOGNAME|SCRATCH_DIRECTORY|GLOBUS\w*)$")  # variables of Globus's job manager and globusrun
_PAIR = "Write (rsl_substitution = (NAME value) (NAME value))."

Scope = MutableMapping[str, str]


class Word(NamedTuple):
    """A text without variables, and its offset."""

    text: str
    at: int


class Group(NamedTuple):
    """Values in parentheses, without variables."""

    values: tuple["Evaluated", ...]
    at: int


Evaluated = Word | Group


def canonical(attribute: str) -> str:
    """Return an attribute's name as it is compared: without regard to case and underscores."""
    return attribute.replace("_", "").casefold()


class Evaluation:
    """The evaluation of one text. It bounds the size of all values together."""

    def __init__(self, rsl: SourceText) -> None:
        self._rsl = rsl
        self._left = MAX_BYTES  # characters that all values together may still have

    def scope(self, request: Compound, outer: Scope) -> Scope:
        """Return the variables of a request: those around it, and its own, which are defined in their order.

        A definition may use variables that are defined before it. Raises RequestError.
        """
        relations = [
            part for part in request.parts if isinstance(part, Relation) and canonical(part.attribute) == SUBSTITUTION
        ]
        own: dict[str, str] = {}
        scope = ChainMap(own, outer)
        for relation in relations:
            for pair in relation.values:
                name, value = self._definition(pair, scope)
                if name.text in own:
                    advice = "Define a name once in a request; a request inside may define it anew."
                    what = f"the variable {shown(name.text)} is defined a second time"
                    raise self._rsl.refusal(name.at, what, advice, "duplicate_key")
                own[name.text] = value.text
        return scope if own else outer

    def values(self, found: Sequence[Value], scope: Scope) -> tuple[Evaluated, ...]:
        """Return the values without variables. Raises RequestError for an undefined one, and beyond the limits."""
        return tuple(self._value(value, scope) for value in found)

    def _definition(self, pair: Value, scope: Scope) -> tuple[Word, Word]:
        evaluated = self._value(pair, scope)
        match evaluated:
            case Group((Word() as name, Word() as value)):
                return name, value
        raise self._rsl.refusal(evaluated.at, "this defines no variable: it is not a name with a value", _PAIR)

    def _value(self, value: Value, scope: Scope) -> Evaluated:
        if isinstance(value, Listed):
            return Group(self.values(value.values, scope), value.at)
        return Word(self._text(value, scope), value.at)

    def _text(self, value: Text | Variable | Joined, scope: Scope) -> str:
        """Return the text of a value that is none in parentheses. Raises RequestError."""
        if isinstance(value, Text):
            return self._counted(value.text, value.at)
        if isinstance(value, Variable):
            return self._counted(self._variable(value, scope), value.at)
        return "".join(self._text(part, scope) for part in value.parts)

    def _variable(self, variable: Variable, scope: Scope) -> str:
        name, *default = variable.parts
        if not isinstance(name, Text) or len(default) > 1 or any(isinstance(each, Listed) for each in default):
            what = "this reference does not consist of a variable's name, with or without a default"
            raise self._rsl.refusal(variable.at, what, "Write $(NAME) or $(NAME default).")
        if name.text in scope:
            return scope[name.text]
        for each in default:
            assert not isinstance(each, Listed)
            return self._text(each, scope)
        meant = nearest(name.text, scope)
        advice = f"Did you mean {meant}?" if meant else "Define it: (rsl_substitution = (NAME value))."
        if _GLOBUS.match(name.text):
            advice = f"Globus defines it, koalapy does not: write what it stands for. {advice}"
        what = f"the variable {shown(name.text)} is not defined"
        raise self._rsl.refusal(variable.at, what, advice, "unknown_variable")

    def _counted(self, text: str, at: int) -> str:
        """Return the text, counted against the limit. Raises RequestError beyond it."""
        self._left -= len(text)
        if self._left < 0:
            what = f"with its variables, the text has more than {MAX_BYTES:,} characters up to here"
            raise self._rsl.refusal(at, what, "Use fewer or shorter variables.", "too_large")
        return text
