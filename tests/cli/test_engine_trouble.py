"""What people are told while an engine does not serve: soon, once, and with -q after a minute."""

import logging
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from crawler.cli.watcher import EngineTrouble
from crawler.engine.client import Trouble
from crawler.runtime.log_files import ENGINE_EVENTS, EngineErrorsSeldom


class Look(NamedTuple):
    at_s: float
    trouble: Trouble | None
    said: str


def since(at_s: float, text: str = "the engine is busy") -> Trouble:
    return Trouble(text, at_s, 1)


SAID, OVER = "Waiting: the engine is busy", "The engine serves again after {}."


@pytest.mark.parametrize(
    ("is_quiet", "looks"),
    [
        pytest.param(False, [Look(100, None, ""), Look(101, since(100), ""), Look(102, None, "")], id="a blip"),
        pytest.param(
            False,
            [Look(104, since(100), SAID), Look(105, since(100), ""), Look(200, None, OVER.format("1 m 40 s"))],
            id="once, and its end",
        ),
        pytest.param(
            False,
            [
                Look(104, since(100), SAID), Look(105, since(100, "it is down"), ""),
                Look(106, since(100), ""), Look(115, since(100, "it is down"), "Waiting: it is down"),
            ],
            id="reasons that alternate are told every ten seconds",
        ),
        pytest.param(
            False,
            [Look(104, since(100), SAID), Look(105, None, OVER.format("5 s")), Look(120, since(110), SAID)],
            id="a second time",
        ),
        pytest.param(
            True, [Look(104, since(100), ""), Look(159, since(100), ""), Look(160, since(100), SAID)], id="quiet"
        ),
        pytest.param(True, [Look(104, since(100), ""), Look(150, None, "")], id="quiet, and over"),
    ],
)  # fmt: skip
def test_trouble_is_told_once(is_quiet: bool, looks: list[Look]) -> None:
    told = EngineTrouble(is_quiet=is_quiet)
    assert [told.line(look.trouble, look.at_s) for look in looks] == [look.said for look in looks]


def test_of_all_calls_that_fail_one_a_second_is_logged() -> None:
    now = [0.0]
    seldom = EngineErrorsSeldom(clock=lambda: now[0])

    def passes(event: str) -> bool:
        return bool(seldom.filter(logging.makeLogRecord({"msg": event})))

    def second() -> list[str]:
        events = ("heartbeat.unanswered", "claim.engine_error", "ack.engine_error", "partition.fenced", "member.dead")
        return [event for event in events * 4 if passes(event)]

    first = second()
    now[0] = 0.9
    assert "claim.engine_error" not in second()
    now[0] = 1.1
    assert second() == first
    assert first == ["heartbeat.unanswered", *["partition.fenced", "member.dead"] * 4]


CAUGHT = re.compile(r'except EngineError as error:\n(?:(?!.*except).*\n){0,3}?\s*log\.\w+\("([\w.]+)"')
CRAWLER = Path(__file__).parents[2] / "crawler"


def test_each_event_about_a_call_that_failed_is_among_those_of_which_one_a_second_is_logged() -> None:
    events = {event for path in CRAWLER.rglob("*.py") for event in CAUGHT.findall(path.read_text())}
    assert len(events) > 8
    assert {event for event in events if not event.endswith(ENGINE_EVENTS)} == set()
