"""What may be given: several documents, Lists from kubectl, ConfigMaps with a policy, and files that are none of it."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest
import yaml

from tests.check.manifests import DEPLOYMENT, POLICY, SCALED_OBJECT, changed, findings, fixed, found

WRONG = changed(SCALED_OBJECT, ("metricType: AverageValue", "metricType: Value"))


def test_documents_of_one_file_have_the_files_lines() -> None:
    both = DEPLOYMENT + "---\n" + WRONG
    assert found(both) == [("metric-type", DEPLOYMENT.count("\n") + 1 + 25)]
    assert fixed(both) == [DEPLOYMENT + "---\n" + SCALED_OBJECT]


def test_a_list_from_kubectl_with_all_it_adds() -> None:
    """Status, managedFields and defaults as the API server writes them; lists stand at their key's column."""
    scaled, deployment = yaml.safe_load(WRONG), yaml.safe_load(DEPLOYMENT)
    for item in (scaled, deployment):
        item["metadata"] |= {
            "creationTimestamp": "2026-01-05T12:00:00Z",
            "managedFields": [{"fieldsV1": {"f:spec": {".": {}, 'k:{"name":"vllm"}': {}}}, "manager": "kubectl"}],
            "resourceVersion": "12345",
        }
        item["status"] = {"conditions": [{"status": "False", "type": "Ready"}]}
    text = yaml.safe_dump({"apiVersion": "v1", "items": [scaled, deployment], "kind": "List", "metadata": {}})
    [finding] = findings(text)
    assert finding.rule == "metric-type"
    assert text.split("\n")[finding.line - 1].strip() == "metricType: Value"
    [after] = fixed(text)
    assert after == text.replace("metricType: Value", "metricType: AverageValue")


def test_flow_style_is_read_and_mended_too() -> None:
    text = dedent("""\
        kind: ScaledObject
        metadata: {name: llama, namespace: chat}
        spec: {scaleTargetRef: {name: llama}, minReplicaCount: 0, maxReplicaCount: 4, fallback: {replicas: 3},
          triggers: [{type: external, useCachedMetrics: true, metadata: {scalerAddress: "loadtide.lt.svc:6000",
            scrapeUrls: "http://llama.chat.svc:8000/metrics", pushEnabled: "true", batchMax: "8", replicasMax: 4}}]}
        """)
    rules = {"cached-metrics", "unquoted", "slow-polling", "cooldown-twice", "fallback-wakes"}
    assert {name for name, _ in found(text)} == rules
    [after] = fixed(text)
    assert found(after) == []
    spec = yaml.safe_load(after)["spec"]
    assert "fallback" not in spec
    assert (spec["cooldownPeriod"], spec["pollingInterval"]) == (30, 15)
    assert spec["triggers"][0]["metadata"]["replicasMax"] == "4"


class TestPolicyFiles:
    def test_a_mistake_in_it_has_its_line(self) -> None:
        assert found(changed(POLICY, ("max: 6", "max: six"))) == [("policy", 5)]
        assert found(changed(POLICY, ("push:", "pusch:"))) == [("policy", 4)]

    def test_what_it_leaves_unsaid_is_told(self) -> None:
        [finding] = findings(changed(POLICY, ("    batch: {max: 64}\n", "")))
        assert (finding.rule, finding.line) == ("policy-warning", 2)
        assert "batch.max is not declared" in finding.reason

    def test_a_target_the_gauge_can_never_reach(self) -> None:
        """G5-03."""
        [finding] = findings(POLICY + "    capacity: {sequences: 128}\n")
        assert finding.rule == "policy-warning"
        assert "target_unreachable" in finding.reason

    def test_what_of_a_shared_card_cannot_be_lent(self) -> None:
        shared = POLICY + "    gpu_group: {name: gpu-0, share_ratio: 0.5, batch: 32}\n"
        [finding] = findings(shared)
        assert finding.rule == "policy-warning"
        assert "engine vllm takes its GPU memory when it starts, so its KV cache is neither lent nor" in finding.reason
        assert "idle.sleep_after_seconds would free it earlier" in finding.reason
        [finding] = findings(shared + "    idle: {sleep_after_seconds: 300}\n")
        assert "its memory is lent while its replicas sleep" in finding.reason
        assert findings(shared + "    engine: triton\n    objectives: {e2e_seconds: 2}\n") == []

    def test_is_compared_with_the_scaled_object(self) -> None:
        bare = SCALED_OBJECT[: SCALED_OBJECT.index("        scrapeUrls")]
        assert found(bare, POLICY) == []
        assert found(bare) == [("no-policy", 26)]
        assert found(bare, changed(POLICY, ("max: 6", "max: 4"))) == [("max-replicas", 12)]
        assert found(bare, changed(POLICY, ("{enabled: true}", "{enabled: false}"))) == [
            ("never-woken", 11),
            ("policy-warning", 2),
        ]

    def test_a_namespace_that_only_kubectl_knows_is_taken_from_it(self) -> None:
        bare = SCALED_OBJECT[: SCALED_OBJECT.index("        scrapeUrls")]
        bare = changed(bare, ("  namespace: chat\n", ""))
        assert found(bare, changed(POLICY, ("max: 6", "max: 4"))) == [("max-replicas", 11)]

    def test_in_a_config_map(self) -> None:
        head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: p}\ndata:\n  other.txt: hello\n  policy.yaml: |\n"
        assert found(head + indent(POLICY, "    ")) == []
        wrong = changed(POLICY, ("max: 6", "max: six"))
        assert found(head + indent(wrong, "    ")) == [("policy", 6 + 5)]
        bare = SCALED_OBJECT[: SCALED_OBJECT.index("        scrapeUrls")]
        assert found(bare, head + indent(changed(POLICY, ("max: 6", "max: 4")), "    ")) == [("max-replicas", 12)]


@pytest.mark.parametrize(
    ("text", "rule", "line"),
    [
        ("a: [1", "yaml", 1),
        ("kind: ScaledObject\nspec:\n\tx: 1", "yaml", 3),
        ("kind: ScaledObject\nspec: {}\nspec: {}\n", "yaml", 3),
        ("kind: {{ .Values.kind }}\n", "yaml", 1),
        ("kind: ConfigMap\n---\na: {{ .Values.b }}\n", "yaml", 3),
        ("resources: [a.yaml]\n", "not-ours", 1),
        ("- 1\n- 2\n", "not-ours", 1),
        ("", "not-ours", 1),
    ],
)
def test_what_is_nothing_for_us_or_no_yaml_is_said(text: str, rule: str, line: int) -> None:
    assert (rule, line) in found(text)
    assert fixed(text) == [text]


@pytest.mark.parametrize(
    "text",
    [
        "kind: ScaledObject\n",
        "kind: ScaledObject\nspec: 3\n",
        "kind: ScaledObject\nspec: {triggers: 3}\n",
        "kind: ScaledObject\nspec: {triggers: [3, null, {type: external}, {type: external, metadata: [1]}]}\n",
        "kind: ScaledObject\nmetadata: {name: 3}\nspec: {triggers: [{type: external-push, metadata: {a: {b: 1}}}]}\n",
        "kind: ScaledObject\nspec: {minReplicaCount: a, maxReplicaCount: [], triggers: [{type: external}]}\n",
        "kind: Deployment\nspec: {template: {spec: {containers: [1, {image: vllm, args: 3, lifecycle: 1}]}}}\n",
        "kind: Deployment\nspec: {template: {spec: {containers: {image: vllm}}}}\n",
        "kind: List\nitems: [3, {kind: ScaledObject}]\n",
        "kind: Service\nspec: {selector: [1]}\n",
        "kind: ConfigMap\ndata: [1]\n",
        "workloads: 3\n",
        "tenancy: {metadata_urls: everything}\n",
    ],
)
def test_any_shape_of_yaml_is_survived(text: str) -> None:
    found(text, SCALED_OBJECT)
    fixed(text)


HEAD = "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nmetadata: {name: llama, namespace: chat}\n"
SPEC = HEAD + "spec:\n  scaleTargetRef: {name: llama}\n"
WELL = "{type: external, metadata: {scalerAddress: loadtide.lt.svc:6000}}"


@pytest.mark.parametrize(
    ("text", "line", "said", "instead"),
    [
        (HEAD, 1, "spec is missing", "triggers:"),
        (HEAD + "spec: []\n", 4, "spec is a list where a mapping belongs", "scaleTargetRef:"),
        (SPEC, 4, "spec.triggers is missing", "- {type: external-push"),
        (SPEC + "  triggers: {}\n", 6, "spec.triggers is a mapping where a list belongs", "- {type: external-push"),
        (SPEC + "  triggers: []\n", 6, "spec.triggers is empty", "- {type: external-push"),
        (SPEC + "  triggers:\n  - hello\n", 7, 'spec.triggers[0] is the text "hello"', "- {type: external-push"),
        (SPEC + "  triggers:\n  - type: external\n    metadata: [x]\n", 8, "is a list", "metadata: {scalerAddress"),
        (changed(SPEC, ("{name: llama, namespace: chat}", '"x"')), 3, 'metadata is the text "x"', "metadata: {name"),
        (changed(SPEC, ("{name: llama}\n", "llama\n")), 5, 'spec.scaleTargetRef is the text "llama"', "{name: llama}"),
        (SPEC + f"  advanced: on\n  triggers: [{WELL}]\n", 6, 'spec.advanced is the text "on"', "advanced:"),
        ("- kind: ScaledObject\n  spec: {}\n", 1, "a list of objects", "divided by ---"),
        ("apiVersion: keda.sh/v1alpha1\nspec: {}\n", 1, "no kind", "kind: ScaledObject"),
        ("kind: [ScaledObject]\n", 1, "kind is a list where a text belongs", "kind: ScaledObject"),
        ("kind: List\nitems: {}\n", 2, "items is a mapping where a list belongs", "items:"),
        ("kind: List\nitems:\n- 3\n", 3, "items[0] is no object", "kind:"),
        ("kind: ConfigMap\nmetadata: {name: p}\ndata: []\n", 3, "data is a list", "data:"),
        (
            changed(DEPLOYMENT, ("containers:\n        -", "containers:\n         ")),
            10,
            "is a mapping where a list",
            "- {name",
        ),
    ],
)
def test_a_wrong_type_is_said_with_its_place_and_what_to_write(text: str, line: int, said: str, instead: str) -> None:
    [finding] = [each for each in findings(text) if said in each.reason]
    assert (finding.rule, finding.line) == ("wrong-type", line)
    assert instead in finding.fix


def test_what_follows_from_a_wrong_type_is_not_said() -> None:
    assert found(changed(SCALED_OBJECT, ("maxReplicaCount: 6", 'maxReplicaCount: "6"'))) == [("wrong-type", 12)]


class TestAllowed:
    def test_on_the_line_and_on_the_line_before(self) -> None:
        written = "metricType: Value"
        assert found(changed(WRONG, (written, f"{written}  # loadtide: allow metric-type"))) == []
        assert (
            found(
                changed(WRONG, ("      metricType", "      # loadtide: allow unquoted, metric-type\n      metricType"))
            )
            == []
        )

    def test_another_rule_is_not_meant(self) -> None:
        text = changed(WRONG, ("metricType: Value", "metricType: Value  # loadtide: allow unquoted"))
        assert found(text) == [("metric-type", 25)]
