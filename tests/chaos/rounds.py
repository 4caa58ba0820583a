"""One crawl under faults: they come while work is left, then all is mended and it must finish by itself."""

import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos.fleet import EngineHost, Incident, Place, harm
from tests.chaos.lease_watch import LeaseWatch
from tests.chaos.schedule import ENGINE_KINDS, Fault, faults
from tests.support.serving import GeneratedSite

TICK_S = 0.05
HOMES = 4  # instances that are always meant to run; two of them share a machine and a folder
WELL_MIN = 2
FAULTS_UNTIL = 0.9  # share of the URLs that are done
FINISH_S = 120.0  # for the rest, once all is mended
LEAVE_S = 60.0


@dataclass
class RoundLog:
    """What happened, for the judges."""

    incidents: list[Incident] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    began: float = 0.0
    mended: float = 0.0
    ended: float = 0.0


class Round:
    """Runs in one thread: every tick, what is due is done."""

    def __init__(
        self,
        crawl: str,
        *,
        seed: str,
        site: GeneratedSite,
        engine: EngineHost,
        places: list[Place],
        watch: LeaseWatch,
        until: float,
        pace_s: tuple[float, float],
        fault_s_max: float,
        say: Callable[[str], None],
    ) -> None:
        self.log = RoundLog()
        self._crawl, self._site, self._engine, self._watch = crawl, site, engine, watch
        self._homes, self._slot_queue = places[:HOMES], places[HOMES:]
        self._until, self._say = until, say
        self._faults = faults(seed, homes=HOMES, pace_s=pace_s, seconds_max=fault_s_max)
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._engine_fault: Incident | None = None
        self._absence_s: dict[str, float] = {}  # of leavers, until they join again
        self._expected = site.web.expected()

    @property
    def _places(self) -> list[Place]:
        return [*self._homes, *self._slot_queue]

    def run(self) -> RoundLog:
        self.log.began = time.monotonic()
        for place in self._homes:
            place.start()
        self._with_faults()
        self._mend()
        self.log.mended = time.monotonic()
        self._to_the_end()
        self.log.ended = time.monotonic()
        self.log.problems += [text for place in self._places for text in place.broken]
        return self.log

    # --- time ---

    def _at(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (time.monotonic() + seconds, next(self._order), action))

    def _tick(self) -> None:
        time.sleep(TICK_S)
        while self._due and self._due[0][0] <= time.monotonic():
            heapq.heappop(self._due)[2]()
        for place in self._places:
            was_leaving = place.state == "leaving"
            if place.notice_end(has_entered=self._has_entered(place)):
                self._at(1.0, lambda place=place: self._start(place))
            elif was_leaving and place.state != "leaving":
                self._left(place)
            elif was_leaving and place.fault is not None and time.monotonic() > place.fault.start + LEAVE_S:
                self.log.problems.append(f"{place.node} did not end within {LEAVE_S:.0f} s of SIGTERM")
                place.kill()
                self._left(place)

    def _has_entered(self, place: Place) -> bool:
        return place.program is not None and place.pid in self._watch.session_of_pid

    def _with_faults(self) -> None:
        total = len(self._expected.committed) + len(self._expected.dead) + len(self._expected.refused)
        for fault in self._faults:
            due = time.monotonic() + fault.wait_s
            while time.monotonic() < due:
                self._tick()
                over = time.monotonic() > self._until or self._watch.done >= FAULTS_UNTIL * total
                if over or any(place.state == "finished" for place in self._places):
                    return
            if self._begin(fault) and fault.quiet_s:
                self._rest(fault.quiet_s)

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < min(until, self._until):
            self._tick()

    # --- faults ---

    def _begin(self, fault: Fault) -> bool:
        if fault.kind in ENGINE_KINDS:
            return self._harm_engine(fault)
        if fault.kind == "join":
            return self._invite(fault)
        well = [place for place in self._homes if place.is_well]
        if len(well) <= WELL_MIN:
            return False
        place = next(self._homes[n] for n in fault.places if self._homes[n].is_well)
        self._hit(place, fault)
        return True

    def _hit(self, place: Place, fault: Fault) -> None:
        place.fault = incident = self._happens(fault, place)
        if fault.kind == "kill":
            place.kill()
            self._at(fault.seconds, lambda: self._healed(place, incident, lambda: self._start(place)))
        elif fault.kind in ("pause", "hiccup"):
            place.pause()
            self._at(fault.seconds, lambda: self._healed(place, incident, place.resume))
        elif fault.kind == "leave":
            place.leave()
            self._absence_s[place.node] = fault.seconds
        else:
            harm(place, fault)
            self._at(fault.seconds, lambda: self._healed(place, incident, place.proxy.heal))

    def _happens(self, fault: Fault, place: Place | None) -> Incident:
        node = place.node if place else ""
        session = self._watch.session_of_pid.get(place.pid, "") if place and place.program else ""
        kind = f"{fault.kind} {fault.direction}" if fault.kind in ("blackhole", "stall") else fault.kind
        incident = Incident(kind, node, time.monotonic(), session=session)
        self.log.incidents.append(incident)
        self._say(f"{incident.start - self.log.began:6.1f} s  {kind} {node or 'engine'}, {fault.seconds:.1f} s")
        return incident

    def _healed(self, place: Place, incident: Incident, act: Callable[[], None]) -> None:
        if place.fault is incident:
            act()
            place.fault = None
            incident.end = time.monotonic()

    def _start(self, place: Place) -> None:
        if place.state == "out":
            place.start()

    def _left(self, place: Place) -> None:
        """A leaver is gone: a home comes back after a while, a borrower does not."""
        incident, place.fault = place.fault, None
        if incident is not None:
            incident.end = time.monotonic()
        if place in self._homes:
            self._at(self._absence_s[place.node], lambda: self._start(place))

    def _invite(self, fault: Fault) -> bool:
        slot = next((place for place in self._slot_queue if place.state == "out" and place.fault is None), None)
        if slot is None:
            return False
        self._happens(fault, slot).end = time.monotonic()
        slot.start()

        def leave() -> None:
            if slot.state == "up":
                self._hit(slot, Fault(**{**vars(fault), "kind": "leave"}))

        self._at(fault.seconds, leave)
        return True

    def _harm_engine(self, fault: Fault) -> bool:
        if self._engine_fault is not None:
            return False
        incident = self._happens(fault, None)
        if fault.kind == "script flush":
            self._engine.flush_scripts()
            incident.end = time.monotonic()
            return True
        self._engine_fault = incident
        (self._engine.kill if fault.kind == "engine kill" else self._engine.pause)()
        self._at(fault.seconds, self._mend_engine)
        return True

    def _mend_engine(self) -> None:
        incident, self._engine_fault = self._engine_fault, None
        if incident is None:
            return
        (self._engine.start if incident.kind == "engine kill" else self._engine.resume)()
        incident.end = time.monotonic()

    # --- the end ---

    def _mend(self) -> None:
        """Everything works again; who was down is started, who was leaving has left."""
        self._due.clear()
        self._mend_engine()
        for place in self._places:
            incident = place.fault
            if incident is not None and place.state != "leaving":
                again = (lambda place=place: self._start(place)) if incident.kind == "kill" else place.resume
                self._healed(place, incident, again)
            place.proxy.heal()
            if place in self._homes:
                self._start(place)

    def _to_the_end(self) -> None:
        """Until all instances have ended because nothing is left."""
        until = time.monotonic() + FINISH_S
        while any(place.state in ("up", "leaving", "paused") for place in self._places) or self._due:
            self._tick()
            if time.monotonic() > until:
                states = {place.node: place.state for place in self._places if place.state != "finished"}
                left = f"{self._watch.pending} URLs pending"
                self.log.problems.append(f"not finished {FINISH_S:.0f} s after all was mended: {left}, {states}")
                return
