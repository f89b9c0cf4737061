"""Rules about how KEDA reaches us: the address it dials, and TLS."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from scaler.check.edit import Write
from scaler.check.rule import Hit, Rule, Severity
from scaler.check.subjects import ScaledObject, same
from scaler.policy.addresses import shown_url

#: What KEDA's external scaler takes from a TriggerAuthentication only.
_CERTIFICATES = ("caCert", "tlsClientCert", "tlsClientKey")
_ADDRESS_FIX = "scalerAddress: loadtide.NAMESPACE.svc:6000   # NAMESPACE: where loadtide runs"


def scaler_address(scaled: ScaledObject) -> Iterator[Hit]:
    for trigger in scaled.ours:
        path, address = (*trigger.path, "metadata", "scalerAddress"), trigger.texts.get("scalerAddress", "").strip()
        if not address:
            yield Hit(path, "scalerAddress is missing: KEDA does not know where loadtide is", _ADDRESS_FIX)
            continue
        bare = re.sub(r"^[a-z]+://(?!/)/?", "", address).rstrip("/").rpartition("@")[2]
        host, colon, port = bare.rpartition(":")
        if bare != address:
            yield Hit(
                path,
                f"scalerAddress {shown_url(address)} is a URL, and gRPC takes HOST:PORT",
                f"scalerAddress: {bare}",
                (Write(path, bare),),
            )
        if not colon or not port.isdecimal():
            yield Hit(path, f"scalerAddress {shown_url(address)} has no port", f"scalerAddress: {bare}:6000")
        elif _is_loopback(host):
            yield Hit(path, f"{host} is KEDA's own pod, not loadtide's", _ADDRESS_FIX)


def address_namespace(scaled: ScaledObject) -> Iterator[Hit]:
    for trigger in scaled.ours:
        host = trigger.texts.get("scalerAddress", "").strip().rpartition(":")[0]
        if host and "." not in host and "/" not in host and ":" not in host and not _is_loopback(host):
            yield Hit(
                (*trigger.path, "metadata", "scalerAddress"),
                f"{host} is looked up in KEDA's namespace, not in that of this ScaledObject",
                f"scalerAddress: {host}.NAMESPACE.svc:6000   # NAMESPACE: where loadtide runs",
            )


def address_unrelated(scaled: ScaledObject) -> Iterator[Hit]:
    for trigger in scaled.ours:
        name, _, rest = trigger.texts.get("scalerAddress", "").partition(".")
        namespace = rest.partition(".")[0].partition(":")[0]
        for service in scaled.estate.of_kind("Service"):
            selector = service.mapping("spec", "selector")
            if service.name != name or not same(service.namespace, namespace) or not selector:
                continue
            behind = [
                manifest.name
                for manifest in scaled.estate.manifests
                if same(manifest.namespace, service.namespace)
                and selector.items() <= manifest.mapping("spec", "template", "metadata", "labels").items()
            ]
            if len(behind) > 1:
                yield Hit(
                    (*trigger.path, "metadata", "scalerAddress"),
                    f"the Service {name} leads to the pods of {' and '.join(behind)}: KEDA's calls go to each by turns",
                    f"selector: {{app.kubernetes.io/name: {name}}}   # in the Service: labels that only loadtide has",
                )


def unsafe_ssl(scaled: ScaledObject) -> Iterator[Hit]:
    for trigger in scaled.ours:
        texts = {name: text.strip().lower() for name, text in trigger.texts.items()}
        authenticated = scaled.manifest.get(*trigger.path, "authenticationRef") is not None
        if texts.get("unsafeSsl") == "true" and texts.get("enableTLS") != "true" and not authenticated:
            yield Hit(
                (*trigger.path, "metadata", "unsafeSsl"),
                "unsafeSsl alone stays plaintext: KEDA uses TLS only with enableTLS or certificates",
                'enableTLS: "true"   # or leave unsafeSsl out, if plaintext is meant',
            )


def certificate_in_metadata(scaled: ScaledObject) -> Iterator[Hit]:
    for trigger in scaled.ours:
        for name in (*_CERTIFICATES, "tlsCertFile"):
            if name in trigger.metadata:
                yield Hit(
                    (*trigger.path, "metadata", name),
                    f"KEDA takes {name} from a TriggerAuthentication only; here it does nothing, and anybody reads it",
                    "authenticationRef: {name: loadtide-tls}   # a TriggerAuthentication with caCert",
                )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


ADDRESS_RULES = (
    Rule(
        "scaler-address",
        Severity.ERROR,
        "scalerAddress is missing, or is not HOST:PORT of a Service",
        "KEDA dials it as it stands, over gRPC and from its own pod.",
        "scalerAddress: loadtide.loadtide.svc:6000",
        scaler_address,
    ),
    Rule(
        "address-namespace",
        Severity.WARNING,
        "scalerAddress is a name without a namespace",
        "KEDA looks it up in KEDA's namespace.",
        "scalerAddress: loadtide.loadtide.svc:6000",
        address_namespace,
    ),
    Rule(
        "address-unrelated",
        Severity.ERROR,
        "the Service behind scalerAddress leads to unrelated pods",
        "KEDA's client balances over all of them: some calls reach loadtide, the others fail or reach another server.",
        "selector: {app.kubernetes.io/name: loadtide}",
        address_unrelated,
    ),
    Rule(
        "unsafe-ssl",
        Severity.WARNING,
        "unsafeSsl without enableTLS or certificates",
        "It says not to verify a certificate, and there is none: the connection stays plaintext.",
        'enableTLS: "true"',
        unsafe_ssl,
    ),
    Rule(
        "certificate-in-metadata",
        Severity.WARNING,
        "certificates in the trigger's metadata",
        "KEDA reads them from a TriggerAuthentication only.",
        "authenticationRef: {name: loadtide-tls}",
        certificate_in_metadata,
    ),
)
