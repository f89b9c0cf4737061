"""DCGM exporters' series: from their own page and from a Prometheus, with each trap they hold."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.signals.dcgm import FIELDS, DcgmGpu, PodName, Row, read_rows, read_text
from scaler.signals.dcgm_gpus import DcgmGpus
from scaler.signals.exposition import ExpositionError
from scaler.signals.gpu import GpuMemory, GpuTelemetry, attach_gpu, gpu_signals
from scaler.signals.model import Known, Unknown
from tests.signals.timeline import Timeline, pod

MIB = 1024**2
UUID = "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"
LABELS = f'gpu="3",UUID="{UUID}",device="nvidia3",modelName="NVIDIA H100 80GB HBM3",hostname="n7"'


def page(*lines: str, labels: str = LABELS) -> str:
    """An exporter's page: ``NAME value`` lines under ``labels``, or whole lines that have their own."""
    body = ""
    for line in lines:
        name, _, value = line.partition(" ")
        body += f"# TYPE {name.partition('{')[0]} gauge\n"
        body += f"{line}\n" if "{" in line else f"{name}{{{labels}}} {value}\n"
    return body


def one(*lines: str, labels: str = LABELS) -> DcgmGpu:
    (gpu,) = read_text(page(*lines, labels=labels))
    return gpu


def row(name: str, value: float, unix: float | None = None, **labels: str) -> Row:
    return Row(name, {"UUID": UUID, "gpu": "3", **labels}, value, unix)


def test_a_page_becomes_readings_in_our_units() -> None:
    reading = one(
        "DCGM_FI_DEV_SM_CLOCK 1980",
        "DCGM_FI_DEV_GPU_TEMP 61",
        "DCGM_FI_DEV_POWER_USAGE 416.365000",
        "DCGM_FI_DEV_GPU_UTIL 87",
        "DCGM_FI_DEV_XID_ERRORS 0",
        "DCGM_FI_DEV_FB_FREE 6912",
        "DCGM_FI_DEV_FB_USED 74058",
        "DCGM_FI_DEV_FB_RESERVED 589",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE 0.861234",
        "DCGM_FI_PROF_SM_ACTIVE 0.412000",
        "DCGM_FI_PROF_SM_OCCUPANCY 0.210000",
    ).reading

    assert (reading.uuid, reading.instance, reading.name) == (UUID, None, "NVIDIA H100 80GB HBM3")
    assert reading.indexes == {"dcgm": 3}
    assert (reading.busy_ratio, reading.sm_active_ratio, reading.sm_occupancy_ratio) == (0.87, 0.412, 0.21)
    assert (reading.temperature_celsius, reading.power_watts, reading.xid) == (61.0, 416.365, 0)
    assert reading.memory == GpuMemory(81559 * MIB, 74058 * MIB, 6912 * MIB, 589 * MIB, "dcgm")
    assert reading.memory_free_ratio == pytest.approx(6912 / 81559)


def test_labels_of_old_exporters_are_read_too() -> None:
    gpu = one(
        "DCGM_FI_DEV_GPU_UTIL 5",
        labels=f'gpu="0",uuid="{UUID}",Hostname="n7",pod_name="llama-0",pod_namespace="chat",container_name="vllm"',
    )
    assert (gpu.reading.uuid, gpu.pods) == (UUID, {PodName("chat", "llama-0")})


@pytest.mark.parametrize("value", ["9223372036854775794", "NaN", "+Inf", "-1", "140737488355328.0"])
@pytest.mark.parametrize("name", list(FIELDS))
def test_a_value_that_is_none_is_left_out(name: str, value: str) -> None:
    assert read_text(page(f"{name} {value}")) == ()


def test_series_without_a_gpu_are_left_out_and_a_page_that_is_none_is_refused() -> None:
    assert read_text(page("DCGM_FI_DEV_GPU_UTIL 5", labels='nvswitch="nvswitch0",hostname="n7"')) == ()
    assert read_text("go_goroutines 12\n") == ()
    with pytest.raises(ExpositionError):
        read_text("<html>login</html>")
    with pytest.raises(ExpositionError):
        read_text(page("DCGM_FI_DEV_GPU_UTIL 5")[:-4])


def test_samples_a_collector_stamped_long_ago_are_left_out() -> None:
    body = page(f"DCGM_FI_DEV_GPU_UTIL{{{LABELS}}} 5 1760000000000")
    assert len(read_text(body, now_unix=1_760_000_030.0)) == 1
    assert read_text(body, now_unix=1_760_000_090.0) == ()


# Memory


def test_what_misses_the_total_is_reserved_if_it_is_little() -> None:
    told = one("DCGM_FI_DEV_FB_USED 8", "DCGM_FI_DEV_FB_FREE 80000", "DCGM_FI_DEV_FB_TOTAL 80957").reading
    assert told.memory == GpuMemory(80957 * MIB, 8 * MIB, 80000 * MIB, 949 * MIB, "dcgm")

    odd = one("DCGM_FI_DEV_FB_USED 6900", "DCGM_FI_DEV_FB_FREE 8000", "DCGM_FI_DEV_FB_TOTAL 128000").reading
    assert odd.memory is not None
    assert (odd.memory.reserved_bytes, odd.memory_free_ratio) == (None, None)


def test_old_exporters_count_reserved_as_used() -> None:
    memory = one("DCGM_FI_DEV_FB_USED 957", "DCGM_FI_DEV_FB_FREE 80000").reading.memory
    assert memory == GpuMemory(80957 * MIB, 957 * MIB, 80000 * MIB, None, "dcgm")


@pytest.mark.parametrize(
    "lines",
    [("DCGM_FI_DEV_FB_USED 8",), ("DCGM_FI_DEV_FB_FREE 8",), ("DCGM_FI_DEV_FB_USED 0", "DCGM_FI_DEV_FB_FREE 0")],
)
def test_half_a_memory_or_none_is_no_memory(lines: tuple[str, ...]) -> None:
    assert one(*lines).reading.memory is None


def test_unified_memory_is_known_by_name() -> None:
    labels = LABELS.replace("NVIDIA H100 80GB HBM3", "NVIDIA GB10")
    reading = one("DCGM_FI_DEV_GPU_UTIL 93", "DCGM_FI_DEV_FB_USED 5", "DCGM_FI_DEV_FB_FREE 1", labels=labels).reading
    assert (reading.busy_ratio, reading.unified_memory, reading.memory_free_ratio) == (0.93, True, None)


# G4-03: MIG


def mig(number: int) -> str:
    return f'{LABELS},GPU_I_PROFILE="3g.20gb",GPU_I_ID="{number}"'


def test_an_instances_utilisation_is_the_profiling_ratio_and_never_the_false_0() -> None:
    reading = one("DCGM_FI_DEV_GPU_UTIL 0", "DCGM_FI_PROF_GR_ENGINE_ACTIVE 0.71", labels=mig(1)).reading

    assert reading.busy_ratio == 0.71
    assert reading.instance is not None
    assert (reading.instance.gpu_instance, reading.instance.profile) == ("1", "3g.20gb")
    assert (reading.uuid, reading.identity) == (UUID, (UUID, "1"))


def test_without_the_ratio_an_instances_utilisation_is_absent() -> None:
    reading = one("DCGM_FI_DEV_GPU_UTIL 0", "DCGM_FI_DEV_GPU_TEMP 50", labels=mig(1)).reading

    assert reading.busy_ratio is None
    signals = gpu_signals(GpuTelemetry(True, 0, readings=(reading,)), preallocates=False)
    assert signals.gpu_busy_ratio == Unknown("no GPU gives its utilisation")


def test_instances_are_told_apart_and_the_whole_gpu_is_not_one_of_them() -> None:
    body = (
        page("DCGM_FI_DEV_GPU_UTIL 0")
        + page("DCGM_FI_PROF_GR_ENGINE_ACTIVE 0.2", labels=mig(1))
        + page("DCGM_FI_PROF_GR_ENGINE_ACTIVE 0.8", labels=mig(2))
    )
    readings = tuple(gpu.reading for gpu in read_text(body))

    assert len(readings) == 3
    assert gpu_signals(GpuTelemetry(True, 0, readings=readings), preallocates=False).gpu_busy_ratio == Known(0.5, 0)


# Profiling fields


def test_without_gpu_util_a_whole_gpu_is_as_busy_as_its_engine() -> None:
    assert one("DCGM_FI_PROF_GR_ENGINE_ACTIVE 0.640000").reading.busy_ratio == 0.64


def test_a_profiling_ratio_stuck_at_0_under_load_is_no_measurement() -> None:
    stuck = one("DCGM_FI_DEV_GPU_UTIL 99", "DCGM_FI_PROF_SM_ACTIVE 0.000000", "DCGM_FI_PROF_SM_OCCUPANCY 0").reading
    assert (stuck.busy_ratio, stuck.sm_active_ratio, stuck.sm_occupancy_ratio) == (0.99, None, None)

    idle = one("DCGM_FI_DEV_GPU_UTIL 0", "DCGM_FI_PROF_SM_ACTIVE 0.000000").reading
    assert (idle.busy_ratio, idle.sm_active_ratio) == (0.0, 0.0)


# XID


def test_of_the_error_series_that_lie_side_by_side_in_a_prometheus_the_newest_counts() -> None:
    old = row("DCGM_FI_DEV_XID_ERRORS", 79, 100.0, err_code="79")
    new = row("DCGM_FI_DEV_XID_ERRORS", 31, 160.0, err_code="31")
    for rows in ([old, new], [new, old]):
        assert [gpu.reading.xid for gpu in read_rows(rows)] == [31]
    untimed = [each._replace(unix=None) for each in (row("DCGM_FI_DEV_XID_ERRORS", 0), old)]
    assert [gpu.reading.xid for gpu in read_rows(untimed)] == [79]


# Whose GPU it is


def test_the_holder_is_the_exported_pod_where_pod_is_the_exporters() -> None:
    (scraped,) = read_rows(
        [
            row(
                "DCGM_FI_DEV_GPU_UTIL",
                50,
                pod="nvidia-dcgm-exporter-x7x7x",
                namespace="gpu-operator",
                exported_pod="llama-0",
                exported_namespace="chat",
            )
        ]
    )
    assert scraped.pods == {PodName("chat", "llama-0")}


def test_beside_a_series_that_names_the_holder_one_without_names_the_exporter() -> None:
    """A time-sliced GPU's own values name no pod; a Prometheus puts the exporter's there."""
    own = {"pod": "nvidia-dcgm-exporter-x7x7x", "namespace": "gpu-operator"}
    part = {**own, "exported_pod": "llama-0", "exported_namespace": "chat"}
    (gpu,) = read_rows([row("DCGM_FI_DEV_GPU_UTIL", 90, **own), row("DCGM_FI_DEV_GPU_UTIL", 50, **part)])
    assert gpu.pods == {PodName("chat", "llama-0")}


def test_an_old_exporters_holder_is_pod_name_in_a_prometheus_too() -> None:
    own = {"pod": "nvidia-dcgm-exporter-x7x7x", "namespace": "gpu-operator"}
    (scraped,) = read_rows([row("DCGM_FI_DEV_GPU_UTIL", 50, pod_name="llama-0", pod_namespace="chat", **own)])
    assert scraped.pods == {PodName("chat", "llama-0")}


def test_on_the_exporters_own_page_the_holder_is_pod() -> None:
    gpu = one("DCGM_FI_DEV_GPU_UTIL 50", labels=f'{LABELS},container="vllm",namespace="chat",pod="llama-0"')
    assert gpu.pods == {PodName("chat", "llama-0")}


def test_empty_labels_name_nobody() -> None:
    (gpu,) = read_text(page("DCGM_FI_DEV_GPU_UTIL 50", labels=f'{LABELS},container="",namespace="",pod=""'))
    assert gpu.pods == frozenset()


def sliced() -> list[Row]:
    """A time-sliced GPU under two pods: everything twice; two series are each pod's part, beside the GPU's own."""
    rows = [row("DCGM_FI_DEV_GPU_UTIL", 90), row("DCGM_FI_DEV_FB_USED", 60000)]
    for name, busy, used in (("a-0", 70, 40000), ("b-0", 20, 20000)):
        holder = {"pod": name, "namespace": "chat"}
        rows += [
            row("DCGM_FI_DEV_GPU_UTIL", busy, **holder),
            row("DCGM_FI_DEV_FB_USED", used, **holder),
            row("DCGM_FI_DEV_FB_FREE", 20000, **holder),
            row("DCGM_FI_DEV_FB_RESERVED", 500, **holder),
        ]
    return rows


def test_a_time_sliced_gpu_is_one_and_as_busy_as_all_its_pods_make_it() -> None:
    (gpu,) = read_rows(sliced())

    assert gpu.pods == {PodName("chat", "a-0"), PodName("chat", "b-0")}
    assert gpu.reading.busy_ratio == 0.9
    assert gpu.reading.memory == GpuMemory(80500 * MIB, 60000 * MIB, 20000 * MIB, 500 * MIB, "dcgm")


def test_two_scrapes_of_one_exporter_at_different_times_are_the_fuller_gpu() -> None:
    rows = [row("DCGM_FI_DEV_FB_USED", 60000), row("DCGM_FI_DEV_FB_FREE", 20000)]
    later = [row("DCGM_FI_DEV_FB_USED", 61000, replica="1"), row("DCGM_FI_DEV_FB_FREE", 19000, replica="1")]
    (gpu,) = read_rows([*rows, *later])

    assert gpu.reading.memory == GpuMemory(80000 * MIB, 61000 * MIB, 19000 * MIB, None, "dcgm")


@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_order_and_repetition_of_rows_mean_nothing(rng: random.Random, times: int) -> None:
    rows = sliced() * times
    rng.shuffle(rows)
    (gpu,), (expected,) = read_rows(rows), read_rows(sliced())
    assert (gpu.reading, gpu.pods) == (expected.reading, expected.pods)


@given(
    st.lists(
        st.builds(
            Row,
            st.sampled_from([*FIELDS, "DCGM_FI_DEV_SM_CLOCK"]),
            st.dictionaries(
                st.sampled_from(["UUID", "uuid", "gpu", "GPU_I_ID", "modelName", "pod", "exported_pod", "namespace"]),
                st.text(max_size=5),
            ),
            st.floats(),
            st.none() | st.floats(0, 2e9),
        )
    )
)
def test_whatever_the_rows_hold_every_number_is_one(rows: list[Row]) -> None:
    for gpu in read_rows(rows):
        reading = gpu.reading
        for ratio in (reading.busy_ratio, reading.sm_active_ratio, reading.memory_free_ratio):
            assert ratio is None or 0 <= ratio <= 1
        for number in (reading.power_watts, reading.temperature_celsius):
            assert number is None or math.isfinite(number)
        assert reading.uuid


def test_it_reaches_the_workloads_signals() -> None:
    gpus = read_rows(sliced())
    page_of_a = attach_gpu(pod(running=4), DcgmGpus(gpus).held_by(PodName("chat", "a-0")), preallocates=False)

    assert Timeline().at(0, a=page_of_a).gpu_busy_ratio == Known(0.9, 0)
