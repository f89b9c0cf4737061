"""What was typed, and what is meant by it: a setting to study and a server to ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from scaler.lab.backtest.span import Span, read_duration, read_time
from scaler.lab.backtest.study import Setting
from scaler.policy.addresses import has_login, is_http_url, shown_text, shown_url
from scaler.policy.errors import PolicyError
from scaler.policy.gpu import Gpu
from scaler.policy.layers import PolicyFile, Resolved
from scaler.policy.prometheus import PrometheusServer
from scaler.signals.preset import load_preset, register_presets
from scaler.value import frozen

#: A week of a large workload makes large answers; a server may take long over one.
_TIMEOUT_SECONDS: Final = 60.0
#: Beginnings of warnings about where a live scaler reads, which here is said by other means.
_ABOUT_LIVE_READING: Final = ("no source:", "prometheus.", "the replicas are scraped")


@frozen
class Options:
    """The command's options as they were typed; its help says what each means."""

    workload: str
    prometheus: str | None = None
    length: str = "7d"
    until: str | None = None
    policy: Path | None = None
    values: tuple[str, ...] = ()
    match: tuple[str, ...] = ()
    presets: Path | None = None
    engine: str | None = None
    cold_start_seconds: float | None = None
    gpus_per_replica: float | None = None
    gpu_hour_price: float | None = None
    currency: str | None = None
    headers: tuple[str, ...] = ()
    bearer_token_file: Path | None = None
    basic_user: str | None = None
    basic_password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_skip_verify: bool = False


def meant(options: Options, now: float) -> tuple[Setting, PrometheusServer]:
    """The setting and the server at ``now`` (Unix seconds). Raises ``ValueError`` (of which
    :class:`~scaler.policy.errors.PolicyError` and :class:`~scaler.signals.family.PresetError` are kinds) that says what
    to write instead.
    """
    register_presets(options.presets)
    file = PolicyFile.empty() if options.policy is None else PolicyFile.load(options.policy)
    resolved = _resolved(file, options)
    check_price(options.gpu_hour_price, options.currency)
    server = server_meant(file, options.prometheus or resolved.policy.prometheus.source, options)
    end = now if options.until is None else read_time(options.until)
    if end > now:
        raise ValueError(f"--until {options.until}: lies in the future; nothing has been recorded there yet")
    gpu = resolved.policy.gpu
    setting = Setting(
        workload=options.workload,
        policy=resolved.policy,
        preset=load_preset(resolved.policy.engine),
        server=server.url,
        span=Span(end - read_duration(options.length), end),
        policy_source=_policy_source(options),
        policy_warnings=tuple(text for text in resolved.warnings if not text.startswith(_ABOUT_LIVE_READING)),
        cold_start_seconds=options.cold_start_seconds,
        gpus_per_replica=options.gpus_per_replica or float(gpu.per_replica),
        gpu_hour_price=options.gpu_hour_price,
        # The policy's currency has a default, which says nothing of a price that was typed here.
        currency=options.currency or (gpu.currency if resolved.policy.priced else ""),
    )
    return setting, server


def _resolved(file: PolicyFile, options: Options) -> Resolved:
    metadata = dict(_pair(text, "--set", "replicas.max=12") for text in options.values)
    if options.engine is not None:
        metadata["engine"] = options.engine
    try:
        resolved = file.resolve(options.workload, metadata)
    except PolicyError as error:
        # A value typed here is read as ScaledObject metadata is, and is called what it was typed as.
        raise ValueError(str(error).replace("metadata ", "--set ")) from error
    unknown = [warning for warning in resolved.warnings if warning.startswith("unknown key")]
    if unknown:
        raise ValueError("\n".join(f"--set: {shown_text(warning)}" for warning in unknown))
    labels = labels_meant(options.match)
    if not labels:
        return resolved
    group = resolved.policy.prometheus
    try:
        prometheus = group.model_validate({**group.model_dump(), "match": labels})
    except ValidationError as error:
        raise ValueError(f"--match: {_told(error)}") from error
    return Resolved(resolved.policy.model_copy(update={"prometheus": prometheus}), resolved.warnings)


def server_meant(file: PolicyFile, name: str | None, options: Options) -> PrometheusServer:
    """The server that is asked: one of the policy file by ``name``, or by its URL and the credentials typed. Raises
    ``ValueError`` that says what to write instead.
    """
    if name is None:
        raise ValueError(
            "no server: write --prometheus http://prometheus.monitoring:9090, or the name of a source in --policy"
        )
    if name in file.sources:
        return file.sources[name].model_copy(update={"timeout_seconds": _TIMEOUT_SECONDS})
    if "://" not in name and file.sources:
        what = f"neither a URL nor a source of the policy file, which has {', '.join(file.sources)}"
        raise ValueError(f"--prometheus {shown_url(name)}: {what}")
    if is_http_url(name) and has_login(name):
        what = "has a user and a password in it; give them by --basic-user and --basic-password-file"
        raise ValueError(f"--prometheus {shown_url(name)}: {what}")
    try:
        return PrometheusServer.model_validate(
            {**_credentials(options), "url": name, "timeout_seconds": _TIMEOUT_SECONDS}
        )
    except ValidationError as error:
        raise ValueError(f"--prometheus {shown_url(name)}: {_told(error).removeprefix('url ')}") from error


def _credentials(options: Options) -> dict[str, Any]:
    user, password = options.basic_user, options.basic_password_file
    if (user is None) != (password is None):
        raise ValueError("--basic-user and --basic-password-file belong together; give both")
    return {
        "headers": dict(map(_header, options.headers)),
        "bearer_token_file": _text(options.bearer_token_file),
        "basic": None if user is None else {"username": user, "password_file": _text(password)},
        "tls": {
            "ca_file": _text(options.ca_file),
            "cert_file": _text(options.cert_file),
            "key_file": _text(options.key_file),
            "insecure_skip_verify": options.insecure_skip_verify,
        },
    }


def _policy_source(options: Options) -> str:
    source = "the defaults" if options.policy is None else str(options.policy)
    return shown_text(f"{source} with {', '.join(options.values)}") if options.values else source


def labels_meant(match: tuple[str, ...]) -> dict[str, str]:
    """``--match LABEL=VALUE``, as often as it was given. Raises ``ValueError``."""
    return dict(_pair(text, "--match", "model_name=llama") for text in match)


def check_price(hour_price: float | None, currency: str | None) -> None:
    """``--gpu-hour-price`` and ``--currency`` where they were typed, by the rules of ``gpu.hour_price`` and
    ``gpu.currency``. Raises ``ValueError`` that says what to write instead.
    """
    for option, typed, key, instead in (
        ("--gpu-hour-price", hour_price, "hour_price", "write what a GPU costs an hour, for example 2.50"),
        ("--currency", currency, "currency", "write an ISO 4217 code, three capital letters, for example EUR"),
    ):
        if typed is not None:
            try:
                Gpu.model_validate({key: typed})
            except ValidationError as error:
                raise ValueError(f"{option} {repr(typed)[:40]}: {instead}") from error


def _told(error: ValidationError) -> str:
    """What is wrong, without the values: one of them may be a secret."""
    parts = error.errors(include_url=False, include_input=False)
    return shown_text(
        "; ".join(
            f"{'.'.join(map(str, part['loc']))} {part['msg'].removeprefix('Value error, ')}".strip() for part in parts
        )
    )


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip() or not value.strip():
        raise ValueError("--header: write NAME: VALUE, for example --header 'X-Scope-OrgID: chat'")
    return name.strip(), value.strip()


def _pair(text: str, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise ValueError(f"{option} {shown_text(text)}: write KEY=VALUE, for example {option} {example}")
    return name.strip(), value.strip()


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
