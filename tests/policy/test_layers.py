"""The policy file: layers, lines, and every problem at once."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scaler.policy.errors import PolicyError
from scaler.policy.keys import KEYS
from scaler.policy.layers import SECTIONS, PolicyFile
from scaler.policy.model import Policy


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "policy.yaml"


def load(path: Path, text: str) -> PolicyFile:
    path.write_text(dedent(text), encoding="utf-8")
    return PolicyFile.load(path)


def problems(path: Path, text: str) -> list[str]:
    """The problems without the file's name: ``line: path: text``."""
    with pytest.raises(PolicyError) as caught:
        load(path, text)
    assert all(problem.startswith(f"{path}:") for problem in caught.value.problems)
    return [problem.removeprefix(f"{path}:") for problem in caught.value.problems]


LAYERED = """\
    defaults:
      batch: {min: 3, max: 30, cooldown_seconds: 30}
      scrape: {urls: [http://a:1/m, http://b:1/m]}
    policies:
      big:
        batch: {min: 4, max: 40}
      small:
        batch: {min: 4, max: 14}
    workloads:
      prod/llama:
        policy: big
        batch: {min: 5}
        scrape: {urls: [http://c:1/m]}
      prod/plain: {}
    """


def test_later_layers_win_key_by_key(path: Path) -> None:
    file = load(path, LAYERED)
    batch = file.resolve("prod/llama", {"batchStart": "6"}).policy.batch
    assert (batch.start, batch.min, batch.max, batch.cooldown_seconds, batch.up_factor) == (6, 5, 40, 30, 2)
    assert file.resolve("prod/plain").policy.batch.max == 30
    assert file.resolve("prod/llama", {"batchMin": "7"}).policy.batch.min == 7


def test_lists_are_replaced_whole(path: Path) -> None:
    assert load(path, LAYERED).resolve("prod/llama").policy.scrape.urls == ("http://c:1/m",)


def test_metadata_may_choose_another_policy(path: Path) -> None:
    file = load(path, LAYERED)
    assert file.resolve("prod/llama", {"policy": "small"}).policy.batch.max == 14
    assert file.resolve("prod/plain", {"policy": "small"}).policy.batch.max == 14
    with pytest.raises(PolicyError, match='metadata "policy": "smal" is no declared policy; write one of: big, small'):
        file.resolve("prod/llama", {"policy": "smal"})


def test_workloads_are_those_declared_and_others_get_the_defaults(path: Path) -> None:
    file = load(path, LAYERED)
    assert file.workloads == ("prod/llama", "prod/plain")
    assert file.resolve("other/workload-2.5").policy.batch.max == 30


def test_without_a_file_the_engine_class_gives_the_objectives() -> None:
    assert PolicyFile.empty().workloads == ()
    policy = PolicyFile.empty().resolve("prod/llama").policy
    assert (policy.objectives.ttft_seconds, policy.objectives.e2e_seconds) == (1.0, None)
    triton = PolicyFile.empty().resolve("prod/resnet", {"engine": "triton"}).policy
    assert (triton.objectives.ttft_seconds, triton.objectives.e2e_critical_seconds) == (None, 5.0)


def test_objectives_said_in_any_layer_beat_the_engine_class(path: Path) -> None:
    file = load(path, "defaults: {objectives: {ttft_seconds: 8}}\nworkloads: {a/b: {objectives: {tpot_seconds: null}}}")
    objectives = file.resolve("a/b").policy.objectives
    assert (objectives.ttft_seconds, objectives.ttft_critical_seconds, objectives.tpot_seconds) == (8, 40, None)


def test_null_unsets_a_key_and_an_empty_group_says_nothing(path: Path) -> None:
    file = load(
        path,
        """\
        defaults:
          hold_seconds: 5
          batch: {max: 8, cooldown_seconds: 1}
          idle: {timeout_seconds: 60}
        workloads:
          a/b:
            hold_seconds: null
            batch: {max: null, cooldown_seconds: null}
            idle:
        """,
    )
    policy = file.resolve("a/b").policy
    assert (policy.hold_seconds, policy.batch.max, policy.batch.cooldown_seconds) == (120, None, 60)
    assert policy.idle.timeout_seconds == 60


@pytest.mark.parametrize("text", ["", "# nothing\n", "defaults:\npolicies:\nworkloads:\n", "{}", "\ufeffdefaults: {}"])
def test_an_empty_file_or_section_is_no_mistake(path: Path, text: str) -> None:
    assert load(path, text).workloads == ()


def test_clock_times_need_no_quotes(path: Path) -> None:
    file = load(
        path,
        """\
        defaults:
          warm:
            windows:
              - {days: mon-fri, start: 22:00, end: 06:00, zone: Europe/Berlin}
              - days: sun-thu
                start: 8:00
                end: 12:30
                zone: Asia/Jerusalem
        """,
    )
    night, day = file.resolve("a/b").policy.warm.windows
    assert (f"{night.start:%H:%M}", f"{night.end:%H:%M}") == ("22:00", "06:00")
    assert (f"{day.start:%H:%M}", day.days[0]) == ("08:00", "sun")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "workloads:\n  a/b:\n    batch:\n      max: five\n",
            '4: workloads.a/b.batch.max: "five" is not allowed; '
            "write a whole number from 1 to 1000000 (or null to unset)",
        ),
        (
            "defaults:\n  hold_seconds: -1\n",
            "2: defaults.hold_seconds: -1 is not allowed; write a number of seconds from 0 to 31536000",
        ),
        ("defaults:\n  hold_secnds: 1\n", '2: defaults.hold_secnds: no such key; did you mean "hold_seconds"?'),
        ("policies:\n  p:\n    batch: {mox: 1}\n", '3: policies.p.batch.mox: no such key; did you mean "max"?'),
        ("defaults: {}\nworkload: {}\n", '2: workload: no such key; did you mean "workloads"?'),
        (
            "defaults:\n  policy: x\n",
            "2: defaults.policy: only a workload chooses a policy; write it under workloads:",
        ),
        (
            "policies: {p: {}}\nworkloads:\n  a/b:\n    policy: q\n",
            '4: workloads.a/b.policy: "q" is no declared policy; write one of: p',
        ),
        (
            "workloads:\n  a/b:\n    policy: 5\n",
            "3: workloads.a/b.policy: 5 is no declared policy; declare it under policies: (none is)",
        ),
        ("defaults:\n  engine: a\n  engine: b\n", "3: defaults.engine: stands here twice (first on line 2); keep one"),
        ("- a\n", f'1: ["a"] is not a policy file; write a mapping with {", ".join(SECTIONS)}'),
        ("defaults: 5\n", "1: defaults: 5 is not allowed; write a mapping"),
        ("workloads:\n  a/b: []\n", "2: workloads.a/b: [] is not allowed; write a mapping of policy keys"),
        ("defaults:\n  push: 5\n", "2: defaults.push: 5 is not allowed; write a mapping with the keys enabled, "
         "report_every_seconds, demand_ttl_seconds, wake_ttl_seconds"),
        ("defaults:\n  idle: {sleep_after_seconds: 1800}\n", "2: defaults.idle: sleep_after_seconds (1800) is not "
         "below timeout_seconds (1800): it would be at zero before it sleeps; lower the one or raise the other"),
        ("defaults:\n  gpu_group: {name: gpu-0, batch: 8}\n",
         "2: defaults.gpu_group: share_ratio missing: name, share_ratio and batch are declared together"),
        ("workloads:\n  a/b: {gpu_group: {name: g, share_ratio: 0.6, batch: 8}}\n"
         "  a/c: {gpu_group: {name: g, share_ratio: 0.5, batch: 8}}\n",
         "3: workloads.a/c.gpu_group.share_ratio: the shares of g come to 1.1 (a/b, a/c); the card is 1"),
        ("defaults:\n  idle:\n    sleep_level: 3\n",
         "3: defaults.idle.sleep_level: 3 is not allowed; write a whole number from 1 to 2"),
        ("defaults:\n\tidle: 5\n", "2: is not YAML: a tab; indent with spaces"),
        ("defaults:\n  replicas: {max: true}\n",
         "2: defaults.replicas.max: true is not allowed; write a whole number from 1 to 100000 (or null to unset)"),
        (
            "defaults:\n  replicas: {max: 2}\nworkloads:\n  a/b:\n    replicas:\n      min: 3\n",
            "5: workloads.a/b.replicas: max (2) is below min (3)",
        ),
        (
            "defaults:\n  warm:\n    windows:\n      - {start: 08:00, end: 09:00, zone: UTC}\n"
            "      - start: 08:00\n        end: 09:00\n        zone: Europe/Berln\n",
            "7: defaults.warm.windows[1].zone: 'Europe/Berln' is not an IANA time zone; "
            "write for example Europe/Berlin",
        ),
        (
            "defaults:\n  jump:\n    rows:\n      - {rate_at_least: 1, batch: 4}\n",
            "4: defaults.jump.rows[0].replicas: is missing; write a whole number from 1 to 100000",
        ),
    ],
)  # fmt: skip
def test_a_problem_says_line_key_what_is_wrong_and_what_to_write(path: Path, text: str, problem: str) -> None:
    assert problems(path, text) == [problem]


@pytest.mark.parametrize(
    "name", ["llama", "Prod/llama", "prod/llama/x", "prod/", "/x", "-a/b", "a_b/c", "a/b\n", "a.b/c"]
)
def test_a_workload_is_named_by_namespace_and_name(path: Path, name: str) -> None:
    with pytest.raises(PolicyError, match="write namespace/name"):
        PolicyFile.empty().resolve(name)
    (problem,) = problems(path, f'workloads:\n  "{name.encode("unicode_escape").decode()}": {{}}\n')
    assert "is not a workload's name; write namespace/name" in problem


def test_all_problems_are_told_at_once_and_each_once(path: Path) -> None:
    found = problems(
        path,
        """\
        defaults:
          hold_seconds: x
        policies:
          p: {batch: {max: 0}}
        workloads:
          a/b: {policy: p, window_seconds: 1}
          a/c: {policy: p, windw_seconds: 1}
        """,
    )
    assert [problem.partition(":")[0] for problem in found] == ["2", "4", "6", "7"]


def test_many_problems_are_counted(path: Path) -> None:
    found = problems(path, "defaults:\n" + "".join(f"  k{n}: 1\n" for n in range(150)))
    assert len(found) == 101
    assert "50 more problems" in found[-1]


def test_a_file_that_cannot_be_read_is_a_policy_error(tmp_path: Path, path: Path) -> None:
    for missing in (path, tmp_path, "\0"):
        with pytest.raises(PolicyError, match="cannot be read"):
            PolicyFile.load(missing)
    path.write_bytes(b"defaults: {}\n\xff\xfe")
    with pytest.raises(PolicyError, match=r"policy.yaml:2: is not UTF-8"):
        PolicyFile.load(path)
    path.write_bytes(b"#" * (4 * 1024 * 1024 + 1))
    with pytest.raises(PolicyError, match="is larger than"):
        PolicyFile.load(path)


def test_a_contradiction_between_file_and_metadata_names_the_metadata_keys(path: Path) -> None:
    file = load(path, "defaults: {replicas: {max: 2}}")
    with pytest.raises(PolicyError) as caught:
        file.resolve("a/b", {"replicasMin": "3"})
    assert caught.value.problems == ['metadata "replicasMin": max (2) is below min (3)']


def test_warnings_come_with_the_policy(path: Path) -> None:
    resolved = load(path, "defaults: {replicas: {max: 4}}").resolve("a/b", {"replicaMax": "3"})
    assert resolved.warnings[0] == 'unknown key "replicaMax": did you mean "replicasMax"?'
    assert any("nothing can wake" in text for text in resolved.warnings)
    assert not any("replicas.max is not declared" in text for text in resolved.warnings)


def test_every_key_of_the_model_can_be_written_in_a_file(path: Path) -> None:
    for key in KEYS.values():
        *group, name = key.path
        value = json.dumps(key.default)
        line = f"  {group[0]}: {{{name}: {value}}}" if group else f"  {name}: {value}"
        policy = load(path, f"defaults:\n{line}\n").resolve("a/b").policy
        assert policy.model_copy(update={"objectives": Policy().objectives}) == Policy(), line


WORDS = st.sampled_from(
    ["defaults", "policies", "workloads", "a/b", "batch", "max", "policy", "jump", "rows", "warm", "windows", "<<", "5"]
)
SCALARS = st.sampled_from(
    ["1", "-1", "null", "true", "x", "22:00", "*a", "[1]", "[{start: 1}]", "!t x", '"\\UFFFFFFFF"']
)


@st.composite
def yaml_like(draw: st.DrawFn) -> str:
    lines = []
    for _ in range(draw(st.integers(0, 10))):
        indent, dash = "  " * draw(st.integers(0, 4)), draw(st.sampled_from(["", "", "- ", "&a "]))
        lines.append(f"{indent}{dash}{draw(WORDS)}:{draw(st.just('') | SCALARS.map(lambda text: ' ' + text))}")
    return "\n".join(lines)


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text().map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary() | yaml_like().map(str.encode))
def test_no_file_raises_anything_but_a_policy_error(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    try:
        PolicyFile.load(path).resolve("a/b")
    except PolicyError as error:
        problems = error.problems or ["no problem named"]
    else:
        problems = []
    assert all(problem.startswith(f"{path}:") for problem in problems)
