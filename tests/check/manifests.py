"""A ScaledObject and a Deployment that are right; tests make one thing in them wrong."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import dedent

from scaler.check.examine import correct, examine
from scaler.check.rule import Finding

SCALED_OBJECT = dedent("""\
    # what scales the chat model
    apiVersion: keda.sh/v1alpha1
    kind: ScaledObject
    metadata:
      name: llama
      namespace: chat
    spec:
      scaleTargetRef:
        name: llama
      pollingInterval: 10        # quick
      minReplicaCount: 0
      maxReplicaCount: 6
      cooldownPeriod: 30
      advanced:
        horizontalPodAutoscalerConfig:
          behavior:
            scaleUp:
              stabilizationWindowSeconds: 0
              policies:
                - type: Pods
                  value: 6
                  periodSeconds: 15
      triggers:
        - type: external-push
          metricType: AverageValue
          metadata:
            # quoted, all of them
            scalerAddress: loadtide.loadtide.svc:6000
            scrapeUrls: http://llama.chat.svc:8000/metrics
            pushEnabled: "true"
            replicasMax: "6"
            batchMax: "64"       # --max-num-seqs
    """)

DEPLOYMENT = dedent("""\
    apiVersion: apps/v1
    kind: Deployment
    metadata:
      name: llama
      namespace: chat
    spec:
      template:
        spec:
          terminationGracePeriodSeconds: 150
          containers:
            - name: vllm
              image: vllm/vllm-openai:v0.18.0
              args: [--max-num-seqs=64, --shutdown-timeout, "120"]
              lifecycle:
                preStop:
                  exec:
                    command: [sleep, "15"]
    """)

POLICY = dedent("""\
    workloads:
      chat/llama:
        scrape: {urls: ["http://llama.chat.svc:8000/metrics"]}
        push: {enabled: true}
        replicas: {max: 6}
        batch: {max: 64}
    """)


def changed(text: str, *changes: tuple[str, str]) -> str:
    """``text`` with each first occurrence replaced; what is to be replaced must be there."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def with_metadata(*lines: str) -> str:
    """The ScaledObject with more lines of metadata, the first of which is line 28."""
    anchor = "        scalerAddress:"
    return changed(SCALED_OBJECT, (anchor, "".join(f"        {line}\n" for line in lines) + anchor))


def found(*texts: str) -> list[tuple[str, int]]:
    """The (rule, line) of every finding in these files, read together."""
    return [(finding.rule, finding.line) for finding in findings(*texts)]


def findings(*texts: str) -> list[Finding]:
    """Every finding in these files, read together."""
    return examine(named(texts))


def fixed(*texts: str) -> list[str]:
    """The files corrected."""
    return list(correct(named(texts)).values())


def named(texts: Iterable[str]) -> dict[str, str]:
    """The texts by a file name each."""
    return {f"{number}.yaml": text for number, text in enumerate(texts)}
