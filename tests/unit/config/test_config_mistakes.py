"""Mistakes in a grid file: each is refused with file, line, key and advice, and so is whatever garbage comes."""

import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from koalapy.config import SWEEP_POLICIES, GridFile, json_schema, read_grid
from koalapy.model.errors import Reason, RequestError
from koalapy.model.textfile import MAX_BYTES, document

BATCH = ("slurm", "sge", "pbs", "local")
PIN = "'sha256:" + "a" * 64 + "'"
SMALL = """\
grid: small
clusters:
  here:
    batch: local
    connect: "local:"
"""


def read(text: str | bytes, **policies: Any) -> GridFile:
    return read_grid(text, "grid.yaml", BATCH, **policies)


def refused(text: str | bytes, **policies: Any) -> Reason:
    with pytest.raises(RequestError) as caught:
        read(text, **policies)
    return caught.value.reason


def in_cluster(line: str) -> str:
    return f"{SMALL}    {line}\n"


def test_a_password_is_not_repeated() -> None:
    reason = refused(SMALL.replace("local:", "ssh://me:secret@host"))
    assert reason.code == "bad_connection"
    assert "password" in reason.message
    assert "secret" not in f"{reason}"
    assert "secret" not in f"{refused(SMALL + 'store: mysql://me:secret@db/x')}"


BAD_FILES = [
    pytest.param(b"", "empty_file", "is empty", id="empty"),
    pytest.param("# nothing\n", "empty_file", "is empty", id="comments only"),
    pytest.param(b"\x7fELF\x00\x01", "not_text", "binary", id="binary"),
    pytest.param(b"grid: \xff\xfe", "not_text", "UTF-8", id="not UTF-8"),
    pytest.param("grid: \ud800", "not_text", "UTF-8", id="lone surrogate"),
    pytest.param("grid: a\x07", "syntax", "grid.yaml:1:8: a control character", id="control character"),
    pytest.param("#" * (MAX_BYTES + 1), "too_large", "10,000,001 bytes", id="huge"),
    pytest.param("just text", "not_a_mapping", "grid.yaml:1:1: ", id="text"),
    pytest.param("- a\n- b\n", "not_a_mapping", "a list", id="list"),
    pytest.param("grid: a\n\tclusters: {}", "syntax", "grid.yaml:2:1: a tab", id="tab"),
    pytest.param("grid: a\nstore: b: c", "syntax", "grid.yaml:2:9: a second `: `", id="two colons"),
    pytest.param("grid: a\n  store: b", "syntax", "grid.yaml:2:8: this line runs on", id="indentation"),
    pytest.param("grid: 'a\n", "syntax", "grid.yaml:1:7: a quote is opened and never closed", id="open quote"),
    pytest.param("grid: [a\n", "syntax", "a list that was opened", id="open list"),
    pytest.param("grid: {a: 1\n", "syntax", "a mapping that was opened", id="open mapping"),
    pytest.param("grid: @a\n", "syntax", "a value cannot begin like this", id="at sign"),
    pytest.param('grid: "\\q"\n', "syntax", "no known escape", id="escape"),
    pytest.param('grid: "\\UFFFFFFFF"\n', "syntax", "no known escape", id="impossible character"),
    pytest.param(
        "grid: a\ngrid: b\n", "duplicate_key", "grid.yaml:2:1: grid stands here a second time, after line 1", id="twice"
    ),
    pytest.param(in_cluster("batch: sge"), "duplicate_key", "grid.yaml:6:5: clusters.here.batch", id="twice, inside"),
    pytest.param("grid: &a x\nstore: *a\n", "alias", "grid.yaml:2:8: *a is an alias", id="alias"),
    pytest.param("grid: !!python/object/apply:os.system [x]", "tag", "grid.yaml:1:7: ", id="tag"),
    pytest.param("grid: a\n---\ngrid: b\n", "two_documents", "grid.yaml:2:1: ", id="two documents"),
    pytest.param("? [a]\n: b\n", "bad_key", "grid.yaml:1:3: ", id="list as key"),
    pytest.param("~: b\n", "bad_key", "grid.yaml:1:1: ", id="no key"),
    pytest.param("a: " + "[" * 1000, "too_deep", "grid.yaml:1:", id="deep"),
    pytest.param("a: [" + "1," * 300_000 + "]", "too_large", "grid.yaml:1:", id="many values"),
    pytest.param("%YAML 9.9\n---\na: 1\n", "syntax", "grid.yaml:1", id="another YAML"),
]


@pytest.mark.parametrize(("text", "code", "words"), BAD_FILES)
def test_bad_files(text: str | bytes, code: str, words: str) -> None:
    reason = refused(text)
    assert reason.code == code
    assert words in reason.message
    assert not re.match(r"grid\.yaml:\d+: ", reason.message), "no column"
    assert reason.message.endswith(".")
    assert reason.advice.endswith((".", "?"))
    assert reason.whose == "request"


def test_an_alias_bomb_is_refused_before_it_grows() -> None:
    bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert refused(bomb).code == "alias"


BAD_VALUES = [
    pytest.param(SMALL + "koala: 2\n", "grid.yaml:6:1: koala is 2", "koala: 1", id="other version"),
    pytest.param(
        SMALL + "schedulign: {}\n",
        "grid.yaml:6:1: schedulign is not a known",
        "Did you mean scheduling?",
        id="top",
    ),
    pytest.param(SMALL + "scheduling: {qeue: fcfs}\n", "scheduling.qeue is not", "Did you mean queue?", id="section"),
    pytest.param(
        in_cluster("conect: x"), "grid.yaml:6:5: clusters.here.conect is not", "Did you mean connect?", id="cluster"
    ),
    pytest.param(
        in_cluster("zzz: x"), "clusters.here.zzz is not a known key", "Write one of batch, connect", id="no such"
    ),
    pytest.param(SMALL + "site: {name: a, share: 4}\n", "grid.yaml:6:17: site.share is not a known key", "", id="site"),
    pytest.param(
        SMALL + "site: {name: a, lend: {to: [b], processors: 4, isolation: chroot}}\n",
        "grid.yaml:6:48: site.lend.isolation is 'chroot'",
        "Write none, auto, bwrap or unshare",
        id="lend by an unknown isolation",
    ),
    pytest.param(
        SMALL + 'site: {name: a, lend: {to: [b], processors: 4, hours: "nights"}}\n',
        "grid.yaml:6:48: site.lend.hours.0 has 1 field, not cron's five",
        "20-23,0-7",
        id="lend at hours that are none",
    ),
    pytest.param(
        SMALL + 'site: {name: a, lend: {to: [b], processors: 4, hours: ["* 7 * * *", "* * 31 2 *"]}}\n',
        "grid.yaml:6:48: site.lend.hours has '* * 31 2 *', which no month has",
        "Write a day that its months have.",
        id="lend on a day that never comes",
    ),
    pytest.param(
        SMALL + "site: {name: a, lend: {to: [b], processors: 4, isolation: none, clusters: [delft]}}\n",
        "grid.yaml:6:65: site.lend.clusters names delft, which is not a cluster of this file",
        "Name one of it.",
        id="lend of another cluster",
    ),
    pytest.param(
        SMALL + "site: {name: a, borrow: {networks: {b: infiniband}}}\n",
        "grid.yaml:6:37: site.borrow.networks.b is infiniband, a network that no cluster of this file is in",
        "Name the `network` of those clusters whose nodes its nodes reach.",
        id="borrow in no network",
    ),
    pytest.param(
        SMALL + "site: {name: pilot}\n",
        "grid.yaml:6:8: site.name is what clusters of pilots are called",
        "Choose another",
        id="site named pilot",
    ),
    pytest.param(
        SMALL + f"site: {{name: a, neighbours: {{b: {{relation: boss, pin: {PIN}}}}}}}\n",
        "grid.yaml:6:34: site.neighbours.b.relation is 'boss'",
        "Write parent, child or sibling.",
        id="relation",
    ),
    pytest.param(
        SMALL + f"site: {{name: a, neighbours: {{b: {{relation: child, pin: {PIN}}}}}}}\n",
        "grid.yaml:6:30: site.neighbours.b has no url, and this site has no listen",
        "Give one of the two.",
        id="nobody dials",
    ),
    pytest.param(
        SMALL + f"site: {{name: a, listen: 'x:1', neighbours: {{a: {{relation: child, pin: {PIN}}}}}}}\n",
        "grid.yaml:6:45: site.neighbours.a is this site's own name",
        "no neighbour of its own",
        id="own name",
    ),
    pytest.param(
        SMALL
        + f"site: {{name: a, listen: 'x:1', neighbours: {{b: {{relation: child, pin: {PIN}}}, "
        + f"c: {{relation: child, pin: {PIN}}}}}}}\n",
        "grid.yaml:6:168: site.neighbours.c.pin has the pin of b",
        "a key of its own",
        id="same pin",
    ),
    pytest.param(
        SMALL + "site: {name: a, neighbours: {b: {relation: child, pin: 'sha256:12'}}}\n",
        "grid.yaml:6:51: site.neighbours.b.pin is 'sha256:12', no pin",
        "64 hexadecimal digits",
        id="pin",
    ),
    pytest.param(
        SMALL + f"site: {{name: a, neighbours: {{b: {{relation: child, url: 'http://b:1', pin: {PIN}}}}}}}\n",
        "grid.yaml:6:51: site.neighbours.b.url is 'http://b:1', no address of a site",
        "https://",
        id="url",
    ),
    pytest.param(
        SMALL + "site: {name: a, listen: 7443}\n",
        "grid.yaml:6:17: site.listen is '7443', no address to listen on",
        "0.0.0.0:7443",
        id="listen",
    ),
    pytest.param(
        SMALL + "maintenance: [{task: backup, cron: '0 3 * * * * *', to: /b}]\n",
        "grid.yaml:6:30: maintenance.0.cron has 7 fields, not cron's five",
        "Write minute, hour",
        id="seven cron fields",
    ),
    pytest.param(
        SMALL + "maintenance: [{task: vacuum, cron: '0 3 30 2 *'}]\n", "a day that never comes", "", id="30 February"
    ),
    pytest.param(
        SMALL + "maintenance: [{task: prune-history, cron: '0 3 * * *'}]\n", "lacks `keep`", "keep:", id="no keep"
    ),
    pytest.param(
        SMALL + "maintenance: [{task: prune-output, cron: '0 3 * * *', keep: 30}]\n",
        "without a unit",
        "30d",
        id="keep 30",
    ),
    pytest.param(
        SMALL + "maintenance: [{task: backup, cron: '0 3 * * *', to: /b, keep: 3d}]\n",
        "where backups are counted",
        "such as 7",
        id="backups for days",
    ),
    pytest.param(
        SMALL + "maintenance: [{task: backup, cron: '0 3 * * *', to: b}]\n", "no absolute path", "~/", id="relative to"
    ),
    pytest.param(
        SMALL + "maintenance: [{task: vacuum, cron: '0 3 * * *', file: /a}]\n", "does not know", "Remove", id="option"
    ),
    pytest.param(
        SMALL + "maintenance: [{task: vacuum, cron: '0 3 * * *'}, {task: vacuum, cron: '0 4 * * *'}]\n",
        "is called vacuum, as another entry is",
        "name",
        id="two of a name",
    ),
    pytest.param(SMALL.replace("grid: small", "x"), "grid.yaml:", "", id="no colon"),
    pytest.param(SMALL.replace("grid: small\n", ""), "grid.yaml:1:1: grid is missing", "Add", id="no name"),
    pytest.param("grid: a\n", "clusters is missing", "Add", id="no clusters"),
    pytest.param("grid: a\nclusters: {}\n", "grid.yaml:2:1: clusters names no cluster", "at least one", id="none"),
    pytest.param("grid: a\nclusters: [a]\n", "clusters is a list", "key: value", id="clusters as list"),
    pytest.param("grid: a\nclusters:\n  b:\n", "grid.yaml:3:3: clusters.b is nothing", "key: value", id="empty"),
    pytest.param(SMALL.replace("small", "a/b"), "grid is 'a/b', which is not a valid name", "letters", id="bad name"),
    pytest.param(SMALL.replace("small", "x" * 33), "a name of 33 characters", "32", id="long name"),
    pytest.param(
        SMALL.replace("here", "-x"), "clusters.-x is '-x', which is not a valid name", "letters", id="bad cluster"
    ),
    pytest.param(
        SMALL.replace("batch: local", "batch: slrum"), "'slrum', no batch system", "Did you mean slurm?", id="batch"
    ),
    pytest.param(SMALL + "claim: 2m\n", "grid.yaml:6:1: claim is '2m'", "key: value", id="section as value"),
    pytest.param(SMALL + "claim: {timeout: 120}\n", "claim.timeout is '120', not a duration", "90s", id="no unit"),
    pytest.param(SMALL + "claim: {timeout: 0s}\n", "claim.timeout is 0s, shorter", "longer", id="no time"),
    pytest.param(SMALL + "claim: {timeout: -5s}\n", "claim.timeout is '-5s', not", "90s", id="negative time"),
    pytest.param(SMALL + "queue_after: 99999d\n", "longer than 3650d", "shorter", id="absurd time"),
    pytest.param(SMALL + f"queue_after: {'9' * 400}d\n", "not a duration", "90s", id="endless time"),
    pytest.param(SMALL + "retries: {submission: 41}\n", "is 41, more than 40", "40 or less", id="retries"),
    pytest.param(
        SMALL + "store: mysql://x\n", "store begins with 'mysql', which is not a supported", "sqlite", id="store"
    ),
    pytest.param(SMALL + "scavenging: {walltime: 5s}\n", "scavenging.walltime is 5s, shorter", "longer", id="launcher"),
    pytest.param(SMALL + "scavenging: {max_runners: 0}\n", "is 0, less than 1", "1 or more", id="no runners"),
    pytest.param(
        in_cluster("scavenge: {idle_share: 1.5}"), "'1.5', which is not between 0 and 1", "25%", id="large share"
    ),
    pytest.param(in_cluster("scavenge: {idle_share: most}"), "'most', which is not a share", "0.25", id="no share"),
    pytest.param(in_cluster("scavenge: {hours: nights}"), "has 1 field, not cron's five", "20-23,0-7", id="hours"),
    pytest.param(in_cluster('scavenge: {hours: "* 20-7 * * *"}'), "ends before it begins", "20-23,0-7", id="night"),
    pytest.param(in_cluster("scavenge: {floor: 1ms}"), "scavenge.floor is 0.001s, shorter", "longer", id="floor"),
    pytest.param(in_cluster("slots: 0"), "slots is 0, less than 1", "1 or more", id="no slots"),
    pytest.param(in_cluster("slots: -1"), "slots is -1, less than 1", "1 or more", id="negative slots"),
    pytest.param(in_cluster("slots: 1000001"), "more than 1000000", "or less", id="many slots"),
    pytest.param(in_cluster(f"slots: {'9' * 5000}"), "slots is absurdly large", "Write a number", id="absurd slots"),
    pytest.param(in_cluster("slots: four"), "'four', not a whole number", "decimal digits", id="word"),
    pytest.param(in_cluster("slots: 1.5"), "'1.5', not a whole number", "decimal digits", id="fraction"),
    pytest.param(in_cluster("slots: true"), "'true', not a whole number", "decimal digits", id="flag as number"),
    pytest.param(in_cluster("slots: '4'"), "'4', not a whole number", "Remove the quotes.", id="quoted number"),
    pytest.param(in_cluster("slots: [4]"), "a list, not a whole number", "decimal digits", id="list as number"),
    pytest.param(in_cluster("exclusive: 2"), "'2', not a truth value", "true or false", id="number as flag"),
    pytest.param(in_cluster("setup: module load x"), "where a list belongs", "[module load x]", id="no list"),
    pytest.param(in_cluster("setup: {a: b}"), "a mapping where a list belongs", "brackets", id="mapping as list"),
    pytest.param(in_cluster('setup: ["a\\nb"]'), "setup.0 holds a line break", "one line", id="two lines"),
    pytest.param(in_cluster('setup: ["a\\0b"]'), "setup.0 holds a NUL", "Remove it", id="NUL"),
    pytest.param(in_cluster("queue: [a]"), "queue is a list where text belongs", "Write text", id="list as text"),
    pytest.param(in_cluster("queue: --uid=0"), "which is not a valid name", "dash", id="option in disguise"),
    pytest.param(in_cluster("queue: a b"), "which is not a valid name", "spaces", id="space in queue"),
    pytest.param(
        in_cluster("relay_network: 10.1.0.1/16"), "no network in CIDR notation", "10.1.0.0/16", id="host bits"
    ),
    pytest.param(in_cluster("relay_network: []"), "names no network", "remove the key", id="no relay network"),
    pytest.param(
        in_cluster("relay_network: 10.1.0.0/16\n    relay: files"),
        "for relay: tcp only",
        "Remove it",
        id="relay network",
    ),
    pytest.param(in_cluster("relay: udp"), "relay is 'udp'", "tcp or files", id="relay"),
    pytest.param(in_cluster("poll: 1ms"), "poll is 0.001s, shorter than 0.1s", "longer", id="poll"),
    pytest.param(
        in_cluster("max_age: 10s"), "grid.yaml:6:5: clusters.here.max_age is no longer than poll", "poll", id="age"
    ),
    pytest.param(in_cluster("drmaa: maybe"), "drmaa is 'maybe'", "auto", id="drmaa"),
    pytest.param(in_cluster("shared: koala"), "no absolute path", "from /", id="relative shared"),
    pytest.param(in_cluster("shared: /"), "no absolute path", "from /", id="root as shared"),
    pytest.param(in_cluster("python: bin/python3"), "a relative path", "absolute", id="relative python"),
    pytest.param(
        in_cluster("identity: ~/.ssh/id"), "identity is for ssh:// only, not for local:", "Remove", id="identity"
    ),
    pytest.param(in_cluster("power_up: false"), "does not apply to batch: local", "Remove", id="no power there"),
    pytest.param(in_cluster("parallel_environment: mpi"), "does not apply to batch: local", "Remove", id="no PE there"),
    pytest.param(
        in_cluster("scavenge: {parallel_environment: a}"), "does not apply to batch", "Remove", id="nor there"
    ),
    pytest.param(in_cluster("connect2: x").replace("local:", "ssh://h"), "connect2 is not", "connect?", id="connect2"),
    pytest.param(
        SMALL.replace('"local:"', '[ssh://a, "local:"]'),
        "connect lists a connection that is not ssh://",
        "ssh:// connections only",
        id="mixed",
    ),
    pytest.param(
        SMALL.replace('"local:"', "[ssh://a, ssh://a]"), "connect names one head node twice", "once", id="same heads"
    ),
    pytest.param(SMALL.replace('"local:"', "[]"), "connect names no head node", "Write one", id="no heads"),
    pytest.param(
        SMALL.replace('"local:"', "telnet://x"),
        "connect is not a connection (telnet://x)",
        "Write ssh://",
        id="connect",
    ),
    pytest.param(
        SMALL + '  HERE: {batch: local, connect: "local:"}\n',
        "clusters.HERE differs from here in its capitals",
        "Rename",
        id="capitals",
    ),
    pytest.param(
        SMALL + '  b: {batch: local, connect: "local:"}\n',
        "clusters.b lies where here has",
        "~/.koala/b",
        id="one directory",
    ),
    pytest.param(
        SMALL.replace('"local:"', '"pilot:7"'), "connect is not a connection (pilot:7)", "Write ssh://", id="a pilot"
    ),
    pytest.param(
        SMALL + "pilots: {there: {size: 2}}\n", "pilots.there is not a cluster", "Name one", id="pilots of no cluster"
    ),
    pytest.param(
        SMALL + "pilots: {here: {size: 2, least: 3, most: 2}}\n", "pilots.here.least is more", "smaller", id="least"
    ),
    pytest.param(
        SMALL + "pilots: {here: {size: 3, nodes: 2}}\n", "pilots.here.nodes does not divide 3", "divisor", id="nodes"
    ),
]


@pytest.mark.parametrize(("text", "words", "advice"), BAD_VALUES)
def test_bad_values(text: str, words: str, advice: str) -> None:
    reason = refused(text)
    assert re.match(r"grid\.yaml:\d+:\d+: ", reason.message)
    assert words in reason.message
    assert advice in reason.advice
    assert "\n" not in reason.message


def test_policies_are_checked_where_they_are_known() -> None:
    text = SMALL + "scheduling: {queue: fcsf, placement: mine}\n"
    assert read(text).scheduling.queue == "fcsf"
    assert "Did you mean fcfs?" in refused(text, queueing=["fcfs", "fpfs"]).advice
    assert "no placement policy" in refused(text, placement=["worst-fit"]).message


@pytest.mark.parametrize("key", ["policy", "idleness", "admission", "reclaim", "order"])
def test_policies_of_sweeps_are_those_that_are_registered(key: str) -> None:
    registered: Any = {group: ["newest-first", "equipartition-all"] for group in SWEEP_POLICIES}
    reason = refused(SMALL + f"scavenging: {{{key}: newest-frist}}\n", policies=registered)
    assert f"scavenging.{key} is 'newest-frist', no" in reason.message
    assert "Did you mean newest-first?" in reason.advice


def test_several_mistakes_are_reported_in_the_order_of_their_lines() -> None:
    lines = [f"k{number}: 1" for number in range(23)]
    reason = refused(in_cluster("\n    ".join(lines)))
    reported = reason.message.split("\n")
    assert reported[0] == "grid.yaml has 23 mistakes:"
    found = [re.match(r"  grid.yaml:(\d+):", line)[1] for line in reported[1:21]]  # type: ignore[index]
    assert found == [str(line) for line in range(6, 26)]
    assert reported[21:] == ["  and 3 more."]


def test_all_mistakes_of_a_short_file_are_reported() -> None:
    reported = refused(in_cluster("\n    ".join(f"k{number}: 1" for number in range(7)))).message.split("\n")
    assert len(reported) == 1 + 7
    assert "more." not in reported[-1]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("maintenance: {task: backup, cron: '0 3 * * *', to: /b, keep: 7}\n", "`- {task: …, cron: …, to: …}`"),
        ("maintenance: {backup: {cron: '0 3 * * *', to: /b}}\n", "`- {cron: …, to: …}`"),
        ("maintenance: {}\n", "Write it in brackets: [a, b]."),
    ],
    ids=["one entry", "entries by name", "empty"],
)
def test_entries_that_are_no_list_are_to_begin_with_a_dash(text: str, advice: str) -> None:
    reason = refused(SMALL + text)
    assert "maintenance is a mapping where a list belongs" in reason.message
    assert advice in reason.advice


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm() -> None:
    assert read(b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode()) == read(SMALL)
    assert refused(in_cluster("slots: 0").replace("\n", "\r\n")).message.startswith("grid.yaml:6:5: ")


def test_what_a_terminal_would_obey_is_not_repeated() -> None:
    reason = refused('grid: "\\e[31m' + "x" * 500 + '"\nclusters: {}\n')
    assert all(character.isprintable() or character == "\n" for character in reason.message)
    assert len(reason.message) < 400


words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=12)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | words
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3))
cluster_keys = st.sampled_from(sorted(json_schema()["$defs"]["Cluster"]["properties"]))


def reported_or_read(text: str | bytes) -> None:
    """Nothing but RequestError, in words that name the file and can be printed."""
    try:
        read(text)
    except RequestError as error:
        reason = error.reason
        assert reason.message.startswith("grid.yaml")
        assert reason.advice
        assert str(reason).encode()
        assert all(line.isprintable() for line in reason.message.split("\n"))


@given(st.binary(max_size=300))
def test_garbage_bytes_are_refused(data: bytes) -> None:
    reported_or_read(data)


@given(st.text(max_size=100) | st.text("ab:-?[]{}&*!|>'\"%@`#,\\ \t\n0~.<", max_size=60))
def test_garbage_text_is_refused(text: str) -> None:
    reported_or_read(text)


@given(st.dictionaries(cluster_keys | words, values, max_size=4), st.dictionaries(words, values, max_size=2))
@settings(max_examples=150)
def test_garbage_values_are_refused(cluster: dict[str, Any], top: dict[str, Any]) -> None:
    reported_or_read(
        yaml.safe_dump({"grid": "a", "clusters": {"x": {"batch": "local", "connect": "local:"} | cluster}} | top)
    )


def test_the_parsers_of_yaml_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PyYAML was built without libyaml, its own parser gives the same values and the same errors' lines."""
    expected = read(SMALL)
    cases = [parameter.values for parameter in BAD_FILES if len(str(parameter.values[0])) < 10_000]
    monkeypatch.setattr(document, "_Loader", yaml.SafeLoader)
    assert read(SMALL) == expected
    for text, code, _ in cases:
        assert isinstance(text, str | bytes)
        assert refused(text).code == code


@pytest.mark.parametrize("line", ["connect: local:", "connect: local: # here"])
def test_the_message_for_a_bare_local_demands_quotes(line: str) -> None:
    block = f"grid: a\nclusters:\n  b:\n    {line}\n    batch: local\n"
    for text in (block, "grid: a\nclusters: {b: {connect: local:, batch: local}}"):
        reason = refused(text)
        assert "needs quotes" in reason.message
        assert reason.advice == 'Write connect: "local:".'
