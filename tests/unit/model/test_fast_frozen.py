"""Frozen values that are made, and made anew, without a guard in the way."""

import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from inspect import signature

import pytest

from koalapy.model.fast_frozen import fast_frozen, replacer


@dataclass(frozen=True, slots=True)
class Plain:
    kind: int
    second: str = "two"
    many: list[int] = field(default_factory=list)
    named: int = field(default=4, kw_only=True)


@fast_frozen
@dataclass(frozen=True, slots=True)
class Quick:
    kind: int
    second: str = "two"
    many: list[int] = field(default_factory=list)
    named: int = field(default=4, kw_only=True)


evolve = replacer(Quick)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((1,), {}), ((1, "b", [3]), {"named": 5}), ((), {"named": 6, "kind": 2}), ((1,), {"many": [1]})],
)
def test_made_as_dataclasses_makes_it(arguments: tuple[object, ...], named: dict[str, object]) -> None:
    plain, made = Plain(*arguments, **named), Quick(*arguments, **named)  # type: ignore[arg-type]
    assert type(made) is Quick
    assert [getattr(made, each.name) for each in fields(made)] == [getattr(plain, each.name) for each in fields(plain)]


@pytest.mark.parametrize(("arguments", "named"), [((), {}), ((1, "b", [], 4), {}), ((1,), {"third": 3})])
def test_refused_as_dataclasses_refuses_it(arguments: tuple[object, ...], named: dict[str, object]) -> None:
    for kind in (Plain, Quick):
        with pytest.raises(TypeError, match=rf"{kind.__name__}.__init__\(\)"):
            kind(*arguments, **named)  # type: ignore[arg-type]


def test_what_is_made_of_a_factory_is_its_own() -> None:
    assert Quick(1).many is not Quick(1).many


def test_frozen_once_it_is_made() -> None:
    for each in (Quick(1), evolve(Quick(1), {"kind": 2})):
        with pytest.raises(FrozenInstanceError):
            each.kind = 3  # type: ignore[misc]


def test_evolved_as_replaced() -> None:
    value = Quick(1, "b", [3], named=5)
    assert evolve(value, {"second": "c", "named": 7}) == replace(value, second="c", named=7)
    assert value == Quick(1, "b", [3], named=5)
    assert type(evolve(value, {})) is Quick


def test_no_field_of_that_name() -> None:
    with pytest.raises(TypeError, match="Quick has no field third"):
        evolve(Quick(1), {"third": 3})


def test_goes_to_another_process_and_is_hashed_like_any() -> None:
    value = Quick(1, named=5)
    assert pickle.loads(pickle.dumps(value)) == value
    assert list(signature(Quick).parameters) == list(signature(Plain).parameters)
