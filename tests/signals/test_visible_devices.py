"""Which GPU is mine (G4-07): the two variables against NVML's list."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scaler.signals.gpu import GpuReading, MigInstance
from scaler.signals.visible_devices import VisibleDevices, visible_devices

A, B, C, D = (
    f"GPU-{letters}-0000-0000-0000-000000000000" for letters in ("aaaa1111", "bbbb2222", "cccc3333", "cccc4444")
)
MIG = "MIG-377e0049-0000-0000-0000-000000000000"
GPUS = [GpuReading(uuid=uuid, indexes={"nvml": index}) for index, uuid in enumerate((A, B, C, D))]
# GPU 4 is divided in two.
PARENT = "GPU-eeee5555-0000-0000-0000-000000000000"
INSTANCE = GpuReading(uuid=PARENT, instance=MigInstance("1", "0", "3g.20gb", MIG), indexes={"nvml": 4})
OTHER = GpuReading(uuid=PARENT, instance=MigInstance("2", "0", "3g.20gb", "MIG-99"), indexes={"nvml": 4})
DIVIDED = [*GPUS, GpuReading(uuid=PARENT, indexes={"nvml": 4}), INSTANCE, OTHER]


def uuids(found: VisibleDevices) -> list[str]:
    return [gpu.reading.uuid for gpu in found.gpus]


@pytest.mark.parametrize(
    ("cuda", "expected", "warns"),
    [
        ("2,0", [C, A], ""),
        (" 2 , 0 ", [C, A], ""),
        ("GPU-bbbb2222", [B], ""),
        ("gpu-BBBB2222", [B], ""),
        (B, [B], ""),
        ("GPU-cccc", [], "'GPU-cccc' is ambiguous"),
        ("0,GPU-cccc,1", [A], "CUDA stops there, so 1 of 3 entries count"),
        ("", [], ""),
        ("-1", [], ""),
        ("void", [], ""),
        ("NoDevFiles", [], ""),
        ("0,7,1", [A], "'7' is no GPU here; CUDA stops there, so 1 of 3 entries count"),
        ("0,2,-1,1", [A, C], ""),  # the example of CUDA's own documentation
        ("0,,1", [A], "'' is neither a number nor a UUID"),
        ("0,0", [], "names a GPU twice"),
        (f"0,{A}", [], "names a GPU twice"),
        ("GPU-ffff", [], "is no GPU here"),
        ("²", [], "neither a number nor a UUID"),
        ("9" * 5000, [], "neither a number nor a UUID"),
        (None, [A, B, C, D], ""),
        ("all", [A, B, C, D], ""),
    ],
)
def test_cuda_visible_devices(cuda: str | None, expected: list[str], warns: str) -> None:
    found = visible_devices(GPUS, cuda=cuda)

    assert uuids(found) == expected
    assert bool(found.warnings) == bool(warns)
    assert warns in "".join(found.warnings)


def test_logical_numbers_stand_beside_nvmls() -> None:
    found = visible_devices(GPUS, cuda="2,0")

    assert [gpu.reading.indexes for gpu in found.gpus] == [{"nvml": 2, "cuda": 0}, {"nvml": 0, "cuda": 1}]
    assert GPUS[2].indexes == {"nvml": 2}


@pytest.mark.parametrize("cuda", [MIG, "MIG-377e0049", f"MIG-{PARENT}/1/0"])
def test_a_mig_uuid_is_that_instance(cuda: str) -> None:
    found = visible_devices(DIVIDED, cuda=cuda)

    assert [gpu.reading.instance for gpu in found.gpus] == [INSTANCE.instance]
    assert found.readings[0].indexes == {"nvml": 4, "cuda": 0}
    assert not found.warnings


@pytest.mark.parametrize("cuda", ["MIG-5c4d0000-1111", f"MIG-{PARENT}/7/0"])
def test_an_instance_that_cannot_be_read_is_its_parent_marked_so_and_not_measured(cuda: str) -> None:
    found = visible_devices(DIVIDED, cuda=cuda, mig_parents={"MIG-5c4d0000-1111": PARENT})

    assert [(gpu.reading.uuid, gpu.parent_only) for gpu in found.gpus] == [(PARENT, True)]
    assert found.readings == ()
    assert "not the MIG instance" in found.warnings[0]


def test_an_instance_nobody_knows_is_none() -> None:
    found = visible_devices(DIVIDED, cuda="MIG-5c4d0000-1111")
    assert found.gpus == ()
    assert "is no MIG instance here" in found.warnings[0]


def test_a_divided_gpu_is_its_instance_if_it_has_one_and_otherwise_not_measured() -> None:
    (only,) = visible_devices([*GPUS, DIVIDED[4], INSTANCE], cuda="4").gpus
    assert only.reading.instance == INSTANCE.instance

    (either,) = visible_devices(DIVIDED, cuda="4").gpus
    assert either.parent_only
    assert [gpu.reading.instance for gpu in visible_devices(DIVIDED, cuda=None).gpus[4:]] == [
        INSTANCE.instance,
        OTHER.instance,
    ]


@pytest.mark.parametrize(
    ("nvidia", "expected"),
    [
        (None, [A, B, C, D]),
        ("all", [A, B, C, D]),
        ("", [A, B, C, D]),
        ("none", []),
        ("void", []),
        ("3,1", [A, B, C, D]),  # the host's numbers: the runtime has obeyed, NVML lists what is left
        (f"{D},{B}", [B, D]),  # a privileged container lists them all
        (f"{D},{D}", [D]),
        ("GPU-cccc", [A, B, C, D]),
        ("GPU-ffff", [A, B, C, D]),
    ],
)
def test_nvidia_visible_devices(nvidia: str | None, expected: list[str]) -> None:
    assert uuids(visible_devices(GPUS, cuda=None, nvidia=nvidia)) == expected


def test_void_beside_gpus_may_be_cdi_and_says_what_to_do() -> None:
    assert visible_devices([], cuda=None, nvidia="void") == VisibleDevices()
    assert "CUDA_VISIBLE_DEVICES=all" in visible_devices(GPUS, cuda=None, nvidia="void").warnings[0]
    assert uuids(visible_devices(GPUS, cuda="all", nvidia="void")) == [A, B, C, D]


def test_a_uuid_of_a_divided_gpu_allows_its_instances_and_one_of_an_instance_only_that() -> None:
    assert len(visible_devices(DIVIDED, cuda=None, nvidia=PARENT).readings) == 2
    (only,) = visible_devices(DIVIDED, cuda=None, nvidia=MIG).readings
    assert only.instance == INSTANCE.instance


def test_numbers_of_unlike_gpus_are_nvmls_only_in_the_order_of_the_bus() -> None:
    mixed = [
        GpuReading(uuid=A, name="NVIDIA T4", indexes={"nvml": 0}),
        GpuReading(uuid=B, name="NVIDIA A100", indexes={"nvml": 1}),
    ]
    doubtful = visible_devices(mixed, cuda="0")
    assert doubtful.gpus == ()
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in doubtful.warnings[0]
    assert uuids(visible_devices(mixed, cuda="0", device_order="PCI_BUS_ID")) == [A]
    assert uuids(visible_devices(mixed, cuda=B)) == [B]


words = st.text(max_size=40) | st.lists(
    st.sampled_from(["0", "1", "7", "-1", "", "GPU-", "GPU-cccc", A, MIG, "MIG-", f"MIG-{PARENT}/1/0", "all", "void"]),
    max_size=6,
).map(",".join)


@given(words, st.none() | words)
@example("9" * 5000, None)
@example("\x00", "\ud800")
def test_no_string_is_too_odd(cuda: str, nvidia: str | None) -> None:
    for value in (cuda, None):
        found = visible_devices(DIVIDED, cuda=value, nvidia=nvidia)
        assert len({gpu.reading.identity for gpu in found.gpus}) == len(found.gpus)
        assert [gpu.reading.indexes["cuda"] for gpu in found.gpus] == list(range(len(found.gpus)))
