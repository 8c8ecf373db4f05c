"""All small changes of a text of Python that may change what its functions decide.

mutmut makes most of them: its operators are functions from a node to its replacements, and change `in`, `is` and
ternaries, by which functional code decides. cosmic-ray has none for `in`, and seven for one comparison.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators


def _negated_condition(node: cst.If | cst.While | cst.CompIf) -> Iterator[cst.CSTNode]:
    """Negate a condition that is no comparison and has no `and`, `or`, `not`: mutmut changes those itself."""
    if not isinstance(node.test, cst.Comparison | cst.BooleanOperation | cst.UnaryOperation):
        test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        yield node.with_changes(test=cst.UnaryOperation(cst.Not(), test))


def _removed_call(node: cst.Expr) -> Iterator[cst.CSTNode]:
    """Remove a call whose result nobody takes."""
    if isinstance(node.value, cst.Call):
        yield cst.Pass(semicolon=node.semicolon)


def _removed_keyword_argument(node: cst.Call) -> Iterator[cst.CSTNode]:
    """Remove one keyword argument: as `state` of `replace(job, state=state)`. `strict` of zip() is only a check."""
    for number, argument in enumerate(node.args):
        if argument.keyword is not None and argument.keyword.value != "strict":
            yield node.with_changes(args=[*node.args[:number], *node.args[number + 1 :]])


# mutmut's changes of strings are missing, since most of ours are texts for people. Its changes of a value to None are
# missing too, and its removal of positional arguments: nearly all end in a TypeError, and would only raise the score.
_OPERATORS: tuple[tuple[type, Callable[[Any], Iterable[cst.CSTNode]]], ...] = (
    (cst.BaseNumber, mutators.operator_number),
    (cst.Name, mutators.operator_name),
    (cst.AugAssign, mutators.operator_augmented_assignment),
    (cst.UnaryOperation, mutators.operator_remove_unary_ops),
    (cst.Lambda, mutators.operator_lambda),
    (cst.CSTNode, mutators.operator_keywords),
    (cst.CSTNode, mutators.operator_swap_op),
    (cst.Match, mutators.operator_match),
    (cst.IfExp, mutators.operator_if_exp),
    (cst.If, _negated_condition),
    (cst.While, _negated_condition),
    (cst.CompIf, _negated_condition),
    (cst.Expr, _removed_call),
    (cst.Call, _removed_keyword_argument),
)


@dataclass(frozen=True)
class Mutant:
    """One change of one file: `lines` are those of the statement (or of its head) in which it is, from 1."""

    path: Path
    function: str
    lines: range
    source: str  # the whole text, with the change

    def file(self) -> str:
        """Return its path below the working directory."""
        return str(self.path.relative_to(Path.cwd()))

    def difference(self) -> tuple[str, str]:
        """Return the lines that it changes, and what it makes of them, each without what is around it."""
        before = self.path.read_text(encoding="utf-8").splitlines()
        changed = list(unified_diff(before, self.source.splitlines(), n=0, lineterm=""))[3:]
        return tuple(  # type: ignore[return-value]  # two of them
            " ".join(line[1:].strip() for line in changed if line.startswith(sign)) for sign in "-+"
        )


def mutants_of(path: Path) -> Iterator[Callable[[], Mutant]]:
    """Yield a maker of each mutant of the functions of a file, in the order of the text."""
    module = MetadataWrapper(cst.parse_module(path.read_text(encoding="utf-8")))
    visitor = _Visitor()
    module.visit(visitor)
    for function, lines, node, replacement in visitor.found:

        def make(
            function: str = function, lines: range = lines, node: Any = node, replacement: Any = replacement
        ) -> Mutant:
            changed = module.module.deep_replace(node, replacement)
            assert isinstance(changed, cst.Module)
            return Mutant(path, function, lines, changed.code)

        yield make


class _Visitor(cst.CSTVisitor):  # type: ignore[misc]  # libcst is not read by mypy
    """Collects what can be replaced in the bodies of functions: never annotations, decorators or defaults."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, range, cst.CSTNode, cst.CSTNode]] = []
        self._names: list[str] = []
        self._functions = 0  # how many functions are around
        self._statements: list[range] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.Parameters):
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._names.append(node.name.value)
            self._functions += isinstance(node, cst.FunctionDef)
        if isinstance(node, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            self._statements.append(self._lines(node))
        if self._functions:
            for kind, operator in _OPERATORS:
                if isinstance(node, kind):
                    for replacement in operator(node):
                        self.found.append((".".join(self._names), self._statements[-1], node, replacement))
        return True

    def on_leave(self, node: cst.CSTNode) -> None:
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._names.pop()
            self._functions -= isinstance(node, cst.FunctionDef)
        if isinstance(node, cst.BaseSmallStatement | cst.BaseCompoundStatement):
            self._statements.pop()

    def _lines(self, node: cst.CSTNode) -> range:
        """The lines of a statement; of one with a body only those of its head."""
        place = self.get_metadata(PositionProvider, node)
        end: int = place.end.line
        body = getattr(node, "body", None)
        if isinstance(body, cst.BaseSuite):
            end = max(place.start.line, self.get_metadata(PositionProvider, body).start.line - 1)
        return range(place.start.line, end + 1)
