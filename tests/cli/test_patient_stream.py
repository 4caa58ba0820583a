"""Messages to a reader that does not read."""

import os
import sys
from pathlib import Path

import pytest

from crawler.terminal.patient_stream import patient_stderr


def test_a_full_pipe_drops_lines_and_later_tells_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with patient_stderr():
            line = "x" * 999 + "\n"
            for _ in range(1000):
                sys.stderr.write(line)
            taken = b""
            while len(taken) % 4096 == 0 and (some := os.read(reading, 1 << 20)):
                taken += some
                if len(some) < 1 << 20:
                    break
            sys.stderr.write("again\n")
            sys.stderr.flush()
        assert sys.stderr is stream
        later = os.read(reading, 1 << 20).decode()
    os.close(reading)
    lines = taken.count(b"\n")
    assert 0 < lines < 1000
    assert later.splitlines()[-1] == "again"
    assert f"... {1000 - lines:,} lines are missing here" in later


def test_a_file_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "err").open("w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with patient_stderr():
            assert sys.stderr is stream


def test_a_log_that_still_has_the_stream_writes_to_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with patient_stderr():
            patient = sys.stderr
        patient.write("late\n")
    assert os.read(reading, 99) == b"late\n"
    os.close(reading)


def test_a_reader_that_is_gone_is_a_broken_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with patient_stderr():
            os.close(reading)
            with pytest.raises(BrokenPipeError):
                sys.stderr.write("x\n")
