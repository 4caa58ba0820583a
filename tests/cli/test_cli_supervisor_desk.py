"""The desk of a supervisor: what it says in the engine, whom it obeys, and when it takes a child for hung."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from crawler.engine.client import Engine as Client
from crawler.frontier.keys import Keys
from crawler.frontier.members import Member, Members
from crawler.frontier.scripts import library
from crawler.frontier.supervisors import ScaleRequest, SupervisorRecord, SupervisorRecords
from crawler.membership.node_names import host_id
from crawler.settings import MembershipSettings
from crawler.supervisor.child import ChildState
from crawler.supervisor.control import SupervisorControl
from tests.support.engine import Engine
from tests.support.patience import PATIENCE_S

HERE = host_id()


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[Client]:
    opened = Client(engine.url, library())
    await opened.connect()
    yield opened
    await opened.close()


def record(session: str = "s1") -> SupervisorRecord:
    return SupervisorRecord(session=session, host=HERE, pid=11, folder="/data/a", lock="/data/a/none.lock", wanted=1)


@dataclass
class FakeChild:
    """Stands for a process that lives and never ends."""

    name: str = "vm-0"
    pid: int = 71
    state: ChildState = ChildState.STARTING
    restarts: int = 0
    since_s: float = 0.0
    due_s: float = 0.0
    last_words: str = ""
    paused: bool = False
    killed: str = ""

    def is_paused(self) -> bool:
        return self.paused

    def is_seen(self, state: ChildState) -> None:
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
        self.supervisors = SupervisorRecords(client, self.keys)
        self.supervisor = FakeSupervisor()
        self.member = Member(session="m", node="vm-0", counter=1, state="alive", host=HERE, pid=71)
        clock: Callable[[], float] = lambda: self.now_s  # noqa: E731 - the desk wants a clock
        self.control = SupervisorControl(
            self.supervisor, self.supervisors, self.members, record(), MembershipSettings(), clock=clock
        )  # type: ignore[arg-type]

    @property
    def child(self) -> FakeChild:
        return self.supervisor.children[0]

    async def beat(self, **change: object) -> None:
        self.member = msgspec.structs.replace(self.member, counter=self.member.counter + 1, **change)
        await self.members.join(self.member)

    async def looks(self, seconds: int, *, every_s: float = 1.0) -> None:
        for _ in range(seconds):
            self.now_s += every_s
            await self.control.look()


async def test_a_child_runs_once_its_instance_takes_part_and_is_held_out_while_that_is(
    client: Client,
) -> None:
    office = Office(client)
    await office.looks(1)
    assert office.child.state is ChildState.STARTING
    await office.beat(state="quarantined")
    await office.looks(1)
    assert office.child.state is ChildState.QUARANTINED
    await office.beat(state="alive")
    await office.looks(1)
    assert office.child.state is ChildState.RUNNING
    (told,) = (await office.supervisors.read()).values()
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
    await office.beat(time_scale=2)
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
    await office.supervisors.ask("s1", ScaleRequest(wanted=4, by="a"))
    await office.looks(1)
    assert office.supervisor.wanted == 4
    office.supervisor.wanted = 3  # one was evicted
    await office.looks(1)
    assert office.supervisor.wanted == 3
    await office.supervisors.ask("s1", ScaleRequest(wanted=4, by="b"))
    await office.looks(1)
    assert office.supervisor.wanted == 4
    assert (await office.supervisors.read())["s1"].obeyed == "b"


async def test_a_desk_takes_its_record_away_and_that_of_one_that_was_killed_here(
    client: Client, tmp_path: Path
) -> None:
    office = Office(client)
    lock = tmp_path / "dead.lock"
    lock.touch()
    await office.supervisors.write(msgspec.structs.replace(record("killed"), lock=str(lock)))
    running = asyncio.create_task(office.control.run())
    async with asyncio.timeout(PATIENCE_S):
        while list(await office.supervisors.read()) != ["s1"]:
            await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await office.control.close()
    assert await office.supervisors.read() == {}
