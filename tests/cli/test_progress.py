"""The bar, its figures, and the line it stands in."""

from __future__ import annotations

import io
import time

import pytest

from anamnesis.cli import progress
from anamnesis.cli.progress import bar, metered, moving
from anamnesis.convert.report.meter import Meter, format_duration


class Clock:
    """Stands for the monotonic clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.0, "[>         ]"),
        (0.5, "[=====>    ]"),
        (0.99, "[=========>]"),
        (1.0, "[==========]"),
    ],
)
def test_bar(fraction: float, text: str) -> None:
    assert bar(fraction, 10) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "[<=>       ]"),
        (0.31, "[   <=>    ]"),
        (0.7, "[       <=>]"),
        (0.9, "[     <=>  ]"),
        (1.4, "[<=>       ]"),
    ],
)
def test_a_mark_goes_to_and_fro(seconds: float, text: str) -> None:
    assert moving("[          ]", seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0s"),
        (2.14, "2.1s"),
        (59.94, "59.9s"),
        (59.96, "1m 00s"),
        (185, "3m 05s"),
        (3599.4, "59m 59s"),
        (3720, "1h 02m"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_rate_leaves_out_what_a_resumed_run_found(clock: Clock) -> None:
    meter = Meter("label")
    assert meter.rate == 0.0
    meter(600, 1000)
    clock.now += 2
    meter(800, 1000)
    assert meter.rate == 100.0
    assert meter.facts(with_bytes=True) == ["80%", "800 B of 1.0 KB", "100 B/s", "2s left"]
    assert meter.facts(with_bytes=False) == ["80%", "100 B/s", "2s left"]


def test_nothing_to_do_is_no_division_by_zero(clock: Clock) -> None:
    meter = Meter("label")
    meter(0, 0)
    assert meter.facts(with_bytes=False) == ["0%"]


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_line_fits_and_the_bar_keeps_its_length(width: int, clock: Clock) -> None:
    meter = Meter("Recalling... 1,234 tensors")
    line = progress._LiveLine(meter)
    lengths = set()
    for done in range(0, 9 * 10**11 + 1, 10**11):
        meter(done, 9 * 10**11)
        clock.now += 40
        text = line.line(width)
        assert len(text) < width
        assert text.startswith("Recalling... 1,234 tensors [")
        lengths.add(text.index("]"))
    assert len(lengths) == 1
    assert ("GB of" in text) == (width >= 100)


def test_narrow_terminals_get_no_bar(clock: Clock) -> None:
    meter = Meter("Recalling... 5 tensors")
    meter(500, 1000)
    assert progress._LiveLine(meter).line(40) == "Recalling... 5 tensors 50%"


def test_narrow_terminals_get_what_fits(clock: Clock) -> None:
    meter = Meter("loras/lora-00-fp8.safetensors")
    line = progress._LiveLine(meter)
    meter(0, 10**9)
    clock.now += 10
    meter(5 * 10**8, 10**9)
    assert line.line(60) == "loras/lora-00-fp8.safetensors 50%  50.0 MB/s  10s left"
    assert line.line(46) == "loras/lora-00-fp8.safetensors 50%  50.0 MB/s"
    assert line.line(40) == "loras/lora-00-fp8.safetensors 50%"
    assert line.line(20) == "loras/lora-00-f 50%"
    assert line.line(3) == " 50%"


def test_a_log_gets_a_plain_line_each_minute(clock: Clock) -> None:
    log = io.StringIO()
    with metered("Recalling... 5 tensors", log) as meter:
        meter(0, 4_000_000)
        clock.now += 40
        meter(1_000_000, 4_000_000)
        assert log.getvalue() == ""
        clock.now += 40
        meter(2_000_000, 4_000_000)
        clock.now += 1
        meter(4_000_000, 4_000_000)
    expected = "Recalling... 5 tensors 50%, 2.0 MB of 4.0 MB, 25.0 KB/s, 1m 20s left\n"
    assert log.getvalue() == expected


def test_a_first_pass_does_not_count_as_time_of_writing(clock: Clock) -> None:
    meter = Meter("label")
    meter(0, 1000)
    clock.now += 100
    meter(0, 1000)
    clock.now += 2
    meter(200, 1000)
    assert meter.rate == 100.0


@pytest.mark.parametrize("width", [40, 80, 120])
def test_planning_has_no_bytes_but_moves(width: int, clock: Clock) -> None:
    line = progress._LiveLine(Meter("Converting... 5 tensors"))
    first = line.line(width)
    clock.now += 2.1
    later = line.line(width)
    assert later.rstrip().endswith("2.1s")
    assert "0 B" not in first + later
    assert ("<=>" in first) == ("<=>" in later) == (width > 60)
    assert len(later) < width


def test_work_that_is_not_counted_moves_too(clock: Clock) -> None:
    """Such as a first pass, or reading back what was written."""
    meter = Meter("label")
    line = progress._LiveLine(meter)
    meter(0, 1000)
    assert "<=>" not in line.line(80)
    clock.now += 1
    assert "<=>" in line.line(80)
    meter(1000, 1000)
    assert "<=>" not in line.line(80)
    clock.now += 1
    assert "<=>" in line.line(80)
