"""`<coallocate>`: the XML of the multistage co-allocation service, which means the same as RSL."""

import time

import pytest
from job_languages import read_coallocate as read
from job_languages import read_rsl

from koalapy.languages import language_of
from koalapy.languages.coallocate import MOST_DEPTH
from koalapy.model.errors import Reason, RequestError
from koalapy.model.request import FOREVER, OnFailure, Request

CLUSTERS = ["hot", "cold"]
A, B = (f'<resource name="{name}"><executable>/bin/{name}</executable></resource>' for name in CLUSTERS)


def flow(text: str) -> Request:
    return read(text, "tree.xml", "/home/me", CLUSTERS)


def refused(text: str) -> Reason:
    with pytest.raises(RequestError) as caught:
        flow(text)
    return caught.value.reason


def test_resources_are_the_components_of_one_job() -> None:
    found = flow(
        '<coallocate name="climate" on_error="n">\n<resource="hot" type="compute"><executable="/bin/a"/>'
        '<arguments="europe 2003"/><count="4"/></resource>'
        "<resource><executable>/bin/b</executable><arguments>x</arguments><arguments>y</arguments></resource></coallocate>"
    )
    assert (found.name, found.retrials) == ("climate", FOREVER)
    assert [(each.cluster, each.processors) for each in found.components] == [("hot", 4), (None, 1)]
    assert [each.arguments for each in found.components] == [("europe", "2003"), ("x", "y")]


def test_it_means_the_same_as_rsl() -> None:
    xml = flow(
        f'<coallocate name="t" on_failure="stop"><coallocate name="two">{A}{B}</coallocate>'
        f'<coallocate name="in"><coallocate name="deep">{A}</coallocate>{B}</coallocate>{A}</coallocate>'
    )
    a, b = (f"(&(resourceManagerContact={name})(executable=/bin/{name}))" for name in CLUSTERS)
    same = f"*(label=t)(on_failure=stop)(+(label=two){a}{b})(*(+(label=deep){a}){b}){a}"
    text = read_rsl(same, "tree.xml", "/home/me", CLUSTERS)
    nested = flow(f'<coallocate name="x"><coallocate name="y">{A}</coallocate>{B}</coallocate>')
    assert [job.after for job in nested.jobs] == [(), ()]  # both are jobs of the outer one
    assert [job.after for job in xml.jobs] == [job.after for job in text.jobs]
    assert xml.on_failure is OnFailure.STOP
    assert [job.request.components for job in xml.jobs] == [job.request.components for job in text.jobs]
    assert [job.request.name for job in xml.jobs] == ["two", "deep", "3", "4"]


def test_many_resources_before_a_long_text_are_read_in_time() -> None:
    many = "\n<resource><executable>a</executable></resource>" * 20_000
    long = f"<resource><executable>a</executable><arguments>{'x' * 8_000_000}</arguments></resource>"
    started = time.process_time()
    assert "20001 components, more than" in refused(f"<coallocate>{many}{long}</coallocate>").message
    assert time.process_time() - started < 15  # seconds of this process; about a second without load


def test_jobs_may_wait_by_number() -> None:
    found = flow(f'<coallocate><coallocate>{A}</coallocate><coallocate wait="1" name="b">{B}</coallocate></coallocate>')
    assert [job.after for job in found.jobs] == [(), (0,)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"<coallocate>\n<resource>{A}</resource></coallocate>", "tree.xml:2:1: <resource> holds more than one text"),
        ('<coallocate>\n\n  <resource type="disk"/></coallocate>', "tree.xml:3:3: <resource> is of the type disk"),
        ("<coallocate>\n<jobs/></coallocate>", "tree.xml:2:1: <jobs> stands inside of <coallocate>"),
        ('<coallocate x="1"/>', "tree.xml:1:1: <coallocate> has the unknown attribute x"),
        ("<a/>", "tree.xml:1:1: <a> begins no co-allocation"),
        ("<coallocate>", "this is not XML"),
        ('<!DOCTYPE a [<!ENTITY b "c">]><coallocate/>', "entities, which are not read"),
        ('<coallocate><resource>\n\n<directory="/x"/></resource></coallocate>', "tree.xml:3:1: direct"),
        ('<coallocate>\n<resource><cuont="4"/></resource></coallocate>', "cuont is not"),
        (f'<coallocate wait="2">{A}</coallocate>', "wait names jobs of a multistage request"),
        (f'<coallocate>\n<coallocate wait="3">{A}</coallocate>{B}</coallocate>', "tree.xml:2:1: wait names job 3"),
        ("<coallocate>" * (MOST_DEPTH + 1) + "</coallocate>" * (MOST_DEPTH + 1), "stands inside of 100 others"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(text: str, words: str) -> None:
    assert words in refused(text).message


def test_the_text_decides_between_the_languages_of_xml() -> None:
    assert language_of("a.xml", "<?xml version='1.0'?>\n<!-- x -->\n<coallocate>") == "coallocate"
    assert language_of("-", "  <coallocate name='a'>") == "coallocate"
    assert language_of("a.xml", "<JobDefinition>") == "jsdl"
    assert language_of("a.xml", "") == "jsdl"
