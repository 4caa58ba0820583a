"""Looks into the engine's keys for jobs and runs: histories, records, what waits of a run, and what it left behind."""

import msgspec

from crawler.frontier.keys import Keys
from crawler.frontier.scripts import script
from crawler.rules.job_runs import job_of
from crawler.rules.jobs import Job, Row
from tests.simulation.census import Census
from tests.simulation.wire import RealEngine


class JobCensus:
    """Reads the keys of jobs at one moment."""

    def __init__(self, real: RealEngine, partitions: int, census: Census) -> None:
        self._wire = real.wire
        self._keys = Keys("main")
        self._partitions = partitions
        self._census = census

    def jobs(self) -> dict[str, tuple[Job, list[Row], set[str]]]:
        """Job, history and active runs by the id of the job."""
        found: dict[str, tuple[Job, list[Row], set[str]]] = {}
        for p in range(self._partitions):
            of = self._keys.of
            stored, active = self._wire.ask([("HGETALL", of(p, "jobs")), ("HKEYS", of(p, "runs"))])
            runs = {run.decode() for run in active}
            for number, raw in zip(map(bytes.decode, stored[::2]), stored[1::2], strict=True):
                job = msgspec.json.decode(raw.partition(b" ")[2], type=Job)
                rows = self._wire.one("ZRANGE", of(p, f"ledger:{number}"), 0, -1)
                mine = {run for run in runs if job_of(run) == number}
                found[number] = job, [msgspec.json.decode(row, type=Row) for row in rows], mine
        return found

    def pending_of(self, run: str) -> list[str]:
        """URLs of a run that wait, or are claimed."""
        return self._census.pending_of(run)

    def active(self) -> list[str]:
        """Runs that have records, and ended ones that are not closed."""
        asked = [c for p in range(self._partitions) for c in (
            ("HKEYS", self._keys.of(p, "runs")), ("SMEMBERS", self._keys.of(p, "closing")))]  # fmt: skip
        return [run.decode() for found in self._wire.ask(asked) for run in found]

    def left_of(self, runs: list[str]) -> list[str]:
        """Keys, fields and counts that name one of these runs, all of which were closed."""
        of, found = self._keys.of, list[str]()
        for p in range(self._partitions):
            names = sorted(name.decode() for name in self._wire.one("KEYS", of(p, "*")))
            found += [name for name in names if any(run in name.split(":") or f"s{run}" in name for run in runs)]
            fields = self._wire.one("HKEYS", of(p, "m"))
            found += [f"{of(p, 'm')} {f.decode()}" for f in fields if any(f.decode().endswith(run) for run in runs)]
            asked = [("FCALL", script("read_queues").function, 1, of(p, "m"), "counts", run) for run in runs]
            counts = [reply[0] for reply in self._wire.ask(asked)]
            found += [f"{of(p, 'e')} {run}" for run, packed in zip(runs, counts, strict=True) if packed]
        return found
