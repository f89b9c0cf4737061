"""The exposition reader: what one body says, and which bodies are refused whole."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from scaler.signals.exposition import Exposition, ExpositionError, normalised, parse

BODIES = Path(__file__).parent / "bodies"


def read(body: str, *names: str) -> Exposition:
    """The body with these names wanted (all of them without any)."""
    return parse(body, frozenset(names).__contains__ if names else lambda _: True)


def values(body: str, name: str = "w") -> dict[str, float]:
    """Label text → value of one name."""
    return {sample.labels.text: sample.value for sample in read(body, name).samples.get(name, ())}


def test_an_exemplar_is_neither_part_of_the_value_nor_a_time_stamp() -> None:
    lines = ('w{le="1"} 3 # {trace_id="t"} 0.5', 'w 3 # {trace_id="t"} 0.5', 'w{a="b"} 3 # {t="u"} 0.5 1700000000.1')
    for line in lines:
        (sample,) = read(line + "\n").samples["w"]
        assert (sample.value, sample.unix) == (3.0, None)
        assert "trace_id" not in sample.labels.values


def test_a_body_whose_last_line_has_no_end_is_cut() -> None:
    with pytest.raises(ExpositionError, match="cut"):
        read('w{engine="0"} 1\nw{engine="1"')
    with pytest.raises(ExpositionError, match="cut"):
        read("w 1\nw_total 10")  # was it 10, or the beginning of 1000?


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("", "empty"),
        (" \n\n", "empty"),
        ("<html>502</html>", "HTML"),
        ("\n<!DOCTYPE html>\n<p>login</p>\n", "HTML"),
        ('{"status":"error","errorType":"timeout"}\n', "no sample line"),
        ("# HELP w nothing yet\n# TYPE w gauge\n", "no sample line"),
        ("404 page not found\n", "no sample line"),
        ("upstream connect error or disconnect\n", "no sample line"),
    ],
)
def test_a_page_that_is_not_metrics_is_refused(body: str, reason: str) -> None:
    with pytest.raises(ExpositionError, match=reason):
        read(body)


def test_nan_and_infinity_are_read_as_such_and_never_as_zero() -> None:
    body = 'w{a="1"} NaN\nw{a="2"} +Inf\nw{a="3"} -Inf\n'
    nan, above, below = (sample.value for sample in read(body).samples["w"])
    assert math.isnan(nan)
    assert (above, below) == (math.inf, -math.inf)


def test_repeated_type_blocks_keep_both_engines() -> None:
    block = '# HELP w x\n# TYPE w gauge\nw{{engine="{0}"}} {0}\n'
    assert values(block.format(0) + block.format(1)) == {'engine="0"': 0.0, 'engine="1"': 1.0}


def test_an_exact_duplicate_is_kept_once_and_counted_however_its_labels_are_ordered() -> None:
    read_twice = read('w{a="1",b="2"} 1\nw{b="2",a="1"} 2\nw{a="1",b="3"} 5\n')
    assert [sample.value for sample in read_twice.samples["w"]] == [1.0, 5.0]
    assert read_twice.duplicates == 1


@pytest.mark.parametrize(
    ("stamp", "unix"), [("1700000000000", 1.7e9), ("1700000000.5", 1700000000.5), ("1.7e12", 1.7e9), ("0", 0.0)]
)
def test_an_explicit_time_stamp_is_told_in_unix_seconds(stamp: str, unix: float) -> None:
    for labels in ("", '{engine="0"}'):
        (sample,) = read(f"w{labels} 9 {stamp}\n").samples["w"]
        assert (sample.value, sample.unix) == (9.0, unix)


@pytest.mark.parametrize(
    "broken",
    [
        'weird{a="b} 1',
        "{} 1",
        "9lives 1",
        "w",
        "w ",
        "w one",
        "w 1 two",
        "w 1 2 3",
        "w 1_000",
        'w{a="1"',
        'w{a="1"}',
        'w{a="1"} ',
        "w{a=1} 1",
        'w{a="1" b="2"} 1',
        'w{a="1",a="2"} 1',
        "w{,} 1",
        'w{a="1"} 1 nan',
    ],
)
def test_a_broken_line_costs_that_line_and_is_counted(broken: str) -> None:
    exposition = read(f'other 1\n{broken}\nw{{engine="0"}} 7\n', "w")
    assert [sample.value for sample in exposition.samples["w"]] == [7.0]
    assert exposition.bad_lines == 1


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("closing", ["", "# EOF", "# EOF\n", "# EOF\r\n"])
def test_line_ends_and_the_openmetrics_end_do_not_matter(end: str, closing: str) -> None:
    body = f'# TYPE w counter{end}w_total{{a="x"}} 4{end}w_created{{a="x"}} 1.7e9{end}{end}  # a comment{end}{closing}'
    exposition = read(body, "w_total")
    assert [sample.value for sample in exposition.samples["w_total"]] == [4.0]
    assert exposition.bad_lines == 0


def test_a_creation_time_is_never_read_under_its_counters_name() -> None:
    body = "# TYPE w counter\nw_total 4\nw_created 1.7e9\n"
    assert set(read(body, "w_total", "w").samples) == {"w_total"}


def test_label_values_may_hold_anything() -> None:
    line = r'w{quote="a\"b",back="c:\\d",line="1\n2",brace="} 9",comma="a,b=\"c\"",space=" x ",empty="",odd="\q"} 1'
    (sample,) = read(line + "\n").samples["w"]
    assert sample.labels.values == {
        "quote": 'a"b',
        "back": "c:\\d",
        "line": "1\n2",
        "brace": "} 9",
        "comma": 'a,b="c"',
        "space": " x ",
        "empty": "",
        "odd": "\\q",
    }


@pytest.mark.parametrize(
    "line",
    [
        'w{a="1",b="2"} 3',
        'w{ a = "1" , b = "2" , } 3',
        'w {b="2",a="1"} 3',
        '\tw\t{a="1",b="2"}\t3\t',
        'w{a="1",b="2"}3',
    ],
)
def test_blanks_and_a_trailing_comma_do_not_matter(line: str) -> None:
    assert values(line + "\n") == {'a="1",b="2"': 3.0}


def test_colon_and_underscore_are_alike_and_two_spellings_are_never_added() -> None:
    one, other = 'sglang:num_queue_reqs{model_name="m"} 4\n', 'sglang_num_queue_reqs{model_name="m"} 4\n'
    for body, spelling in ((one, "sglang:num_queue_reqs"), (other, "sglang_num_queue_reqs"), (one + other, None)):
        exposition = read(body, normalised("sglang:num_queue_reqs"))
        assert [sample.value for sample in exposition.samples["sglang_num_queue_reqs"]] == [4.0]
        if spelling:
            assert exposition.spellings == {"sglang_num_queue_reqs": spelling}
    with_another_label = one + 'sglang_num_queue_reqs{model_name="m",collector="otel"} 4\n'
    (sample,) = read(with_another_label).samples["sglang_num_queue_reqs"]
    assert sample.labels.values == {"model_name": "m"}


def test_a_spelling_that_has_only_broken_lines_gives_way_to_the_other() -> None:
    assert values('v:w{a="b} 1\nv_w 3\n', "v_w") == {"": 3.0}


def test_buckets_of_one_histogram_share_their_series() -> None:
    body = 'w_bucket{z="1",le="0.5",a="2"} 1\nw_bucket{z="1",le="+Inf",a="2"} 2\nw_sum{z="1",a="2"} 3\n'
    samples = read(body).samples
    assert {sample.labels.series for name in samples for sample in samples[name]} == {'a="2",z="1"'}
    assert [sample.labels.bound for sample in samples["w_bucket"]] == [0.5, math.inf]
    assert math.isnan(samples["w_sum"][0].labels.bound)


def test_names_that_are_not_wanted_are_named_but_not_read() -> None:
    exposition = read('a:b{c="d"} 1\nw 2\n', "w")
    assert set(exposition.samples) == {"w"}
    assert exposition.names == {"a:b", "w"}


def test_an_escaped_quote_in_a_line_that_is_not_wanted_is_no_damage() -> None:
    exposition = read('w 1\nother{a="\\""} 1\nother{a="\\""} 2\n', "w")
    assert exposition.bad_lines == 0


def test_a_broken_line_of_a_wanted_name_is_told_under_that_name() -> None:
    exposition = read('w{a="1"} 1\na:w{a="2} 2\nother{a="b} 1\n9lives 1\nw{a="1"} one\n', "w", "a_w")
    assert exposition.damaged == {"a_w": ('a:w{a="2} 2',), "w": ('w{a="1"} one',)}
    assert exposition.bad_lines == 4
    assert read("w 1\n").damaged == {}


def test_a_very_long_broken_line_fails_in_one_pass() -> None:
    for broken in ('w{a="' + "x" * 500_000, "w{" + 'a="b",' * 100_000, "w " + " " * 500_000, "w{" + "a" * 500_000):
        assert read(f"{broken}\nw 1\n").bad_lines == 1


@pytest.mark.parametrize("state", ["idle", "load"])
def test_a_real_body_reads_as_the_reference_parser_reads_it(state: str) -> None:
    body = (BODIES / f"vllm-0.32-{state}.txt").read_text()
    assert as_rows(read(body)) == reference_rows(body)


def as_rows(exposition: Exposition) -> list[tuple[str, list[tuple[str, str]], str, float | None]]:
    return sorted(
        (name, sorted(sample.labels.values.items()), repr(sample.value), sample.unix)
        for name, samples in exposition.samples.items()
        for sample in samples
    )


def reference_rows(body: str) -> list[tuple[str, list[tuple[str, str]], str, float | None]]:
    rows = []
    for family in text_string_to_metric_families(body):
        for one in family.samples:
            unix = None if one.timestamp is None else float(one.timestamp)
            rows.append((normalised(one.name), sorted(one.labels.items()), repr(float(one.value)), unix))
    return sorted(rows)


NAMES = st.from_regex(r"[a-z][a-z_]{0,6}", fullmatch=True)
LABELS = st.dictionaries(NAMES, st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=4)
LINES = st.tuples(NAMES, LABELS, st.floats(), st.none() | st.integers(10**12, 2 * 10**12))


@given(st.lists(LINES, min_size=1, max_size=12, unique_by=lambda line: (line[0], tuple(sorted(line[1].items())))))
def test_a_valid_body_reads_as_the_reference_parser_reads_it(
    lines: list[tuple[str, dict[str, str], float, int | None]],
) -> None:
    body = ""
    for name, labels, value, milliseconds in lines:
        pairs = ",".join(f'{key}="{escaped(text)}"' for key, text in labels.items())
        body += f"# TYPE {name} gauge\n{name}{{{pairs}}} {value!r}{f' {milliseconds}' if milliseconds else ''}\n"
    exposition = read(body)
    assert exposition.bad_lines == 0
    assert as_rows(exposition) == reference_rows(body)


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


FRAGMENTS = ["w", "{", "}", "} ", '"', "=", ",", "\\", "\n", "\r", " ", "\t", "#", "1", "1e999", "NaN", "le", "_", ":"]


@given(st.text() | st.lists(st.sampled_from(FRAGMENTS), max_size=60).map("".join))
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    for body in (text, text + "\n"):
        with contextlib.suppress(ExpositionError):
            assert all(read(body).samples.values())


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join))
def test_damage_never_costs_more_than_its_own_lines(damage: str) -> None:
    assert values(f"v 1\n{damage}\nx 2\n", "x") == {"": 2.0}
