"""The JSON Schema of the job file, by a validator of its own: it takes what koalapy reads, and not what it refuses."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from job_languages import read_native as read

import koalapy
from koalapy.config import json_schema as grid_schema
from koalapy.languages.flow import json_schema as flow_schema
from koalapy.languages.reading import json_schema
from koalapy.model.errors import RequestError

EXAMPLES = sorted((Path(koalapy.__file__).parent.parent / "configs" / "examples").glob("**/*.yaml"))
COMPONENT = "components: [{processors: 4, executable: hostname}]\n"
IN_COMPONENT = "components: [{processors: 4, executable: hostname, %s}]\n"


def mistakes(document: object) -> list[str]:
    schema = flow_schema() if isinstance(document, dict) and "jobs" in document else json_schema()
    return [each.message for each in validator(schema).iter_errors(document)]


def validator(schema: Any) -> Any:
    return jsonschema.Draft202012Validator(json.loads(json.dumps(schema)))


@pytest.mark.parametrize("schema", [json_schema(), grid_schema()], ids=["job", "grid"])
def test_it_is_a_schema_whose_defaults_are_as_a_file_has_them(schema: Any) -> None:
    plain = json.loads(json.dumps(schema))
    jsonschema.Draft202012Validator.check_schema(plain)
    found = list(defaults(plain))
    assert len(found) > 10
    for field, default in found:
        validator({**field, "$defs": plain["$defs"]}).validate(default)


def defaults(node: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    """Each property that has a default, wherever it is."""
    if isinstance(node, dict):
        for field in node.get("properties", {}).values():
            if "default" in field:
                yield field, field["default"]
        for inner in node.values():
            yield from defaults(inner)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_shipped_examples_are_valid(path: Path) -> None:
    document = yaml.safe_load(path.read_text())
    assert mistakes(document) == []
    assert mistakes({**document, "colour": "red"})
    for job in document.get("jobs", [document]):
        for component in job["components"]:
            component["processors"] = 0
    assert mistakes(document)


@pytest.mark.parametrize(
    "text",
    [
        COMPONENT + "name: hello\nlabels: {project: x, run/1: 7}\npriority: 0\nretry_on: [exit]\nstage_out: [a]\n",
        COMPONENT + "stage_out: [{path: a, to: b}, c]\nstage_in: [d]\nwhen_busy: queue\nkeep_output: home\nkoala: 1\n",
        COMPONENT + "parameters: {x: '1:3', y: [a, 2], z: {range: '1:9', except: [3]}, f: '@list'}\ncombine: zip\n",
        IN_COMPONENT % "walltime: 90s, memory_per_processor: 2G, environment: {A: 1}, launch: once, exclusive: true",
        IN_COMPONENT % "arguments: [a, 1, true], native: [--x], queue: long, account: 12, gpus: 1, optional: false",
    ],
)
def test_what_koalapy_reads_is_valid(text: str) -> None:
    assert mistakes(yaml.safe_load(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name: nothing runs\n",
        "components: []\n",
        "components: [{processors: 4}]\n",
        "components: [{executable: hostname}]\n",
        "components: {processors: 4, executable: hostname}\n",
        "components: [{processors: many, executable: hostname}]\n",
        "components: [{processors: 4, executable: ''}]\n",
        IN_COMPONENT % "walltime: soon",
        IN_COMPONENT % "memory_per_processor: much",
        IN_COMPONENT % "launch: twice",
        IN_COMPONENT % "gpus: -1",
        IN_COMPONENT % "wall_time: 1h",
        IN_COMPONENT % "arguments: --flag",
        IN_COMPONENT % "environment: {1A: x}",
        IN_COMPONENT % "environment: {KOALA_RANK: 1}",
        IN_COMPONENT % "queue: -p long",
        IN_COMPONENT % "reservation: course",
        COMPONENT + "koala: 2\n",
        COMPONENT + "priority: 21\n",
        COMPONENT + "when_busy: fail\n",
        COMPONENT + "retry_on: [always]\n",
        COMPONENT + "labels: {-x: y}\n",
        COMPONENT + "labels: {x: ''}\n",
        COMPONENT + "stage_out: [{to: b}]\n",
        COMPONENT + "stage_out: [{path: a, mode: 7}]\n",
        COMPONENT + "parameters: {x-y: '1:3'}\n",
        COMPONENT + "parameters: {x: {range: '1:3', without: [2]}}\n",
        COMPONENT + "combine: often\nparameters: {x: '1:3'}\n",
        COMPONENT + "scheduling: {}\n",
    ],
)
def test_what_koalapy_refuses_is_not_valid(text: str) -> None:
    with pytest.raises(RequestError):
        read(text, "job.yaml", "/")
    assert mistakes(yaml.safe_load(text)), text


def test_the_command_prints_either() -> None:
    assert printed("--job") == json.loads(json.dumps(json_schema()))
    assert printed() == json.loads(json.dumps(grid_schema()))


def printed(*options: str) -> Any:
    command = [sys.executable, "-m", "koalapy.cli.main", "config", "schema", *options]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
