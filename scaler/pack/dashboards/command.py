"""``loadtide dashboards``: the dashboards for one's own Grafana."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scaler.pack.dashboards.written import Form, Which, files


def dashboards(
    which: Annotated[list[Which] | None, typer.Argument(help="Which of them. Unset: all three.")] = None,
    form: Annotated[
        Form,
        typer.Option("--format", help="json to import or provision from files, configmap for Grafana's sidecar."),
    ] = Form.JSON,
    datasource: Annotated[
        str | None,
        typer.Option(help="Name or uid of the data source chosen at first. Unset: Grafana's default Prometheus."),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option(help="Namespace written into the ConfigMaps. Unset: kubectl's.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write files to. Unset: standard output.")] = None,
) -> None:
    """Print or write the Grafana dashboards: overview, decisions, gpu.

    [bold]Import one:[/bold]  loadtide dashboards overview > overview.json

    [bold]Provision all:[/bold]  loadtide dashboards --format configmap --namespace monitoring | kubectl apply -f -

    (The ConfigMaps have the label that the sidecar of Grafana's Helm chart looks for, grafana_dashboard: "1".)

    Every panel asks the data source chosen at the top of the dashboard. Some read the recorded series of the rule
    pack: load that too. dashboards/README.md says what must be scraped, and how.
    """
    try:
        made = files(form, which or tuple(Which), datasource, namespace)
    except ValueError as error:
        raise typer.BadParameter(f"--namespace: {error}") from error
    if out is not None:
        try:
            out.mkdir(parents=True, exist_ok=True)
            for name, text in made.items():
                (out / name).write_text(text, encoding="utf-8")
                typer.echo(out / name)
        except OSError as error:
            raise typer.BadParameter(
                f"--out {out}: cannot be written ({error.strerror}); name another folder"
            ) from error
        return
    if form is Form.JSON and len(made) > 1:
        raise typer.BadParameter(
            f"Grafana imports one file at a time; name one ({', '.join(Which)}), or write all with --out FOLDER"
        )
    typer.echo("---\n".join(made.values()), nl=False)
