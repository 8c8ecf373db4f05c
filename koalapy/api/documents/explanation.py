"""Why a job is where it is, as JSON."""

from koalapy.api.documents.document import Document
from koalapy.api.documents.reasons import reason
from koalapy.api.explaining import summary
from koalapy.runtime.explanation import Explanation


def explanation(found: Explanation) -> Document:
    """Why the job is where it is: a sentence of its own, and what each cluster lacks for each component."""
    job, lacks = found.job, found.lacks
    return {
        "schema": "koala.explain/1",
        "id": job.id,
        "state": str(job.state),
        "summary": summary(found),
        "reason": reason(job.reason) if job.reason else None,
        "lacks": [{"component": each.component, "cluster": each.cluster, **reason(each.reason)} for each in lacks],
        "no_more_nodes": [{"cluster": cluster, "why": why} for cluster, why in found.no_more.items()],
    }
