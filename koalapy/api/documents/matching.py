"""Clusters' ads, and matched jobs, as JSON."""

from collections.abc import Iterable, Mapping, Sequence

from koalapy import answers
from koalapy.api.documents.errors import reason
from koalapy.model.job import Choice
from koalapy.model.matching import ClusterAd
from koalapy.model.request import Request
from koalapy.model.textfile.classad import attributes_read
from koalapy.views.matching import MatchedComponent


def ads(found: Iterable[ClusterAd]) -> answers.AdsAnswer:
    """Answer with the ads of clusters."""
    return {"schema": "koala.ads/1", "ads": [_ad(each) for each in found]}


def _ad(found: ClusterAd) -> answers.ClusterAd:
    attributes = {name: list(value) if isinstance(value, tuple) else value for name, value in found.attributes}
    return {"cluster": found.cluster, "attributes": attributes}


def matched(request: Request, found: Iterable[MatchedComponent], clusters: Sequence[ClusterAd]) -> answers.MatchAnswer:
    """Answer with what suits each component of a request. `clusters`: the ads that they were compared with."""
    named = {each.cluster: {name.casefold() for name, _ in each.attributes} for each in clusters}
    return {
        "schema": "koala.match/1",
        "name": request.name,
        "components": [
            {
                "index": each.index,
                "processors": each.request.processors,
                "requirements": each.request.requirements or None,
                "rank": each.request.rank or None,
                "choices": [choice(one, each.free) for one in each.choices],
                "others": [
                    {
                        "cluster": one.cluster,
                        "reason": reason(one.reason),
                        "missing": [
                            name
                            for name in attributes_read(each.request.requirements)
                            if name.casefold() not in named.get(one.cluster, ())
                        ],
                    }
                    for one in each.others
                ],
            }
            for each in found
        ],
    }


def choice(found: Choice, free: Mapping[str, int] | None = None) -> answers.Choice:
    """Describe a choice. `free`: what the job could have on each cluster."""
    clusters: list[answers.ChosenCluster] = [
        {"cluster": cluster, "processors": processors, "free": None if free is None else free[cluster]}
        for cluster, processors in found.clusters
    ]
    return {"clusters": clusters, "rank": found.rank, "refused": reason(found.refused) if found.refused else None}
