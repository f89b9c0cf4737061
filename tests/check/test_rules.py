"""Each rule: the mistake is found at its line, what is right is not, and the correction leaves nothing to find."""

from __future__ import annotations

import pytest
import yaml

from scaler.check.rule import Severity
from scaler.check.table import READING_RULES, RULES, reference
from tests.check.manifests import (
    DEPLOYMENT,
    POLICY,
    SCALED_OBJECT,
    changed,
    findings,
    fixed,
    found,
    with_metadata,
)

LEAST_OF_TWO = """\
            - {type: Pods, value: 1, periodSeconds: 60}
          selectPolicy: Min"""
PAUSED = """\
  annotations:
    autoscaling.keda.sh/paused: "true\""""

#: (rule, line, the ScaledObject with the mistake, whether --fix mends it)
SCALED_OBJECTS = [
    ("metric-type", 25, changed(SCALED_OBJECT, ("metricType: AverageValue", "metricType: Value")), True),
    ("metric-type", 25, changed(SCALED_OBJECT, ("metricType: AverageValue", "metricType: Utilization")), True),
    (
        "cached-metrics",
        25,
        changed(SCALED_OBJECT, ("      metricType", "      useCachedMetrics: true\n      metricType")),
        True,
    ),
    ("wrong-type", 12, changed(SCALED_OBJECT, ("maxReplicaCount: 6", 'maxReplicaCount: "6"')), True),
    ("wrong-type", 5, changed(SCALED_OBJECT, ("  name: llama", "  name: 42")), True),
    ("wrong-type", 25, changed(SCALED_OBJECT, ("      metric", '      useCachedMetrics: "true"\n      metric')), True),
    ("wrong-type", 10, changed(SCALED_OBJECT, ("pollingInterval: 10", "pollingInterval: quick")), False),
    ("wrong-type", 24, changed(SCALED_OBJECT, ("- type: external-push\n      metric", "- metric")), False),
    ("unquoted", 31, changed(SCALED_OBJECT, ('replicasMax: "6"', "replicasMax: 6")), True),
    ("unquoted", 30, changed(SCALED_OBJECT, ('pushEnabled: "true"', "pushEnabled: on")), True),
    ("unquoted", 30, changed(SCALED_OBJECT, ('pushEnabled: "true"', "pushEnabled: true")), True),
    ("unknown-key", 28, with_metadata('batchStrat: "8"'), True),
    ("unknown-key", 28, with_metadata('tokenFromEnv: "API_TOKEN"'), False),
    ("bad-value", 28, with_metadata('idleTimeoutSeconds: "soon"'), False),
    ("bad-value", 31, changed(SCALED_OBJECT, ('replicasMax: "6"', 'replicasMax: "0"')), False),
    ("bad-value", 29, changed(SCALED_OBJECT, ("http://llama.chat.svc:", "http://llama.billing.svc:")), False),
    ("scaler-address", 28, changed(SCALED_OBJECT, ("loadtide.loadtide.svc:6000", "grpc://loadtide.lt.svc:6000")), True),
    ("scaler-address", 28, changed(SCALED_OBJECT, ("loadtide.loadtide.svc:6000", "loadtide.loadtide.svc")), False),
    ("scaler-address", 28, changed(SCALED_OBJECT, ("loadtide.loadtide.svc:6000", "localhost:6000")), False),
    ("scaler-address", 26, changed(SCALED_OBJECT, ("        scalerAddress: loadtide.loadtide.svc:6000\n", "")), False),
    ("address-namespace", 28, changed(SCALED_OBJECT, ("loadtide.loadtide.svc:6000", "loadtide:6000")), False),
    ("unsafe-ssl", 28, with_metadata('unsafeSsl: "true"'), False),
    ("certificate-in-metadata", 28, with_metadata('caCert: "-----BEGIN CERTIFICATE-----"'), False),
    (
        "scaling-modifiers",
        15,
        changed(SCALED_OBJECT, ("  advanced:\n", "  advanced:\n    scalingModifiers:\n      formula: a * 2\n")),
        True,
    ),
    ("max-replicas", 12, changed(SCALED_OBJECT, ("maxReplicaCount: 6", "maxReplicaCount: 8")), False),
    ("max-replicas", 26, changed(SCALED_OBJECT, ('        replicasMax: "6"\n', "")), True),
    ("min-replicas", 11, changed(SCALED_OBJECT, ("minReplicaCount: 0", "minReplicaCount: 2")), False),
    ("swallowed-jump", 18, changed(SCALED_OBJECT, ("WindowSeconds: 0", "WindowSeconds: 60")), True),
    ("swallowed-jump", 19, changed(SCALED_OBJECT, ("value: 6", "value: 1")), True),
    ("swallowed-jump", 19, changed(SCALED_OBJECT, ("periodSeconds: 15", f"periodSeconds: 15\n{LEAST_OF_TWO}")), True),
    ("slow-polling", 10, changed(SCALED_OBJECT, ("pollingInterval: 10 ", "pollingInterval: 60 ")), True),
    (
        "slow-polling",
        10,
        changed(SCALED_OBJECT, ("pollingInterval: 10 ", "pollingInterval: 20 "), ("external-push", "external")),
        True,
    ),
    (
        "idle-replicas",
        11,
        changed(SCALED_OBJECT, ("minReplicaCount: 0", "idleReplicaCount: 1\n  minReplicaCount: 2")),
        True,
    ),
    (
        "idle-not-below-minimum",
        11,
        changed(SCALED_OBJECT, ("minReplicaCount: 0", "idleReplicaCount: 0\n  minReplicaCount: 0")),
        True,
    ),
    ("never-woken", 11, changed(SCALED_OBJECT, ('        pushEnabled: "true"\n', "")), False),
    ("cooldown-twice", 13, changed(SCALED_OBJECT, ("cooldownPeriod: 30", "cooldownPeriod: 300")), True),
    (
        "fallback-zero",
        16,
        changed(
            SCALED_OBJECT,
            ("minReplicaCount: 0", "minReplicaCount: 1"),
            ('pushEnabled: "true"', 'replicasMin: "1"'),
            ("  advanced:", "  fallback:\n    failureThreshold: 3\n    replicas: 0\n  advanced:"),
        ),
        True,
    ),
    (
        "fallback-wakes",
        14,
        changed(SCALED_OBJECT, ("  advanced:", "  fallback:\n    failureThreshold: 3\n    replicas: 2\n  advanced:")),
        True,
    ),
    (
        "paused",
        8,
        changed(SCALED_OBJECT, ("  namespace: chat", f"  namespace: chat\n{PAUSED}")),
        False,
    ),
    (
        "no-policy",
        26,
        changed(SCALED_OBJECT, ("        scrapeUrls: http://llama.chat.svc:8000/metrics\n", "")),
        False,
    ),
]


def test_what_is_right_has_nothing_to_be_found() -> None:
    assert found(SCALED_OBJECT, DEPLOYMENT) == []
    assert found(SCALED_OBJECT, DEPLOYMENT, POLICY) == []


@pytest.mark.parametrize(("rule", "line", "text", "mended"), SCALED_OBJECTS)
def test_a_mistake_is_found_at_its_line_and_mended(rule: str, line: int, text: str, mended: bool) -> None:
    assert (rule, line) in found(text)
    [finding] = [each for each in findings(text) if each.rule == rule]
    assert finding.fixable is mended
    assert finding.reason
    [after] = fixed(text)
    assert (rule in [name for name, _ in found(after)]) is not mended
    assert "# what scales the chat model" in after
    assert "# quoted, all of them" in after


@pytest.mark.parametrize(("text", "mended"), [(text, mended) for _, _, text, mended in SCALED_OBJECTS if mended])
def test_a_correction_changes_nothing_else(text: str, mended: bool) -> None:
    """Only the lines of the mistake differ, and what is left is the ScaledObject it was made from, but for that."""
    [after] = fixed(text)
    assert yaml.safe_load(after)["spec"]["triggers"][0]["metadata"]["batchMax"] == "64"
    kept = [line for line in text.split("\n") if "#" in line]
    comments = [line.partition("#")[2] for line in kept]
    assert [line.partition("#")[2] for line in after.split("\n") if "#" in line] == comments


class TestWhatIsNotSaid:
    """KEDA's defaults count where a ScaledObject says nothing."""

    def test_polling_and_cooldown(self) -> None:
        text = changed(
            SCALED_OBJECT,
            ("external-push", "external"),
            ("  pollingInterval: 10        # quick\n", ""),
            ("  cooldownPeriod: 30\n", ""),
        )
        assert {name for name, _ in found(text)} == {"slow-polling", "cooldown-twice"}
        [after] = fixed(text)
        assert "    name: llama\n  cooldownPeriod: 30\n  pollingInterval: 15\n" in after
        assert found(after) == []

    def test_the_hpa_without_a_behaviour_is_quick_enough_for_few_and_too_slow_for_many(self) -> None:
        start, end = SCALED_OBJECT.index("  advanced:"), SCALED_OBJECT.index("  triggers:")
        plain = SCALED_OBJECT[:start] + SCALED_OBJECT[end:]
        assert found(plain) == []
        many = changed(plain, ("maxReplicaCount: 6", "maxReplicaCount: 64"), ('replicasMax: "6"', 'replicasMax: "64"'))
        assert {name for name, _ in found(many)} == {"swallowed-jump", "tolerance"}
        [after] = fixed(many)
        assert {name for name, _ in found(after)} == {"tolerance"}
        scale_up = yaml.safe_load(after)["spec"]["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleUp"]
        assert scale_up == {"policies": [{"type": "Pods", "value": 64, "periodSeconds": 15}]}

    def test_the_jump_table_tells_how_far_a_jump_goes(self) -> None:
        text = changed(SCALED_OBJECT, ("value: 6", "value: 2"), ("periodSeconds: 15", "periodSeconds: 30"))
        assert ("swallowed-jump", 19) in found(text)
        rows = "jumpRows: '[{rate_at_least: 5, batch: 8, replicas: 3}]'"
        anchor = "        scalerAddress:"
        assert "swallowed-jump" not in dict(found(changed(text, (anchor, f"        {rows}\n{anchor}"))))

    def test_polling_does_not_matter_where_a_replica_always_stands(self) -> None:
        text = changed(
            SCALED_OBJECT,
            ("pollingInterval: 10", "pollingInterval: 60"),
            ("minReplicaCount: 0", "minReplicaCount: 1"),
            ("cooldownPeriod: 30", "cooldownPeriod: 600"),
            ('pushEnabled: "true"', 'replicasMin: "1"'),
        )
        assert found(text) == []


class TestSeveralTriggers:
    def second(self, *lines: str) -> str:
        return SCALED_OBJECT + "".join(f"    {line}\n" for line in lines)

    def test_that_disagree(self) -> None:
        text = self.second(
            "- type: external", "  metadata:", "    scalerAddress: loadtide.loadtide.svc:6000", '    replicasMax: "3"'
        )
        assert ("triggers-disagree", 34) in found(text)

    def test_of_another_scaler_beside_ours(self) -> None:
        text = self.second("- type: cpu", "  metricType: Utilization", "  metadata:", '    value: "60"')
        assert found(text) == [("several-triggers", 33)]

    def test_the_http_add_on_is_told_apart(self) -> None:
        """Its count can be made harmless, and that it keeps the workload awake is what it is for."""
        where = ("    scalerAddress: keda-add-ons-http-external-scaler.keda:9090", "    interceptorRoute: m")
        text = self.second("- type: external-push", "  metadata:", *where)
        [finding] = [each for each in findings(text) if each.rule == "several-triggers"]
        assert "HTTP add-on" in finding.reason
        assert "targetValue: 1000000" in finding.fix
        assert "cannot explain" not in finding.reason

    def test_cron_becomes_a_window(self) -> None:
        text = self.second(
            "- type: cron",
            "  metadata:",
            "    timezone: Europe/Berlin",
            "    start: 30 7 * * 1-5",
            "    end: 0 19 * * 1-5",
            '    desiredReplicas: "2"',
        )
        [finding] = findings(text)
        assert finding.rule == "cron-trigger"
        assert '{days: mon-fri, start: "07:30", end: "19:00", zone: Europe/Berlin, replicas: 2}' in finding.fix
        mended = with_metadata(*finding.fix.split("\n"))
        assert found(mended) == []

    def test_another_external_scaler_is_left_alone(self) -> None:
        text = changed(
            SCALED_OBJECT,
            ("loadtide.loadtide.svc:6000", "http-add-on.keda:9090"),
            ("        scrapeUrls: http://llama.chat.svc:8000/metrics\n", "        httpScaledObject: x\n"),
            ('        pushEnabled: "true"\n', ""),
            ('        replicasMax: "6"\n', ""),
            ('        batchMax: "64"', "        # "),
            ("metricType: AverageValue", "metricType: Value"),
        )
        assert found(text) == [("not-ours", 24)]


class TestPods:
    def test_a_grace_period_shorter_than_the_end_takes(self) -> None:
        for grace in ("terminationGracePeriodSeconds: 135", "terminationGracePeriodSeconds: 30"):
            text = changed(DEPLOYMENT, ("terminationGracePeriodSeconds: 150", grace))
            assert found(text) == [("grace-period", 9)]
            [after] = fixed(text)
            assert after == DEPLOYMENT  # preStop 15 + drain 120 + 15 to spare

    def test_the_default_grace_period_counts(self) -> None:
        text = changed(DEPLOYMENT, ("      terminationGracePeriodSeconds: 150\n", ""))
        assert found(text) == [("grace-period", 8)]
        [after] = fixed(text)
        assert yaml.safe_load(after) == yaml.safe_load(DEPLOYMENT)

    def test_no_pre_stop(self) -> None:
        lifecycle = DEPLOYMENT[DEPLOYMENT.index("          lifecycle:") :]
        text = changed(DEPLOYMENT, (lifecycle, ""))
        assert [name for name, _ in found(text)] == ["pre-stop"]
        [after] = fixed(text)
        assert yaml.safe_load(after) == yaml.safe_load(DEPLOYMENT)

    def test_vllm_that_aborts_what_runs(self) -> None:
        text = changed(DEPLOYMENT, (', --shutdown-timeout, "120"', ""))
        assert found(text) == [("streams-cut", 13)]

    @pytest.mark.parametrize(
        "hook",
        ['exec: {command: [sh, -c, "sleep 40 && echo"]}', "sleep: {seconds: 40}", "exec: {command: [sleep, '40']}"],
    )
    def test_every_way_to_sleep_counts(self, hook: str) -> None:
        written = '              exec:\n                command: [sleep, "15"]'
        assert found(changed(DEPLOYMENT, (written, f"              {hook}"))) == [("grace-period", 9)]

    def test_the_batch_of_the_policy_and_of_the_engine(self) -> None:
        text = changed(SCALED_OBJECT, ('batchMax: "64"', 'batchMax: "128"'))
        assert found(text, DEPLOYMENT) == [("batch-cap", 32)]
        assert fixed(text, DEPLOYMENT) == [SCALED_OBJECT, DEPLOYMENT]

    def test_a_vllm_that_is_to_sleep_and_cannot(self) -> None:
        sleeps = with_metadata('idleSleepAfterSeconds: "300"')
        flag, variable = ("[--max-num-seqs", "[--enable-sleep-mode, --max-num-seqs"), "VLLM_SERVER_DEV_MODE"
        env = (
            "          lifecycle:",
            f'          env: [{{name: {variable}, value: "1"}}]\n          lifecycle:',
        )
        assert found(sleeps, DEPLOYMENT) == [("cannot-sleep", 28)]
        assert found(sleeps, changed(DEPLOYMENT, flag)) == [("cannot-sleep", 28)]
        assert found(sleeps, changed(DEPLOYMENT, env)) == [("cannot-sleep", 28)]
        assert found(sleeps, changed(DEPLOYMENT, flag, env)) == []
        off = changed(DEPLOYMENT, flag, (env[0], env[1].replace('"1"', '"0"')))
        assert found(sleeps, off) == [("cannot-sleep", 28)]
        elsewhere = (env[0], "          envFrom: [{configMapRef: {name: vllm}}]\n          lifecycle:")
        assert found(sleeps, changed(DEPLOYMENT, flag, elsewhere)) == [], "who gives it is not in these files"
        assert found(sleeps) == [], "nor is the engine"
        assert found(SCALED_OBJECT, DEPLOYMENT) == []

    def test_what_is_no_engine_is_left_alone_unless_we_scale_it(self) -> None:
        text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: llama, namespace: chat}\n"
        text += "spec: {template: {spec: {containers: [{name: a, image: registry.example.com/server}]}}}\n"
        assert found(text) == []
        assert found(SCALED_OBJECT, text) == [("pre-stop", 4)]
        assert found(SCALED_OBJECT, fixed(SCALED_OBJECT, text)[1]) == []


def test_an_address_whose_service_leads_to_several_deployments() -> None:
    service = (
        "apiVersion: v1\nkind: Service\nmetadata: {name: loadtide, namespace: loadtide}\nspec: {selector: {app: x}}\n"
    )
    deployment = "---\nkind: Deployment\nmetadata: {name: %s, namespace: loadtide}\nspec: {template: {metadata: {labels: {app: x}}}}\n"  # noqa: E501
    assert found(SCALED_OBJECT, service + deployment % "loadtide") == []
    both = service + deployment % "loadtide" + deployment % "redis"
    assert found(SCALED_OBJECT, both) == [("address-unrelated", 28)]


def test_every_rule_is_in_the_reference_and_every_example_of_it_is_yaml() -> None:
    text = reference()
    for rule in RULES:
        assert f"{rule.id} ({rule.severity}): " in text
        if not rule.fix.startswith(("loadtide", "helm", "--")):
            yaml.safe_load(rule.fix)
    assert len({rule.id for rule in RULES}) == len(RULES)


def test_every_rule_is_tried_here() -> None:
    tried = {rule for rule, *_ in SCALED_OBJECTS} | {rule.id for rule in READING_RULES}
    tried |= {"triggers-disagree", "several-triggers", "cron-trigger", "address-unrelated", "tolerance", "batch-cap"}
    tried |= {"grace-period", "pre-stop", "streams-cut", "cannot-sleep"}
    assert tried == {rule.id for rule in RULES}


def test_severities_mean_what_they_say() -> None:
    errors = {rule.id for rule in RULES if rule.severity is Severity.ERROR}
    assert {"metric-type", "unquoted", "fallback-zero", "grace-period"} <= errors
