"""The faults: each kind is a method that injects it now, and undoes it later.

Knows how to hurt; what must hold nevertheless is the judge's matter.
"""

import random
from collections.abc import Callable, Sequence

from tests.simulation.ambushes import Ambushes
from tests.simulation.census import Census
from tests.simulation.disk import Disks
from tests.simulation.disturbance import Disturbances
from tests.simulation.engine import Job, Server
from tests.simulation.judge import Judge
from tests.simulation.loop import NS, Process, VirtualLoop
from tests.simulation.machines import Fleet, Life, Node
from tests.simulation.standstill import pause_crawl

HOUR_NS = 3600 * NS
JUMPS_NS = (-25 * HOUR_NS, -HOUR_NS, HOUR_NS, 25 * HOUR_NS)
CALLS = (
    "ack",
    "ack",
    "claim",
    "claim",
    "acquire",
    "release_lease",
    "add",
    "drain_log",
    "return_claims",
    "retry",
    "book_request",
    "join",
    "leave",
)


OF_JOBS = ("change_job", "change_job", "touch_run", "close_run", "add")


class Faults:
    """All kinds of faults over one simulation."""

    def __init__(
        self, loop: VirtualLoop, server: Server, fleet: Fleet, disks: Disks, judge: Judge, census: Census,
        rng: random.Random, calls: Sequence[str] = CALLS,
    ) -> None:  # fmt: skip
        self._loop = loop
        self._server = server
        self._fleet = fleet
        self._disks = disks
        self._judge = judge
        self._census = census
        self._rng = rng
        self._calls = calls
        self._ambushes = Ambushes(server, fleet.internet)
        self.on_engine_clock: Callable[[], None] = lambda: None
        self.is_over = False
        self._fell_ns = self._failed_over_ns = 0  # when the engine, or a shard of it, fell back last

    @property
    def _noted(self) -> Disturbances:
        return self._judge.disturbances

    def strike(self, kind: str) -> None:
        """Inject this fault now, into a random running instance."""
        if not self.is_over and self._fleet.up:
            getattr(self, "_" + kind.replace(" ", "_"))()

    def heal(self) -> None:
        """No more faults, and those that last end now."""
        self.is_over = True
        self._ambushes.clear()
        self._server.weather.slow_beats.clear()
        self._disks.full.clear()
        self._disks.broken.clear()
        self._disks.low.clear()
        self._fleet.internet.is_away = False
        for process in list(self._server.weather.cuts):
            self._heal_cut(process)
        for kind, process in list(self._noted._open):
            self._noted.ended(kind, process)
        if not self._server.is_up:
            self._server.start()
        for shard in self._server.shards:
            shard.is_cut = False
            if not shard.is_up:
                self._server.promote(shard)
        self._server.go_on()
        for life in self._fleet.up:
            self._fleet.resume(life)
            life.wall_ns = 0
        self._set_engine_clock(0)

    def _someone(self) -> Life:
        return self._rng.choice(self._fleet.up)

    def _seconds(self, low: float, high: float) -> float:
        return low + (high - low) * self._rng.random() ** 2

    # --- processes ---

    def _come_back(self, node: Node) -> None:
        """A killed node is started again soon, later, when all is over, or never; a person is not, and a node whose
        cluster may lose writes always is.
        """
        if node not in self._fleet.nodes:
            return
        luck = self._rng.random()
        if luck < 0.35:
            self._loop.after(self._rng.uniform(0.05, 2.0), self._fleet.start, node)
        elif luck < 0.7:
            self._loop.after(self._rng.uniform(3.0, 15.0), self._fleet.start, node)
        elif luck < 0.85 and not self._server.shards:  # what a failover lost may be known on the dead one's disk alone
            node.comes_back = False

    def _kill(self, life: Life | None = None) -> None:
        life = life or self._someone()
        if life.ended:
            return
        self._note_death("kill", life)
        self._fleet.kill(life)
        if life.session:
            self._loop.after(10.0, self._judge.check_taken_over, life.session, self._loop.now_ns, 10.0, "a kill")
        self._come_back(life.node)

    def _note_death(self, kind: str, life: Life) -> None:
        self._noted.happened(kind, life)
        self._judge.died_ns[life.session] = self._loop.now_ns
        if life.instance is not None:
            self._judge.deaths.update(claim.url for claim in life.instance.stages.fetching.in_turn)

    def _kill_at_a_call(self) -> None:
        self._lie_in_wait(lambda job: self._kill(_life(job)))

    def _pause(self, life: Life | None = None, seconds: float = 0.0) -> None:
        life = life or self._someone()
        if life.is_paused or life.ended:
            return
        self._noted.began("pause", life)
        seconds = seconds or self._silence_s()
        self._fleet.pause(life, seconds)
        self._loop.after(seconds, self._noted.ended, "pause", life)

    def _silence_s(self) -> float:
        """About as long as it takes to be taken for dead, or anything."""
        return self._rng.uniform(5.0, 9.0) if self._rng.random() < 0.5 else self._seconds(0.5, 30.0)

    def _pause_at_a_call(self) -> None:
        self._lie_in_wait(lambda job: self._pause(_life(job)))

    def _pause_before_a_request(self) -> None:
        seconds = self._seconds(3.0, 20.0)
        self._ambushes.on_request(lambda life: self._pause(life, seconds))

    def _pause_until_removed(self) -> None:
        """Pause an instance until it is about to be removed from the member list, and resume it at that moment."""
        life = self._someone()
        if not life.is_paused:
            self._pause(life, 30.0)
            self._ambushes.on_strike(life, lambda: self._wake(life))

    def _wake(self, life: Life) -> None:
        self._fleet.resume(life)
        self._noted.ended("pause", life)

    def _leave(self, life: Life | None = None) -> None:
        life = life or self._someone()
        if life.instance is None or life.ended:
            return
        self._noted.counts["leave"] += 1
        self._fleet.leave(life)
        if self._rng.random() < 0.5:
            self._loop.after(self._rng.uniform(5.0, 20.0), self._fleet.start, life.node)
        else:
            life.node.comes_back = False

    def _leave_at_a_call(self) -> None:
        """The signal comes while an answer is on its way."""
        self._lie_in_wait(lambda job: self._leave(_life(job)))

    def _join(self) -> None:
        if len(self._fleet.nodes) < 7:
            self._noted.counts["join"] += 1
            self._fleet.start(
                self._fleet.add(self._rng.choice(["m0", "m1", "m2"]), shows_death=self._rng.random() < 0.7)
            )

    def _flap(self) -> None:
        node = self._someone().node
        for n in range(self._rng.randint(2, 4)):
            self._loop.after(n * 2.5, self._flap_once, node)

    def _flap_once(self, node: Node) -> None:
        if self.is_over or node.life is None:
            return
        life = node.life
        self._note_death("flap", life)
        self._fleet.kill(life)
        self._loop.after(self._rng.uniform(0.1, 1.5), self._fleet.start, node)

    def _wall_clock_jump(self) -> None:
        life = self._someone()
        self._noted.counts["wall clock jump"] += 1
        life.wall_ns += self._rng.choice(JUMPS_NS)

    def _engine_clock_step(self) -> None:
        self._noted.counts["engine clock step"] += 1
        self._set_engine_clock(self._server.wall_ns + self._rng.choice(JUMPS_NS))

    def _set_engine_clock(self, wall_ns: int) -> None:
        self._server.wall_ns = wall_ns
        self.on_engine_clock()

    def _all_clocks_step(self) -> None:
        """All are set by the same server, which is wrong."""
        self._noted.counts["all clocks step"] += 1
        step_ns = self._rng.choice((-HOUR_NS, HOUR_NS))
        for life in self._fleet.up:
            life.wall_ns += step_ns
        self._set_engine_clock(self._server.wall_ns + step_ns)

    # --- the network ---

    def _cut(self) -> None:
        life = self._someone()
        if life in self._server.weather.cuts:
            return
        direction = self._rng.choice(("both", "requests", "replies"))
        self._noted.began("cut", life)
        self._server.weather.cut(life, requests=direction != "replies", replies=direction != "requests")
        self._loop.after(self._silence_s(), self._heal_cut, life)

    def _heal_cut(self, process: Process) -> None:
        self._server.weather.heal(process)
        self._noted.ended("cut", process)

    def _slow_beats(self) -> None:
        life = self._someone()
        self._noted.began("slow beats", life)
        self._server.weather.slow_beats[life] = self._rng.choice((1.9, 4.0, 8.0))
        self._loop.after(self._seconds(4.0, 15.0), self._end_slow_beats, life)

    def _end_slow_beats(self, life: Life) -> None:
        self._server.weather.slow_beats.pop(life, None)
        self._noted.ended("slow beats", life)

    def _reply_lost_at_a_call(self) -> None:
        def lose(job: Job) -> None:
            self._noted.happened("reply lost at a call", job.process)
            job.reply_lost = True

        self._lie_in_wait(lose)

    def _lie_in_wait(self, strike: Callable[[Job], None]) -> None:
        self._ambushes.on_call(self._rng.choice(self._calls), self._rng.randint(1, 4), strike)

    # --- the engine ---

    def _engine_restart(self) -> None:
        if self._server.is_up:
            self._go_down("engine restart", self._seconds(0.05, 9.0))

    def _go_down(self, kind: str, seconds: float) -> None:
        self._noted.began(kind)
        self._server.kill()
        self._loop.after(seconds, self._up_again, kind)

    def _up_again(self, kind: str) -> None:
        if not self._server.is_up:
            self._server.start()
        self._noted.ended(kind)

    def _engine_stop(self) -> None:
        if self._server.is_reachable:
            self._noted.began("engine stop")
            self._server.stop()
            self._loop.after(self._seconds(0.3, 12.0), self._go_on)

    def _go_on(self) -> None:
        self._server.go_on()
        self._noted.ended("engine stop")

    def _engine_rollback(self) -> None:
        """The tail of the append-only file is lost: a moment's work is undone."""
        if self._server.is_up:
            taken = self._server.real.snapshot()
            self._loop.after(self._rng.uniform(0.02, 1.0), self._fall_back, taken, self._loop.now_ns)

    def _fall_back(self, snapshot: list[tuple[bytes, bytes]], taken_ns: int) -> None:
        if taken_ns < max(self._fell_ns, self._failed_over_ns):  # what it holds was undone since, and can't come back
            return
        if self._server.is_up and not self.is_over:
            self._fell_ns = self._loop.now_ns
            self._go_down("engine rollback", self._seconds(0.05, 5.0))
            self._server.real.restore(snapshot)
            self._judge.rolled_back(taken_ns, self._census.leases())

    def _shard_failover(self) -> None:
        """The link of a replica is cut; then its primary fails, and the replica takes over: a moment's work on that
        shard is undone.
        """
        shard = self._rng.choice(self._server.shards)
        if self._server.is_up and shard.is_up and not shard.is_cut:
            shard.is_cut = True
            place = self._server.shards.index(shard)
            taken = self._server.real.snapshot(self._keys_of(place))
            self._loop.after(self._rng.uniform(0.02, 1.5), self._fail_over, place, taken, self._loop.now_ns)

    def _keys_of(self, place: int) -> Callable[[bytes], bool]:
        return lambda key: self._server.shard_of(key.decode()) == place

    def _fail_over(self, place: int, snapshot: list[tuple[bytes, bytes]], taken_ns: int) -> None:
        shard = self._server.shards[place]
        if taken_ns < self._fell_ns or not self._server.is_up or self.is_over or not shard.is_cut:
            shard.is_cut = False
            return
        self._failed_over_ns = self._loop.now_ns
        kind = f"shard failover {place}"
        self._noted.began(kind)
        shard.is_up = False
        self._server.real.restore(snapshot, self._keys_of(place))
        partitions = [p for p in range(self._judge.partitions) if self._keys_of(place)(b"{main:%d}" % p)]
        self._judge.rolled_back(taken_ns, self._census.leases(), partitions)
        self._loop.after(self._seconds(0.1, 8.0), self._promoted, place, shard.run_id, kind)

    def _promoted(self, place: int, run_id: str, kind: str) -> None:
        shard = self._server.shards[place]
        if shard.run_id == run_id:
            self._server.promote(shard)
        self._noted.ended(kind)

    # --- machines ---

    def _power_cut(self, machine: str = "") -> None:
        machine = machine or self._someone().node.machine
        self._noted.counts["power cut"] += 1
        nodes = [life.node for life in self._fleet.up if life.node.machine == machine]
        for node in nodes:
            assert node.life is not None
            self._note_death("machine down", node.life)
        self._fleet.power_cut(machine)
        for node in nodes:
            self._come_back(node)

    def _blackout(self) -> None:
        """Everything goes down at once; the append-only file stays."""
        for machine in sorted({life.node.machine for life in self._fleet.up}):
            self._power_cut(machine)
        if self._server.is_up:
            self._go_down("blackout", 1.0)

    def _disk_full(self) -> None:
        life = self._someone()
        broken = self._disks.full if self._rng.random() < 0.5 else self._disks.broken
        self._noted.began("disk full", life)
        broken.add(life)
        self._loop.after(self._seconds(0.5, 8.0), self._end_disk_full, life)

    def _end_disk_full(self, life: Life) -> None:
        self._disks.full.discard(life)
        self._disks.broken.discard(life)
        self._noted.ended("disk full", life)

    # --- what needs patience ---

    def _outage(self) -> None:
        """The instances reach no host for a while, as when their own line is away."""
        net = self._fleet.internet
        if not net.is_away:
            net.is_away = True
            self._noted.counts["outage"] += 1
            self._loop.after(self._seconds(0.5, 20.0), setattr, net, "is_away", False)  # noqa: FBT003

    def _standstill(self) -> None:
        """A command pauses the crawl for a backup; it may be killed while it waits, or after that."""
        self._noted.counts["standstill"] += 1
        life = Life(Node(f"backup{self._noted.counts['standstill']}", "seeding"), 1, self._rng)
        self._loop.start(life, pause_crawl(self._fleet, life, self._seconds(0.1, 6.0), self._noted.counts))
        if self._rng.random() < 0.4:
            self._loop.after(self._seconds(0.1, 8.0), self._fleet.kill, life)

    def _disk_low(self) -> None:
        """Of one machine; often enough of all, because most fleets have few."""
        machine = self._someone().node.machine
        self._noted.counts["disk low"] += 1
        self._disks.low.add(machine)
        self._loop.after(self._seconds(1.0, 20.0), self._disks.low.discard, machine)


def _life(job: Job) -> Life:
    assert isinstance(job.process, Life)
    return job.process
