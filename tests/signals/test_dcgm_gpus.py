"""GPUs found by the pod that holds them and by labels: the same as looking at every one, in one look-up."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from scaler.signals.dcgm import DcgmGpu, PodName
from scaler.signals.dcgm_gpus import DcgmGpus
from scaler.signals.gpu import GpuReading


def gpu(uuid: str, *series: Mapping[str, str]) -> DcgmGpu:
    return DcgmGpu(GpuReading(uuid), series)


def uuids(readings: tuple[GpuReading, ...]) -> list[str]:
    return [reading.uuid for reading in readings]


GPUS = DcgmGpus(
    [
        gpu("whole", {"namespace": "chat", "pod": "a-0", "hostname": "n7"}),
        gpu("shared", {"namespace": "chat", "pod": "a-0"}, {"namespace": "chat", "pod": "b-0"}, {"hostname": "n7"}),
        gpu("else", {"namespace": "other", "pod": "a-0", "hostname": "n8"}),
        gpu("nobody", {"hostname": "n7"}),
    ]
)


def test_a_pods_gpus_are_those_it_holds_shared_ones_included() -> None:
    assert uuids(GPUS.held_by(PodName("chat", "a-0"))) == ["whole", "shared"]
    assert uuids(GPUS.held_by(PodName("chat", "b-0"))) == ["shared"]
    assert uuids(GPUS.held_by(PodName("other", "a-0"))) == ["else"]
    assert GPUS.held_by(PodName("chat", "a-00")) == ()
    assert GPUS.held_by(PodName("", "")) == ()


def test_a_namespace_that_is_not_known_stands_for_any() -> None:
    assert uuids(GPUS.held_by(PodName("", "a-0"))) == ["whole", "shared", "else"]
    unnamed = DcgmGpus([gpu("unnamed", {"pod": "a-0"})])
    assert uuids(unnamed.held_by(PodName("chat", "a-0"))) == ["unnamed"]


def test_match_labels_are_exact_and_all_of_one_series() -> None:
    assert uuids(GPUS.matching({"hostname": "n7"})) == ["whole", "shared", "nobody"]
    assert uuids(GPUS.matching({"hostname": "n7", "namespace": "chat"})) == ["whole"]
    assert GPUS.matching({"hostname": "n"}) == ()
    assert GPUS.matching({"hostname": "n7", "absent": ""}) == ()
    assert GPUS.matching({}) == ()


labels = st.dictionaries(st.sampled_from(["pod", "namespace", "hostname"]), st.sampled_from(["x", "y"]))


@given(st.lists(st.lists(labels, min_size=1, max_size=3), max_size=6), labels)
def test_what_labels_find_is_what_looking_at_every_series_finds(
    found: list[list[dict[str, str]]], match: dict[str, str]
) -> None:
    gpus = [gpu(str(number), *series) for number, series in enumerate(found)]
    expected = [
        each.reading.uuid for each in gpus if match and any(match.items() <= own.items() for own in each.series)
    ]
    assert uuids(DcgmGpus(gpus).matching(match)) == expected
