"""``loadtide check``: mistakes in manifests and policies, found before they cost anything."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

import typer

from scaler.check.report import Format
from scaler.process.options import failed


def check(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE...", help="YAML files, compared with one another; '-' is standard input."),
    ] = None,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Print the files corrected, comments kept, on standard output, and what is left to do on standard "
            "error. Corrects only what can be meant in one way.",
        ),
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 where there are warnings.")] = False,
    how: Annotated[
        Format, typer.Option("--format", help="text for people, json for programs, github for annotations.")
    ] = Format.TEXT,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="Leave a rule out. May be given several times.")
    ] = None,
    list_rules: Annotated[
        bool, typer.Option("--list-rules", help="Explain every rule: what it finds, why, what is right.")
    ] = False,
) -> None:
    """Find mistakes in ScaledObjects, policy files and Deployments before they cost anything. Asks no cluster.

    [bold]Try it:[/bold]  loadtide check scaledobject.yaml deployment.yaml policy.yaml

    From a cluster:  [bold]kubectl get scaledobject,deployment,configmap -A -o yaml | loadtide check -[/bold]

    Give what belongs together at once: then maxReplicaCount is compared with the policy, the grace period with the
    engine's flags. Each finding says the line, the rule, the reason and what to write. A comment
    [dim]# loadtide: allow RULE[/dim] on a line, or the one before, allows it there.

    Exit status for CI: 0 clean (or notes), 1 warnings with --strict, 2 errors.
    """
    # Imported here: `loadtide serve` must not wait for what only this command needs.
    from scaler.check.examine import correct, examine
    from scaler.check.report import exit_code, rendered
    from scaler.check.table import RULES, reference

    if list_rules:
        typer.echo(reference(), nl=False)
        raise typer.Exit
    unknown = [name for name in ignore or () if name not in {rule.id for rule in RULES}]
    if unknown:
        close = get_close_matches(unknown[0], [rule.id for rule in RULES], 1)
        meant = f"write {close[0]}" if close else "--list-rules names them all"
        raise failed(f"--ignore {unknown[0]}: there is no such rule; {meant}")
    if not files:
        raise typer.BadParameter("name a file to check, or - for standard input; --list-rules explains the rules")
    texts = {file: _yaml_text(file) for file in dict.fromkeys(files)}
    if fix:
        texts = correct(texts, ignore or ())
        for file, text in texts.items():
            typer.echo((f"---\n# {file}\n" if len(texts) > 1 else "") + text, nl=False)
    findings = examine(texts, ignore or ())
    typer.echo(rendered(findings, len(texts), how), nl=False, err=fix)
    raise typer.Exit(exit_code(findings, strict=strict))


def _yaml_text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except IsADirectoryError as error:
        raise failed(f"{file}: is a folder; name the files in it, for example {file.rstrip('/')}/*.yaml") from error
    except OSError as error:
        raise failed(f"{file}: cannot be read ({error.strerror}); name YAML files, or - for standard input") from error
    except UnicodeError as error:
        raise failed(f"{file}: is not UTF-8 text; name YAML files, or - for standard input") from error
