"""The grid file's section on preemption: whether jobs of high priority may take the processors of running jobs."""

from typing import Annotated, Self

from pydantic import BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from koalapy.config.values import registered_word
from koalapy.model import settings
from koalapy.model.request import DEFAULT_PRIORITY, LOWEST_PRIORITY
from koalapy.model.settings import PreemptBy
from koalapy.model.textfile.fields import Between, Number, Section, Word, as_list, one_of, wrong

VACATING = "vacating"  # the group of its policies' entry points
_Priority = Annotated[Number, Between(0, LOWEST_PRIORITY)]


class Preempt(Section):
    """Which waiting jobs may take the processors of running jobs, and how."""

    model_config = ConfigDict(serialize_by_alias=True)

    how: Annotated[PreemptBy, one_of(PreemptBy)] = Field(
        default=PreemptBy.OFF,
        description="off; vacate: running jobs go back into the queue; suspend: they pause where that makes room",
    )
    highest: _Priority = Field(default=0, alias="for", description="jobs of priority 0 up to this one may preempt")
    lowest: _Priority = Field(
        default=DEFAULT_PRIORITY, alias="from", description="jobs of this priority up to 20 may be preempted"
    )
    policy: Annotated[str, registered_word(VACATING, "vacating policy"), WithJsonSchema({"type": "string"})] = Field(
        default=settings.DEFAULT_VACATING, description="which of them goes first"
    )
    users: Annotated[tuple[Word, ...], Field(strict=False), BeforeValidator(as_list)] | None = Field(
        default=None, description="whose jobs may preempt; everybody's"
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.lowest <= self.highest:
            what = f"is {self.lowest}, so jobs could preempt each other in turn"
            raise wrong(what, f"Write a number above `for`, which is {self.highest}.", at=("from",))
        return self
