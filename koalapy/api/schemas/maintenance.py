"""The answers about maintenance."""

from typing import Literal

from pydantic import Field

from koalapy.api.schemas.answer import INSTANT, Answer


class MaintenanceRun(Answer):
    """One run of a task."""

    name: str
    task: str
    began_at: str = Field(pattern=INSTANT)
    ended_at: str | None = Field(pattern=INSTANT, description="null while it runs, and if koalad ended during the run")
    well: bool = Field(description="true: nothing needs to be done")
    message: str = Field(description="sentences")


class MaintenanceTask(Answer):
    """One entry of the grid file."""

    name: str
    task: str
    cron: str
    next_at: str | None = Field(pattern=INSTANT)
    last: MaintenanceRun | None


class MaintenanceAnswer(Answer):
    schema_: Literal["koala.maintenance/1"] = Field(alias="schema")
    tasks: list[MaintenanceTask]


class MaintenanceRunAnswer(Answer):
    schema_: Literal["koala.maintenance-run/1"] = Field(alias="schema")
    dry_run: bool
    run: MaintenanceRun
