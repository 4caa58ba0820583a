"""Ends this process by SIGKILL before or after an engine call that is made for jobs. Python loads it at the start.

JOB_STEP=FUNCTION:COMMAND names the step: the innermost function of these PLACES on the stack,
and the script or command that it calls. JOB_STEP_END=before or after the call. JOB_STEPS=FILE: all steps are noted
there, one a line, as they come.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

NAMED = ("jobs/clock_check", "jobs/triggers", "jobs/runs", "crawl/runs")
PLACES = tuple(f"/crawler/{name}.py" for name in NAMED)
STEP, END, NOTES = (os.environ.get(name, "") for name in ("JOB_STEP", "JOB_STEP_END", "JOB_STEPS"))


def step_of(commands: Sequence[tuple[Any, ...]]) -> str:
    frame = sys._getframe(2)
    while frame is not None and not any(place in frame.f_code.co_filename for place in PLACES):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or not commands:
        return ""
    name, *rest = map(str, commands[0])
    if name == "FCALL":
        name = next(script for script in sorted(NAMES, key=len, reverse=True) if rest[0].endswith(f"_{script}"))
    return f"{frame.f_code.co_name}:{name}"


def note(step: str) -> None:
    if NOTES and step:
        with Path(NOTES).open("a") as file:
            file.write(f"{step}\n")


if STEP or NOTES:
    from crawler.engine.client import Engine
    from crawler.frontier.scripts import NAMES

    whole = Engine._pipeline

    async def pipeline(engine: Engine, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        step = step_of(commands)
        note(step)
        is_here = bool(STEP) and step == STEP
        if is_here and END == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        replies = await whole(engine, commands)
        if is_here:
            os.kill(os.getpid(), signal.SIGKILL)
        return replies

    Engine._pipeline = pipeline  # type: ignore[method-assign]
