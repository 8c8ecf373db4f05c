"""The answers of the API as its description has them. `documents` builds them; a test holds the two together."""

from typing import Any

from pydantic import BaseModel

from koalapy.api.schemas.clusters import ClustersAnswer
from koalapy.api.schemas.disk import DiskAnswer
from koalapy.api.schemas.explanation import ExplainAnswer
from koalapy.api.schemas.jobs import (
    ChangedAnswer,
    CheckAnswer,
    FetchAnswer,
    Job,
    JobAnswer,
    JobsAnswer,
    SubmitAnswer,
    SubmitsAnswer,
)
from koalapy.api.schemas.journal import JournalAnswer
from koalapy.api.schemas.logins import LoginAnswer, LoginsAnswer
from koalapy.api.schemas.maintenance import MaintenanceAnswer, MaintenanceRunAnswer
from koalapy.api.schemas.reasons import ErrorAnswer
from koalapy.api.schemas.status import DownAnswer, StatusAnswer
from koalapy.api.schemas.sweeps import ResultsAnswer, RunnersAnswer
from koalapy.api.schemas.unknown import CleanAnswer, UnknownAnswer
from koalapy.api.schemas.unreadable import UnreadableAnswer
from koalapy.api.schemas.usage import UsageAnswer

__all__ = [
    "ANSWERS",
    "ChangedAnswer",
    "CheckAnswer",
    "CleanAnswer",
    "ClustersAnswer",
    "DiskAnswer",
    "DownAnswer",
    "ErrorAnswer",
    "ExplainAnswer",
    "FetchAnswer",
    "Job",
    "JobAnswer",
    "JobsAnswer",
    "JournalAnswer",
    "LoginAnswer",
    "LoginsAnswer",
    "MaintenanceAnswer",
    "MaintenanceRunAnswer",
    "ResultsAnswer",
    "RunnersAnswer",
    "StatusAnswer",
    "SubmitAnswer",
    "SubmitsAnswer",
    "UnknownAnswer",
    "UnreadableAnswer",
    "UsageAnswer",
    "check",
]

ANSWERS: dict[str, type[BaseModel]] = {
    model.model_fields["schema_"].annotation.__args__[0]: model  # type: ignore[union-attr]
    for model in (
        ErrorAnswer, JobAnswer, JobsAnswer, SubmitAnswer, ClustersAnswer, StatusAnswer, UnknownAnswer, CleanAnswer,
        ExplainAnswer, DownAnswer, FetchAnswer, LoginAnswer, LoginsAnswer, SubmitsAnswer, ChangedAnswer,
        RunnersAnswer, ResultsAnswer, UnreadableAnswer, DiskAnswer, UsageAnswer, MaintenanceAnswer,
        MaintenanceRunAnswer, JournalAnswer,
    )
}  # fmt: skip


def check(document: dict[str, Any]) -> None:
    """Raises ValidationError for a document that is not as its schema has it."""
    ANSWERS[document["schema"]].model_validate(document)
