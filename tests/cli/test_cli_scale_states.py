"""What supervisors say of themselves in the engine and what others make of it: seen, silent, gone, asked twice."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from crawler.cli.main import main
from crawler.cli.scale import _text
from crawler.errors import NotReachedError, UsageError
from crawler.frontier.client import Engine as Client
from crawler.frontier.fleets import Fleet, FleetChild, Fleets, Request
from crawler.frontier.keys import Keys
from crawler.frontier.members import Member, Members
from crawler.nodes import host_id
from crawler.settings import MembershipSettings
from crawler.supervisor import scaling
from crawler.supervisor.child import State
from crawler.supervisor.desk import Desk
from crawler.supervisor.scaling import GONE, SILENT, Sighting, look, picked
from tests.support.engine import Engine

HERE = host_id()
HOST = socket.gethostname()


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[Client]:
    opened = Client(engine.url)
    await opened.connect()
    yield opened
    await opened.close()


@pytest.fixture
def fleets(client: Client) -> Fleets:
    return Fleets(client, Keys("main"))


def fleet(session: str = "s1", *, host: str = HERE, folder: str = "/data/a", pid: int = 11, **others: object) -> Fleet:
    made = Fleet(session=session, host=host, pid=pid, folder=folder, lock=f"{folder}/none.lock", wanted=1)
    return msgspec.structs.replace(made, **others)


@contextlib.asynccontextmanager
async def writing(fleets: Fleets, one: Fleet) -> AsyncIterator[None]:
    """Write its record as a living supervisor would."""

    async def write() -> None:
        now = one
        while True:
            now = msgspec.structs.replace(now, counter=now.counter + 1)
            await fleets.write(now)
            await asyncio.sleep(0.2)

    task = asyncio.create_task(write())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# --- seen from outside ---


async def test_who_writes_lives_and_who_does_not_is_silent_elsewhere_and_gone_here(
    fleets: Fleets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "SILENT_S", 1.0)
    await fleets.write(fleet("old", host="other/boot", folder="/z"))
    await fleets.write(fleet("killed"))
    async with writing(fleets, fleet("up", host="other/boot", folder="/y", state="stopping")):
        await asyncio.sleep(0.05)
        seen = {one.fleet.session: one.state for one in await look(fleets)}
    assert seen == {"old": SILENT, "killed": GONE, "up": "stopping"}
    assert list(await fleets.read()) == ["up"], "what is not there is taken away"


def test_a_supervisor_is_found_by_machine_process_or_folder() -> None:
    here, second, away = (
        Sighting(one, "running")
        for one in (fleet("1"), fleet("2", folder="/data/b", pid=12), fleet("3", host="other/b", pid=13))
    )
    gone = Sighting(fleet("4", host="third/b"), GONE)
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
        ({"state": "stopping"}, "is stopping: it starts no instance any more"),
        ({"obeyed": "me", "wanted": 2}, "not done after 0.6 s: 2 wanted, 0 running, 0 on their way; it goes on"),
        ({}, "has not answered for 0.6 s"),
    ],
)
async def test_scaling_says_what_it_saw_when_the_wait_ended(
    fleets: Fleets, change: dict[str, object], words: str
) -> None:
    one = fleet(**change)
    async with writing(fleets, one):
        with pytest.raises(NotReachedError, match=words):
            await scaling.scale(fleets, Sighting(one, "running"), 2, by="me", timeout_s=0.6)


async def test_of_two_who_scale_at_once_the_first_is_told_that_the_second_did(fleets: Fleets) -> None:
    one = fleet()
    async with writing(fleets, one):
        first = asyncio.create_task(scaling.scale(fleets, Sighting(one, "running"), 2, by="me", timeout_s=5))
        await asyncio.sleep(0.1)
        await fleets.ask(one.session, Request(wanted=3, by="other"))
        with pytest.raises(NotReachedError, match="somebody else scaled supervisor"):
            await first


async def test_scaling_a_supervisor_that_ends_says_so(fleets: Fleets) -> None:
    with pytest.raises(NotReachedError, match="ended meanwhile"):
        await scaling.scale(fleets, Sighting(fleet(), "running"), 2, by="me", timeout_s=5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-1"], "-1: expected 0 to 256 instances"),
        (["1000"], "1000: expected 0 to 256 instances"),
        (["3", "--status"], "--status shows how things are: give either it or N"),
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
        FleetChild(node="vm-0", state=State.RUNNING, pid=71, for_s=65),
        FleetChild(node="vm-1", state=State.RESTARTING, restarts=2, due_s=3.6, last_words="was killed (SIGKILL)"),
        FleetChild(node="vm-2", state=State.STOPPING, pid=73, for_s=2),
        FleetChild(node="vm-3", state=State.GAVE_UP, restarts=8, for_s=4, last_words="x" * 100),
    )
    one = fleet(host="vm/boot", wanted=3, age_s=65.0, children=children)
    lines = _text(Sighting(one, "running")).splitlines()
    assert lines[0] == "vm:11: 1 of 3 instances run, up 1 m 05 s, /data/a"
    assert [line.split("  ")[0] for line in lines[1:]] == ["node", "vm-0", "vm-1", "vm-2", "vm-3"]
    assert "restarting in 3.6 s" in lines[3]
    assert "was killed (SIGKILL)" in lines[3]
    assert len(lines[5]) <= 110
    assert _text(Sighting(one, GONE)) == "vm:11: gone; it was killed, its instances have ended or are about to, /data/a"
    assert _text(Sighting(one, SILENT)).startswith("vm:11: silent; it was cut off or killed")
    stopping = msgspec.structs.replace(one, state="stopping")
    assert _text(Sighting(stopping, "stopping")).startswith("vm:11: stopping, 1 of 3 instances run")
    assert "no instance is wanted" in _text(Sighting(fleet(wanted=0), "running"))


# --- the desk ---


@dataclass
class FakeChild:
    """Stands for a process that lives and never ends."""

    name: str = "vm-0"
    pid: int = 71
    state: State = State.STARTING
    restarts: int = 0
    since_s: float = 0.0
    due_s: float = 0.0
    last_words: str = ""
    paused: bool = False
    killed: str = ""

    def is_paused(self) -> bool:
        return self.paused

    def is_seen(self, state: State) -> None:
        self.state = state

    def kill(self, *, hung: str) -> None:
        self.killed = hung


class FakeSupervisor:
    def __init__(self) -> None:
        self.wanted = 1
        self.is_ending = False
        self.children = [FakeChild()]

    def scale(self, wanted: int) -> None:
        self.wanted = wanted


class Office:
    """A desk over a supervisor that is none, on a clock of its own."""

    def __init__(self, client: Client) -> None:
        self.now_s = 100.0
        self.keys = Keys("main")
        self.members = Members(client, self.keys)
        self.fleets = Fleets(client, self.keys)
        self.supervisor = FakeSupervisor()
        self.member = Member(session="m", node="vm-0", counter=1, state="alive", host=HERE, pid=71)
        clock: Callable[[], float] = lambda: self.now_s  # noqa: E731 - the desk wants a clock
        self.desk = Desk(self.supervisor, self.fleets, self.members, fleet(), MembershipSettings(), clock=clock)  # type: ignore[arg-type]

    @property
    def child(self) -> FakeChild:
        return self.supervisor.children[0]

    async def beat(self, **change: object) -> None:
        self.member = msgspec.structs.replace(self.member, counter=self.member.counter + 1, **change)
        await self.members.join(self.member)

    async def looks(self, seconds: int, *, every_s: float = 1.0) -> None:
        for _ in range(seconds):
            self.now_s += every_s
            await self.desk.look()


async def test_a_child_runs_once_its_instance_takes_part_and_is_held_out_while_that_is(
    client: Client,
) -> None:
    office = Office(client)
    await office.looks(1)
    assert office.child.state is State.STARTING
    await office.beat(state="held_out")
    await office.looks(1)
    assert office.child.state is State.HELD_OUT
    await office.beat(state="alive")
    await office.looks(1)
    assert office.child.state is State.RUNNING
    (told,) = (await office.fleets.read()).values()
    assert (told.counter, told.children[0].state) == (3, "running")


async def test_a_child_without_heartbeat_is_killed_after_three_times_the_silence_of_a_dead(client: Client) -> None:
    office = Office(client)
    await office.beat()
    await office.looks(21)
    assert not office.child.killed
    await office.looks(1)
    assert office.child.killed == "no heartbeat for 21 s"


async def test_a_heart_that_beats_slowly_because_there_are_many_is_given_that_time(client: Client) -> None:
    office = Office(client)
    await office.beat(stretch=2)
    await office.looks(42)
    assert not office.child.killed
    await office.looks(1)
    assert office.child.killed


async def test_a_child_that_somebody_paused_is_not_killed(client: Client) -> None:
    office = Office(client)
    office.child.paused = True
    await office.beat()
    await office.looks(60)
    assert not office.child.killed


async def test_a_supervisor_that_was_paused_itself_learns_nothing_from_the_gap(client: Client) -> None:
    office = Office(client)
    await office.beat()
    await office.looks(20)
    await office.looks(1, every_s=30.0)
    await office.looks(20)
    assert not office.child.killed


async def test_the_same_number_asked_for_again_is_obeyed_again_and_one_request_only_once(client: Client) -> None:
    office = Office(client)
    await office.fleets.ask("s1", Request(wanted=4, by="a"))
    await office.looks(1)
    assert office.supervisor.wanted == 4
    office.supervisor.wanted = 3  # one was evicted
    await office.looks(1)
    assert office.supervisor.wanted == 3
    await office.fleets.ask("s1", Request(wanted=4, by="b"))
    await office.looks(1)
    assert office.supervisor.wanted == 4
    assert (await office.fleets.read())["s1"].obeyed == "b"


async def test_a_desk_takes_its_record_away_and_that_of_one_that_was_killed_here(
    client: Client, tmp_path: Path
) -> None:
    office = Office(client)
    lock = tmp_path / "dead.lock"
    lock.touch()
    await office.fleets.write(msgspec.structs.replace(fleet("killed"), lock=str(lock)))
    running = asyncio.create_task(office.desk.run())
    async with asyncio.timeout(10):
        while list(await office.fleets.read()) != ["s1"]:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await office.desk.close()
    assert await office.fleets.read() == {}
