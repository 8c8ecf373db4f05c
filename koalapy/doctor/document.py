"""The JSON document koala.doctor/1, which holds a doctor's reports."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from koalapy.config import GridFile
from koalapy.doctor.checks import TITLES
from koalapy.doctor.findings import Finding, Report

Document = dict[str, Any]


def document(grid: GridFile, reports: Sequence[Report], complete: bool = True) -> Document:
    """Return the reports as a JSON object. `complete`: whether the examination ran without an interrupt."""
    return {
        "schema": "koala.doctor/1",
        "grid": grid.grid,
        "complete": complete,
        "ok": all(report.well for report in reports),
        "clusters": [_cluster(grid, report) for report in reports],
    }


def _cluster(grid: GridFile, report: Report) -> Document:
    described = grid.clusters[report.cluster]
    return {
        "cluster": report.cluster,
        "batch": described.batch,
        "connect": list(described.connect),
        "ok": report.well,
        "left_behind": list(report.left),
        "checks": [_check(finding) for finding in report.findings],
    }


def _check(finding: Finding) -> Document:
    return {
        "check": finding.check,
        "title": TITLES[finding.check],
        "status": str(finding.status),
        "message": finding.message,
        "took_s": round(finding.took_s, 3),
        "figures": dict(finding.figures),
        "failure": asdict(finding.failure) if finding.failure is not None else None,
    }
