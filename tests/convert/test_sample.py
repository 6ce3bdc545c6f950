"""What a plan measures is what `forget` takes: of everything exactly, of a sample about."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli
from helpers.handmade import Entry, write_safetensors

RNG = np.random.default_rng(8)


def bf16(*shape: int) -> Entry:
    values = RNG.normal(size=shape) * np.exp(RNG.normal(size=(*shape[:-1], 1)))
    return "BF16", shape, values.astype(ml_dtypes.bfloat16).tobytes()


TENSORS: dict[str, Entry] = {
    **{f"model.layers.0.self_attn.{k}_proj.weight": bf16(512, 1024) for k in "qkv"},
    "model.layers.0.mlp.up_proj.weight": bf16(2048, 1024),
    "model.norm.weight": bf16(1024),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_safetensors(tmp_path / "model-bf16.safetensors", TENSORS)


@pytest.mark.parametrize(
    "to", ["fp8-block", "fp8-tensor", "int4", "nvfp4", "bnb-nf4-nested", "mlx-4bit", "gptq-4bit"]
)
def test_all_of_a_model_is_measured_as_forget_does(path: Path, to: str) -> None:
    before = path.read_bytes()
    with an.parse(path) as model:
        plan = model.plan(to, measure=True)
        report = model.forget(path.with_name("out.safetensors"), to)
    assert plan.measured is not None
    assert report.loss is not None
    assert plan.measured.losses.weights == report.loss.weights
    assert not plan.measured.is_sample
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "to", ["fp8-block", "fp8-tensor", "int4", "nvfp4", "bnb-nf4", "bnb-nf4-nested"]
)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_sample_is_near(path: Path, to: str, threads: int) -> None:
    with an.parse(path) as model:
        whole = model.plan(to, measure=True).measured
        some = model.plan(to, measure=3, threads=threads).measured
    assert whole is not None
    assert some is not None
    assert (some.n_bands, some.is_sample) == (3, True)
    assert 0 < some.total.n < whole.total.n
    assert some.total.snr_db == pytest.approx(whole.total.snr_db, abs=2.0)
    assert len(some.losses.weights) > 1


def test_what_is_not_asked_for_is_not_measured(path: Path) -> None:
    with an.parse(path) as model:
        assert model.plan("fp8-block").measured is None
        assert model.plan("f16", measure=True).measured is None
        with pytest.raises(ValueError, match="measure must be True, or a number of bands, not -1"):
            model.plan("fp8-block", measure=-1)


def test_sizes_beside_the_input(path: Path) -> None:
    n = sum(int(np.prod(shape)) for _, shape, _ in TENSORS.values())
    with an.parse(path) as model:
        plan = model.plan("fp8-tensor")
    assert plan.account.n_bytes_in == 2 * n
    assert plan.ratio == pytest.approx(0.5, rel=0.01)
    assert plan.bits_per_weight == pytest.approx(8, rel=0.01)


def test_targets_side_by_side(path: Path) -> None:
    targets = "int4,fp8-block,nvfp4,gguf-f16"
    done = CliRunner().invoke(cli, ["plan", str(path), "--to", targets])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    start = next(i for i, line in enumerate(lines) if line.startswith("target"))
    assert lines[start].split() == ["target", "size", "ratio", "bits", "SNR", "loaded", "by"]
    rows = {line.split()[0]: line.split() for line in lines[start + 1 :] if line[:1].strip()}
    assert list(rows) == targets.split(",")
    assert rows["fp8-block"][3] == "50%"
    assert float(rows["fp8-block"][5]) == pytest.approx(31, abs=2)
    assert float(rows["int4"][5]) == pytest.approx(20, abs=3)
    assert rows["gguf-f16"][3:6] == ["100%", "16", "-"]


def test_one_target_says_what_it_takes(path: Path) -> None:
    args = ["plan", str(path), "--to", "int4"]
    said = CliRunner().invoke(cli, args).stdout
    assert "\nInput:       7.3 MB, 3,670,016 values, 16 bits each\n" in said.replace(
        "671,040", "670,016"
    )
    assert "\nLethe distance: SNR " in said
    assert "--full measures all" in CliRunner().invoke(cli, [*args, "--sample", "2"]).stdout
    assert "--full measures" not in CliRunner().invoke(cli, [*args, "--full"]).stdout
    assert "Lethe" not in CliRunner().invoke(cli, [*args, "--no-loss"]).stdout


def test_a_target_among_several_is_told_that_there_is_none(path: Path) -> None:
    done = CliRunner().invoke(cli, ["plan", str(path), "--to", "int4,nosuch"])
    assert done.exit_code == 2
    assert "nosuch" in done.stderr


def test_a_resumed_run_begins_where_the_killed_one_ended(path: Path) -> None:
    """So that a rate counts what this run writes."""
    out = path.with_name("out.safetensors")

    class KilledError(BaseException):
        pass

    def kill(done: int, total: int) -> None:
        if done > total // 2:
            raise KilledError

    seen: list[int] = []
    with an.parse(path) as model:
        with pytest.raises(KilledError):
            model.forget(out, "fp8-block", threads=1, progress=kill)
        model.forget(out, "fp8-block", resume=True, progress=lambda done, total: seen.append(done))
    assert seen[0] > seen[-1] // 2
