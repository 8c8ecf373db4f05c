"""The answers of a koalad to Prometheus, for tests."""

import httpx
import live
from prometheus_client.parser import text_string_to_metric_families


def metrics_of(koala: live.Koala) -> str:
    """The metrics by the Unix socket."""
    path = koala.root / "run" / "koala" / "live.sock"
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://koalad") as client:
        answer = client.get("/metrics", timeout=live.PATIENCE_S)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return answer.text


def value(text: str, name: str, **labels: str) -> float:
    """The value of the only series of that name with these labels."""
    found = [
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    (only,) = found
    return float(only)
