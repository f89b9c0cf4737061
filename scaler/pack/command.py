"""``loadtide rules``: the rule pack for one's own Prometheus."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from scaler.pack.model import Options, checked
from scaler.pack.written import labels_of, prometheus_rule, prometheus_rules, without_sources


class Form(StrEnum):
    """What the rules are written as."""

    PROMETHEUS = "prometheus"
    PROMETHEUSRULE = "prometheusrule"


def rules(
    form: Annotated[
        Form,
        typer.Option("--format", help="prometheus for rule_files, prometheusrule for the Prometheus operator."),
    ] = Form.PROMETHEUS,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Label of the PrometheusRule: what the operator's ruleSelector asks for. May be given several times.",
        ),
    ] = None,
    namespace: Annotated[
        str, typer.Option(help="Where loadtide runs: the PrometheusRule's, and that of alerts about loadtide itself.")
    ] = Options().namespace,
    without: Annotated[
        str,
        typer.Option(
            metavar="SOURCE,...",
            help="Sources that this Prometheus does not scrape: vllm, sglang, tgi, triton, dcgm, kube-state-metrics.",
        ),
    ] = "",
    runbooks: Annotated[
        str, typer.Option(metavar="URL", help="Where the pages of rules/runbooks are served.")
    ] = Options().runbooks,
    grafana: Annotated[
        str, typer.Option(metavar="URL", help="The Grafana that has loadtide's dashboards.")
    ] = Options().grafana,
) -> None:
    """Print the recording and alert rules for Prometheus 2.42 or newer.

    [bold]Plain Prometheus:[/bold]  loadtide rules > loadtide.rules.yaml

    [bold]kube-prometheus-stack:[/bold]  loadtide rules --format prometheusrule --label release=kps | kubectl apply -f -

    The operator takes only rules that carry the labels of its ruleSelector, and says nothing of the others:
    [dim]kubectl get prometheus -A -o jsonpath='{..ruleSelector}'[/dim] shows which.

    Next: route by severity, as in deploy/alertmanager.yaml. Each alert has a page in rules/runbooks.
    """
    try:
        options = checked(
            Options(
                namespace=namespace,
                labels=labels_of(label or ()),
                without=without_sources(without),
                runbooks=runbooks.rstrip("/"),
                grafana=grafana.rstrip("/"),
            )
        )
        text = prometheus_rule(options) if form is Form.PROMETHEUSRULE else prometheus_rules(options)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    typer.echo(text, nl=False)
