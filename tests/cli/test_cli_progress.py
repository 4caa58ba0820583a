"""Progress of long commands: what it says by a clock, where it is shown, and that nothing of it stays."""

import contextlib
import io
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.archive.folder import CrawlFolder
from crawler.archive.index_writer import IndexWriter
from crawler.archive.warc_web import RecordedWeb
from crawler.cli.main import main
from crawler.crawl.url_files import STDIN, bytes_of
from crawler.crawl.url_input import read_given
from crawler.outputs.export import export
from crawler.outputs.opening import targets_of
from crawler.outputs.records import Pages
from crawler.terminal import progress as shown
from crawler.terminal.output import say
from crawler.terminal.progress import Bar, Lines, Part, drawn, told
from tests.archive.archive_samples import entry, folder_in
from tests.support.heard_meter import HeardMeter
from tests.testing.recorded_lab import Writer

CLEAR = "\r\x1b[2K"
PAGES = 48


class Clock:
    """Each look at it takes `step_s`."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.now_s = 100.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error, from here on."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    return found


@pytest.fixture
def folder(tmp_path: Path) -> CrawlFolder:
    made = folder_in(tmp_path)
    index = IndexWriter(made, "aa11")
    for number in range(PAGES):
        index.add(entry(number))
    index.close()
    return made


def part_at(*seen: tuple[float, int, int], total: int = 1_000, noun: str = "URL") -> Part:
    part = Part("adding seeds", noun, total, 0.0)
    for at_s, count, position in seen:
        part.take(at_s, count, position)
    return part


# --- what is said ---


@pytest.mark.parametrize(
    ("part", "line", "text"),
    [
        (part_at(), "Adding seeds   0 % [>         ]", "adding seeds: 0 % done"),
        (
            part_at((1.0, 50, 100)),
            "Adding seeds  10 % [=>        ] 50 URLs, 50/s",
            "adding seeds: 10 % done, 50 URLs, 50/s",
        ),
        (
            part_at((4.0, 1_200, 400)),
            "Adding seeds  40 % [====>     ] 1,200 URLs, 300/s, 6 s left",
            "adding seeds: 40 % done, 1,200 URLs, 300/s, 6 s left",
        ),
        (
            part_at((10.0, 1, 999), total=10**6),
            "Adding seeds   0 % [>         ] 1 URL, 0.1/s, 2 h 47 m left",
            "adding seeds: 0 % done, 1 URL, 0.1/s, 2 h 47 m left",
        ),
        (
            part_at((9.0, 70, 1_003)),
            "Adding seeds 100 % [==========] 70 URLs, 7.8/s, 1 s left",
            "adding seeds: 100 % done, 70 URLs, 7.8/s, 1 s left",
        ),
        (part_at((9.0, 70, 70), total=0), "Adding seeds  70 URLs, 7.8/s", "adding seeds: 70 URLs, 7.8/s"),
        (part_at(total=0, noun=""), "Adding seeds ...", "adding seeds"),
    ],
    ids=["begun", "soon", "known", "slow", "grown meanwhile", "no total", "not counted"],
)
def test_a_part_is_told_by_share_rate_and_time_left(part: Part, line: str, text: str) -> None:
    assert (drawn(part, 80), told(part)) == (line, text)


def test_the_rate_is_that_of_the_last_seconds() -> None:
    part = part_at(*((float(second), 100 * second, second) for second in range(1, 31)))
    assert part.left_s == pytest.approx(970)
    for second in range(31, 60):
        part.take(float(second), 3_000 + 10 * (second - 30), 30 + 10 * (second - 30))
    assert "10/s" in told(part)
    assert part.left_s == pytest.approx((1_000 - 320) / 10)


def test_the_line_fits_into_any_terminal() -> None:
    part = Part("reading " + "long-name" * 9, "record", 10**15, 0.0)
    part.take(50.0, 123_456_789_012, 10**9)
    for columns in (200, 100, 80, 40, 10):
        assert len(drawn(part, columns)) < columns
    assert "[" in drawn(part, 120)
    assert "[" not in drawn(part, 80), "figures matter more than the bar"


# --- where it is shown ---


def test_a_terminal_is_redrawn_ten_times_a_second_and_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, clock = on_terminal(monkeypatch), Clock()
    with shown.progress(clock=clock) as meter:
        meter.begin("adding seeds", "URL", 100)
        for number in range(100):
            clock.now_s += 0.02
            meter.reached(number, number)
        say("a complaint")
        meter.reached(100, 100)
    text = terminal.getvalue()
    assert 10 <= text.count(CLEAR + "Adding seeds") <= 19
    assert CLEAR + "a complaint\n" in text, "it has a line for itself"
    assert text.rpartition("\n")[2] in ("", CLEAR)


@pytest.mark.parametrize("ending", [KeyboardInterrupt, ValueError])
def test_what_ends_the_work_leaves_a_clean_line(monkeypatch: pytest.MonkeyPatch, ending: type[BaseException]) -> None:
    terminal = on_terminal(monkeypatch)
    with contextlib.suppress(ending), shown.progress(clock=Clock(1.0)) as meter:
        meter.begin("adding seeds", "URL")
        meter.reached(1)
        raise ending
    assert terminal.getvalue().endswith("Adding seeds  1 URL, 1.0/s" + CLEAR)


def test_a_pipe_gets_a_line_after_five_seconds_and_fewer_later() -> None:
    out, clock = io.StringIO(), Clock()
    meter = Lines(out, clock)
    meter.begin("adding seeds", "URL", 10_000)
    at: list[float] = []
    for number in range(1, 2_001):
        clock.now_s += 0.5
        before = out.tell()
        meter.reached(number, number)
        at += [clock.now_s - 100.0] * (out.tell() > before)
    assert at[:4] == [5.0, 10.0, 15.0, 20.0]
    assert at[-1] - at[-2] > 40
    lines = out.getvalue().splitlines()
    assert lines[0] == "5 s: adding seeds: 0 % done, 10 URLs, 2.0/s, 1 h 23 m left"
    assert len(lines) == len(at)


def meter_type(**how: bool) -> type:
    with shown.progress(**how) as meter:
        return type(meter)


def test_the_bar_is_for_terminals_that_nothing_else_is_written_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    on_terminal(monkeypatch)
    assert meter_type() is Bar
    assert meter_type(verbose=True) is Lines
    silent = meter_type(quiet=True)
    assert silent not in (Bar, Lines)
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert meter_type(fills_stdout=True) is silent
    with (tmp_path / "o").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        assert meter_type(fills_stdout=True) is Bar
    monkeypatch.setenv("TERM", "dumb")
    assert meter_type() is Lines
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert meter_type(fills_stdout=True) is Lines


# --- what loops report ---


def exported(folder: CrawlFolder, clock: Clock, *names: str) -> tuple[bytes, list[str]]:
    out, err = io.BytesIO(), io.StringIO()
    export(folder, targets_of(["-", *names]), Pages(folder), stdout=out, meter=Lines(err, clock))
    return out.getvalue(), err.getvalue().splitlines()


def test_a_long_export_tells_how_far_it_is_and_a_short_one_nothing(folder: CrawlFolder) -> None:
    fast, nothing = exported(folder, Clock(0.001))
    slow, lines = exported(folder, Clock(6.0))
    assert nothing == []
    assert lines[0] == "6 s: exporting: 0 % done"
    assert lines[1] == "12 s: exporting: 33 % done, 16 pages, 2.7/s, 12 s left"
    assert lines[3] == "24 s: exporting: 99 % done, 48 pages, 2.7/s, 1 s left"
    assert fast == slow
    assert fast.count(b"\n") == PAGES


def test_seeds_are_measured_by_the_bytes_of_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "seeds.txt"
    file.write_bytes(b"https://a.test/\n" * 40_000)
    assert bytes_of([str(file)]) == file.stat().st_size
    ours, theirs = os.pipe()
    with os.fdopen(ours) as stdin, os.fdopen(theirs, "w"):
        monkeypatch.setattr(sys, "stdin", stdin)
        assert bytes_of([str(file), STDIN]) == 0, "how much will come is not known"


@pytest.mark.slow(ci=True)
async def test_bytes_count_once_their_batch_was_taken(tmp_path: Path) -> None:
    file = tmp_path / "seeds.txt"
    file.write_bytes(b"https://a.test/\n" * 40_000)
    taken: list[int] = []
    before = [sum(taken) async for _ in read_given(str(file), taken=taken.append)]
    assert before[0] == 0
    assert len(before) > 2
    assert sum(taken) == file.stat().st_size


# warcio's writer leaves its temporary files to the garbage collector.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_archives_to_replay_are_measured_by_their_bytes(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "a.warc.gz", packed=True)
    for number in range(3):
        writer.response(f"http://a.test/{number}", b"x")
    path = writer.close()
    heard = HeardMeter()
    RecordedWeb([path, path], heard)
    size = path.stat().st_size
    (part,) = heard.parts
    assert (part.what, part.noun, part.total) == ("reading archive", "record", 2 * size)
    assert part.counts == list(range(1, len(part.counts) + 1))
    assert size < part.positions[-1] < 2 * size


# --- the real program ---


def test_a_short_command_prints_what_it_always_did(folder: CrawlFolder, capfd: pytest.CaptureFixture[str]) -> None:
    target = folder.root / "p.jsonl"
    assert main(["export", "--dir", str(folder.root), "-o", str(target)]) == 0
    assert tuple(capfd.readouterr()) == ("", f"{PAGES} pages written to {target}\n")


@pytest.fixture
def seeding(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`crawler seed -`, its errors on a terminal, once the line is drawn."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "crawler", "seed", "-", "--dir", str(tmp_path / "crawl")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=theirs, env=os.environ | {"TERM": "xterm"}) as it:
        os.close(theirs)
        assert it.stdin is not None
        seen = b""
        os.set_blocking(ours, False)
        while b"Adding seeds" not in seen:
            it.stdin.write(b"https://a.test/\n")
            it.stdin.flush()
            try:
                seen += os.read(ours, 10_000)
            except BlockingIOError:
                continue
        os.set_blocking(ours, True)
        yield it, ours
        it.kill()
    os.close(ours)


def rest_of(terminal: int) -> str:
    """What comes until the other side is closed."""
    found = b""
    try:
        while some := os.read(terminal, 10_000):
            found += some
    except OSError:  # EIO: nobody has it open any more
        pass
    return found.decode()


@pytest.mark.slow(ci=True)
def test_the_line_of_a_stream_is_gone_at_its_end(seeding: tuple[subprocess.Popen[bytes], int]) -> None:
    it, terminal = seeding
    assert it.stdin is not None
    assert it.stdout is not None
    it.stdin.close()
    said, result = rest_of(terminal), it.stdout.read().decode()
    assert it.wait() == 0
    assert said.endswith(CLEAR)
    assert result.startswith("1 new, ")
    assert "\x1b" not in result


@pytest.mark.slow(ci=True)
def test_ctrl_c_leaves_the_terminal_in_order(seeding: tuple[subprocess.Popen[bytes], int]) -> None:
    it, terminal = seeding
    it.send_signal(signal.SIGINT)
    assert rest_of(terminal).endswith(CLEAR)
    assert it.wait() == 130
