"""What metadata may choose: addresses of its own namespace, no queries, nothing that is the operator's."""

from __future__ import annotations

from pathlib import Path

import pytest
from yarl import URL

from scaler.policy.errors import PolicyError
from scaler.policy.keys import KEYS
from scaler.policy.layers import PolicyFile
from scaler.policy.tenancy import ADDRESS_KEYS, OPERATOR_KEYS, QUERY_KEYS, operator_keys

OWN = [
    "http://llama.chat.svc:8000/metrics",
    "https://llama.chat.svc/metrics",
    "http://llama-0.llama.chat.svc.cluster.local:8000/metrics",
    "http://llama.chat.svc.cluster.local.:8000/metrics",
    "http://LLAMA.Chat.SVC:8000/metrics",
    "http://user:secret@llama.chat.svc:8000/metrics",
]
FOREIGN = [
    "http://llama.billing.svc:8000/metrics",
    "http://llama:8000/metrics",
    "http://llama.chat:8000/metrics",  # the top-level domain .chat is everybody's
    "http://chat.svc:8000/",
    "http://llama.chat.svc.example.com/",
    "http://llama.chat.svc.cluster.local.example.com/",
    "http://169.254.169.254/latest/meta-data/",
    "http://127.0.0.1:8080/",
    "http://localhost:8080/",
    "http://[::1]:8080/",
    "http://2852039166/",
    "http://example.com/.chat.svc",
    "http://example.com/?.chat.svc",
    "http://example.com#.chat.svc",
    "http://llama.chat.svc@example.com/",
    "http://llama.chat.svc:80@example.com/",
    "http://example.com\\@llama.chat.svc/",
    "http://example.com\\.chat.svc/",
    "http://example。com.chat.svc/",
    "http://kubernetes.default.svc/",
]


def policy_file(tmp_path: Path, text: str) -> PolicyFile:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    return PolicyFile.load(path)


def refusal(policies: PolicyFile, **metadata: str) -> str:
    with pytest.raises(PolicyError) as caught:
        policies.resolve("chat/llama", metadata)
    return str(caught.value)


class TestAddresses:
    @pytest.mark.parametrize("url", OWN)
    def test_of_its_own_namespace_are_taken(self, url: str) -> None:
        assert PolicyFile.empty().resolve("chat/llama", {"scrapeUrls": url}).policy.scrape.urls == (url,)

    @pytest.mark.parametrize("url", FOREIGN)
    def test_of_anywhere_else_are_refused(self, url: str) -> None:
        said = refusal(PolicyFile.empty(), scrapeUrls=url)
        assert 'metadata "scrapeUrls": ' in said
        assert "NAME.chat.svc:PORT" in said or "is not a URL" in said

    @pytest.mark.parametrize("url", OWN)
    def test_the_host_judged_is_the_host_that_will_be_asked(self, url: str) -> None:
        """The HTTP client reads URLs with another parser than the policy does."""
        assert (URL(url).host or "").rstrip(".").endswith((".chat.svc", ".chat.svc.cluster.local"))

    def test_one_foreign_among_own_is_refused(self) -> None:
        assert '"x.other.svc"' in refusal(PolicyFile.empty(), scrapeUrls=f"{OWN[0]}, http://x.other.svc/m")

    @pytest.mark.parametrize(
        ("name", "good", "bad"),
        [
            ("scrapeDns", "llama.chat.svc:8000", "llama.billing.svc:8000"),
            ("scrapeDns", "llama.chat.svc.cluster.local:8000", "169.254.169.254:80"),
            ("gpuDcgmUrls", "http://dcgm.chat.svc:9400/metrics", "http://dcgm.gpu-operator.svc:9400/metrics"),
        ],
    )
    def test_under_every_key_that_holds_one(self, name: str, good: str, bad: str) -> None:
        PolicyFile.empty().resolve("chat/llama", {name: good})
        assert "NAME.chat.svc:PORT" in refusal(PolicyFile.empty(), **{name: bad})

    def test_what_resolves_inside_its_namespace_needs_no_judging(self) -> None:
        metadata = {"scrapeEndpointSlice": "llama:8000", "targetName": "llama"}
        assert PolicyFile.empty().resolve("chat/llama", metadata).policy.scrape.endpoint_slice == "llama:8000"

    def test_the_policy_file_may_name_any(self, tmp_path: Path) -> None:
        text = "workloads:\n  chat/llama:\n    scrape: {urls: [http://10.0.0.7:8000/metrics]}\n"
        resolved = policy_file(tmp_path, text).resolve("chat/llama", {"replicasMax": "4"})
        assert resolved.policy.scrape.urls == ("http://10.0.0.7:8000/metrics",)

    def test_a_secret_address_is_not_quoted(self) -> None:
        said = refusal(PolicyFile.empty(), scrapeUrlsFromEnv="http://u:hunter2@elsewhere.example:8000/metrics")
        assert "hunter2" not in said
        assert "elsewhere" not in said

    def test_a_password_in_a_plain_address_is_not_quoted(self) -> None:
        assert "hunter2" not in refusal(PolicyFile.empty(), scrapeUrls="http://u:hunter2@elsewhere.example/metrics")

    def test_are_limited_in_number_and_length(self) -> None:
        many = " ".join(f"http://m{number}.chat.svc:8000/metrics" for number in range(257))
        assert "at most 256" in refusal(PolicyFile.empty(), scrapeUrls=many)
        assert "at most 1024" in refusal(PolicyFile.empty(), scrapeUrls=f"http://m.chat.svc/{'x' * 2000}")


class TestWhatTheOperatorSays:
    def test_allow_takes_any_address(self, tmp_path: Path) -> None:
        policies = policy_file(tmp_path, "tenancy: {metadata_urls: allow}\n")
        url = "http://127.0.0.1:8000/metrics"
        assert policies.resolve("chat/llama", {"scrapeUrls": url}).policy.scrape.urls == (url,)

    def test_deny_takes_none(self, tmp_path: Path) -> None:
        policies = policy_file(tmp_path, "tenancy: {metadata_urls: deny}\n")
        assert "tenancy.metadata_urls: deny" in refusal(policies, scrapeUrls=OWN[0])
        policies.resolve("chat/llama", {"replicasMax": "3", "scrapeUrls": ""})

    def test_another_cluster_domain(self, tmp_path: Path) -> None:
        policies = policy_file(tmp_path, "tenancy: {cluster_domain: corp.example}\n")
        policies.resolve("chat/llama", {"scrapeUrls": "http://llama.chat.svc.corp.example/metrics"})
        assert "cluster.local" in refusal(policies, scrapeUrls="http://llama.chat.svc.cluster.local/metrics")

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            (
                "tenancy: {metadata_urls: some}",
                '1: tenancy.metadata_urls: "some" is not allowed; write one of own_names',
            ),
            ("tenancy: {metadata_url: deny}", '1: tenancy.metadata_url: no such key; did you mean "metadata_urls"?'),
            (
                "tenancy:\n  workloads_per_namespace: 0",
                "2: tenancy.workloads_per_namespace: 0 is not allowed; write a whole",
            ),
            ("tenancy: deny", '1: tenancy: "deny" is not allowed; write a mapping'),
        ],
    )
    def test_a_mistake_in_it_is_told_as_any_other(self, tmp_path: Path, text: str, says: str) -> None:
        with pytest.raises(PolicyError) as caught:
            policy_file(tmp_path, text)
        assert says in str(caught.value)


class TestQueries:
    METADATA = {"prometheusSource": "main", "prometheusMatch": "{app: x}", "prometheusQueries": "{running: sum(up)}"}  # noqa: RUF012
    SOURCES = "sources: {main: {url: http://prometheus.monitoring.svc:9090}}\n"

    def test_are_the_operators(self, tmp_path: Path) -> None:
        said = refusal(policy_file(tmp_path, self.SOURCES), **self.METADATA)
        assert 'metadata "prometheusQueries": metadata may bring no queries' in said

    def test_may_be_allowed(self, tmp_path: Path) -> None:
        policies = policy_file(tmp_path, self.SOURCES + "tenancy: {metadata_queries: allow}\n")
        assert policies.resolve("chat/llama", self.METADATA).policy.prometheus.queries


def test_every_key_that_looks_like_an_address_or_a_credential_is_judged() -> None:
    """A policy key that comes later is refused in metadata until somebody has thought about it."""
    assert operator_keys([("new", "url"), ("new", "bearer_token"), ("x", "password_file"), ("x", "urls")]) == {
        ("new", "url"),
        ("new", "bearer_token"),
        ("x", "password_file"),
        ("x", "urls"),
    }
    assert not operator_keys([("batch", "token_budget"), ("scrape", "path"), ("replicas", "max"), ("target", "name")])
    assert set(ADDRESS_KEYS) | set(QUERY_KEYS) <= KEYS.keys()
    assert KEYS.keys() >= OPERATOR_KEYS
