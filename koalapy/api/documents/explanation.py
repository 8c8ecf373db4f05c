"""Why a job is where it is, as JSON."""

from collections.abc import Iterable

from koalapy.api.documents.document import Document
from koalapy.api.documents.reasons import reason
from koalapy.model.job import History
from koalapy.views.explanation import Explanation, summary


def explanation(found: Explanation, history: Iterable[History] = ()) -> Document:
    """Why the job is where it is: a sentence of its own, and what each cluster lacks for each component.

    Of one that is over, what of its files was left out, as its history has it.
    """
    job, lacks = found.job, found.lacks
    return {
        "schema": "koala.explain/1",
        "id": job.id,
        "state": str(job.state),
        "summary": summary(found),
        "notes": [note for line in history for note in line.details.get("notes", ())],
        "reason": reason(job.reason) if job.reason else None,
        "lacks": [{"component": each.component, "cluster": each.cluster, **reason(each.reason)} for each in lacks],
        "no_more_nodes": [{"cluster": cluster, "why": why} for cluster, why in found.no_more.items()],
    }
