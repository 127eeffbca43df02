"""The switches of a build: how GPU architectures are written, and what is compiled for where nobody says."""

from __future__ import annotations

import pytest

from opsmith import errors
from opsmith.toolchain import settings

HOPPER_AND_AMPERE = ("sm_80", "sm_90")


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("sm_90", ("sm_90",)),
        ("sm_80,sm_90", HOPPER_AND_AMPERE),
        ("80;90", HOPPER_AND_AMPERE),
        ("9.0 8.0", HOPPER_AND_AMPERE),
        ("  sm_90;  8.0 ,sm_80", HOPPER_AND_AMPERE),
        ("8.0 9.0+PTX", ("sm_80", "sm_90", "compute_90")),
        ("90a", ("sm_90a",)),
        ("9.0A", ("sm_90a",)),
        ("12.0", ("sm_120",)),
        ("sm_120 sm_90", ("sm_90", "sm_120")),
        ("compute_90", ("compute_90",)),
        ("all-major", ("all-major",)),
        ("ALL", ("all",)),
        (["sm_80", "sm_90"], HOPPER_AND_AMPERE),
        (["8.0,9.0"], HOPPER_AND_AMPERE),
    ],
)
def test_how_architectures_are_written(
    given: str | list[str], meant: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.gpu_targets(given) == meant
    if isinstance(given, str):
        monkeypatch.setenv("GPU_TARGETS", given)
        assert settings.gpu_targets(None) == meant


@pytest.mark.parametrize("given", ["", " ", "gfx90a", "9", "sm_", "sm-90", "90,all-major", "9.0.1", "turing"])
def test_values_that_are_not_architectures(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.BuildSettingError, match=r"arch='.*' is not valid: GPU architectures are written sm_90"):
        settings.gpu_targets(given)
    if given.strip():
        monkeypatch.setenv("GPU_TARGETS", given)
        with pytest.raises(errors.BuildSettingError, match="GPU_TARGETS="):
            settings.gpu_targets(None)


def test_the_default_is_this_machines_gpus_else_one_of_each_generation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GPU_TARGETS", raising=False)
    monkeypatch.setattr(settings, "architectures", lambda: ("sm_86", "sm_90"))
    assert settings.gpu_targets(None) == settings.gpu_targets("native") == ("sm_86", "sm_90")
    monkeypatch.setattr(settings, "architectures", tuple)
    assert settings.gpu_targets(None) == ("all-major",)
    with pytest.raises(errors.BuildSettingError, match="'native' means the GPUs of this machine, and it has none"):
        settings.gpu_targets("native")


def test_the_flags_of_nvcc() -> None:
    assert settings.gencode(["sm_80", "compute_90"]) == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90,code=compute_90",
    ]
    assert settings.gencode(["all-major"]) == ["-arch=all-major"]
