"""What supervisors say of themselves in the engine and what others make of it: seen, silent, gone, asked twice."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import msgspec
import pytest

from crawler.cli.main import main
from crawler.cli.scale import _text
from crawler.engine.client import Engine as Client
from crawler.errors import NotReachedError, UsageError
from crawler.frontier.keys import Keys
from crawler.frontier.scripts import library
from crawler.frontier.supervisors import ScaleRequest, SupervisorChild, SupervisorRecord, SupervisorRecords
from crawler.membership.node_names import host_id
from crawler.supervisor import scale_requests
from crawler.supervisor.child import ChildState
from crawler.supervisor.scale_requests import GONE, SILENT, SupervisorStatus, look, picked
from tests.support.engine import Engine

HERE = host_id()
HOST = socket.gethostname()


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[Client]:
    opened = Client(engine.url, library())
    await opened.connect()
    yield opened
    await opened.close()


@pytest.fixture
def supervisors(client: Client) -> SupervisorRecords:
    return SupervisorRecords(client, Keys("main"))


def record(
    session: str = "s1", *, host: str = HERE, folder: str = "/data/a", pid: int = 11, **others: object
) -> SupervisorRecord:
    made = SupervisorRecord(session=session, host=host, pid=pid, folder=folder, lock=f"{folder}/none.lock", wanted=1)
    return msgspec.structs.replace(made, **others)


@contextlib.asynccontextmanager
async def writing(supervisors: SupervisorRecords, one: SupervisorRecord) -> AsyncIterator[None]:
    """Write its record as a living supervisor would."""

    async def write() -> None:
        now = one
        while True:
            now = msgspec.structs.replace(now, counter=now.counter + 1)
            await supervisors.write(now)
            await asyncio.sleep(0.2)

    task = asyncio.create_task(write())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# --- seen from outside ---


async def test_who_writes_lives_and_who_does_not_is_silent_elsewhere_and_gone_here(
    supervisors: SupervisorRecords, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scale_requests, "SILENT_S", 1.0)
    await supervisors.write(record("old", host="other/boot", folder="/z"))
    await supervisors.write(record("killed"))
    async with writing(supervisors, record("up", host="other/boot", folder="/y", state="stopping")):
        await asyncio.sleep(0.05)
        seen = {one.record.session: one.state for one in await look(supervisors)}
    assert seen == {"old": SILENT, "killed": GONE, "up": "stopping"}
    assert list(await supervisors.read()) == ["up"], "what is not there is taken away"


def test_a_supervisor_is_found_by_machine_process_or_folder() -> None:
    here, second, away = (
        SupervisorStatus(one, "running")
        for one in (
            record("1"),
            record("2", folder="/data/b", pid=12),
            record("3", host="other/b", pid=13),
        )
    )
    gone = SupervisorStatus(record("4", host="third/b"), GONE)
    assert picked([here, away]) is here
    assert picked([here, away], host="other") is away
    assert picked([here, second], host=f"{HOST}:12") is second
    assert picked([here, second], folder="/data/b") is second
    with pytest.raises(UsageError, match=rf"2 supervisors run on this host: name one by --host {HOST}:11 \(/data/a\)"):
        picked([here, second], folder="/data/c")
    with pytest.raises(UsageError, match=r"no supervisor runs on this host: there are other:13 \(use --host\)"):
        picked([away])
    with pytest.raises(UsageError, match="no supervisor runs on host third: start one"):
        picked([gone], host="third")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"state": "stopping"}, "is stopping: it starts no more instances"),
        ({"obeyed": "me", "wanted": 2}, "not done after 0.6 s: 2 wanted, 0 running, 0 in transition; it continues"),
        ({}, "has not answered for 0.6 s"),
    ],
)
async def test_scaling_says_what_it_saw_when_the_wait_ended(
    supervisors: SupervisorRecords, change: dict[str, object], words: str
) -> None:
    one = record(**change)
    async with writing(supervisors, one):
        with pytest.raises(NotReachedError, match=words):
            await scale_requests.scale(supervisors, SupervisorStatus(one, "running"), 2, by="me", timeout_s=0.6)


async def test_of_two_who_scale_at_once_the_first_is_told_that_the_second_did(supervisors: SupervisorRecords) -> None:
    one = record()
    async with writing(supervisors, one):
        first = asyncio.create_task(
            scale_requests.scale(supervisors, SupervisorStatus(one, "running"), 2, by="me", timeout_s=5)
        )
        await asyncio.sleep(0.1)
        await supervisors.ask(one.session, ScaleRequest(wanted=3, by="other"))
        with pytest.raises(NotReachedError, match="somebody else scaled supervisor"):
            await first


async def test_scaling_a_supervisor_that_ends_says_so(supervisors: SupervisorRecords) -> None:
    with pytest.raises(NotReachedError, match="ended meanwhile"):
        await scale_requests.scale(supervisors, SupervisorStatus(record(), "running"), 2, by="me", timeout_s=5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-1"], "-1: expected 0 to 256 instances"),
        (["1000"], "1000: expected 0 to 256 instances"),
        (["3", "--status"], "--status only shows the state: give either --status or N"),
        (["3", "--hots", "x"], "unknown option --hots: did you mean --host?"),
    ],
)
def test_arguments_that_make_no_sense_are_one_line(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["scale", *arguments])
    except SystemExit as end:  # as argparse ends
        code = end.code
    assert code == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_each_state_can_be_read() -> None:
    children = (
        SupervisorChild(node="vm-0", state=ChildState.RUNNING, pid=71, for_s=65),
        SupervisorChild(
            node="vm-1", state=ChildState.RESTARTING, restarts=2, due_s=3.6, last_words="was killed (SIGKILL)"
        ),
        SupervisorChild(node="vm-2", state=ChildState.STOPPING, pid=73, for_s=2),
        SupervisorChild(node="vm-3", state=ChildState.GAVE_UP, restarts=8, for_s=4, last_words="x" * 100),
    )
    one = record(host="vm/boot", wanted=3, age_s=65.0, children=children)
    lines = _text(SupervisorStatus(one, "running")).splitlines()
    assert lines[0] == "vm:11: 1 of 3 instances run, up 1 m 05 s, /data/a"
    assert [line.split("  ")[0] for line in lines[1:]] == ["node", "vm-0", "vm-1", "vm-2", "vm-3"]
    assert "restarting in 3.6 s" in lines[3]
    assert "was killed (SIGKILL)" in lines[3]
    assert len(lines[5]) <= 110
    assert (
        _text(SupervisorStatus(one, GONE))
        == "vm:11: gone; it was killed, and its instances have ended or are about to, /data/a"
    )
    assert _text(SupervisorStatus(one, SILENT)).startswith("vm:11: silent; it was killed, or lost its connection")
    stopping = msgspec.structs.replace(one, state="stopping")
    assert _text(SupervisorStatus(stopping, "stopping")).startswith("vm:11: stopping, 1 of 3 instances run")
    assert "no instance is wanted" in _text(SupervisorStatus(record(wanted=0), "running"))
