"""Members, partitions and the ring: who owns what, who will, pins and moves."""

from collections.abc import Mapping, Sequence

import msgspec


class RingMember(msgspec.Struct, frozen=True, kw_only=True):
    """A session on the member list."""

    node: str
    state: str  # of rules.membership.DeclaredState, or silent, or dead
    waits_for_room: bool  # others get its partitions until the disk of its crawl folder has room
    disagrees: bool  # follows another ring than most
    session: str
    age_s: float
    host: str
    pid: int
    weight: int
    in_flight: int  # open requests
    suggested: int  # partitions, by the ring
    held: int  # partitions, by leases


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """A primary of the cluster that the engine is, and its part of the crawl."""

    name: str  # host:port
    is_up: bool
    has_replica: bool
    slots: int
    partitions: int
    used_bytes: int


class RingMembers(msgspec.Struct, frozen=True, kw_only=True):
    """All members of a crawl, and what nobody on the list holds."""

    crawl: str
    partitions: int
    members: Sequence[RingMember]
    free: int  # partitions without a lease
    held_by_gone: int  # partitions held by sessions that are not on the list
    rings: Mapping[str, Sequence[str]]  # digest -> nodes that follow it, that of most first; empty when all agree
    shards: Sequence[Shard] = ()  # of a cluster


class UrlPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a URL belongs, who owns it now, and who should."""

    url: str
    domain: str
    queue: str
    partition: int
    owner: str  # node; "" for none
    session: str
    epoch: int
    suggested: str  # node, by the ring; "" while no instance runs
    pinned: str  # node; "" for none


class PlanNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node before and after a change; partitions."""

    node: str
    weight: int  # after it
    now: int
    then: int
    gives: int
    gets: int


class PlanMove(msgspec.Struct, frozen=True, kw_only=True, rename={"giver": "from", "getter": "to"}):
    """What would move between two nodes; "" for nobody."""

    giver: str
    getter: str
    partitions: int
    domains: int
    pending: int  # URLs


class RingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a change of nodes would move."""

    crawl: str
    partitions: int
    now: Mapping[str, int]  # node -> weight
    then: Mapping[str, int]
    moved: int  # partitions
    share_moved: float  # of all partitions, 0 to 1
    share_changed: float  # by how much the shares of all nodes change, 0 to 1
    domains: int
    pending: int  # URLs
    nodes: Sequence[PlanNode]
    moves: Sequence[PlanMove]  # the largest first


class NewPin(msgspec.Struct, frozen=True, kw_only=True):
    """A domain that was pinned."""

    domain: str
    node: str
    partition: int
    partitions: int
    domains: int  # of this partition, so far
    running: bool  # does the node take part now?


class RemovedPin(msgspec.Struct, frozen=True, kw_only=True):
    """A domain whose pin was removed."""

    domain: str
    partition: int
    still_pinned_by: Sequence[str]  # other domains of the partition


class Pin(msgspec.Struct, frozen=True, kw_only=True):
    """A pin. `state`: heard (its node owns the partition), moving, waiting for the node to take part, or full: its node
    has it, and no room on its disk.
    """

    domain: str
    node: str
    partition: int
    owner: str  # node; "" for none
    state: str


class PinList(msgspec.Struct, frozen=True, kw_only=True):
    """All pins of a crawl, by domain."""

    crawl: str
    pins: Sequence[Pin]


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that was evicted."""

    node: str
    session: str
    host: str
    pid: int
    partitions: int  # that it held
    seconds: float  # until no lease was in its name
    by_itself: bool  # it let go; otherwise others took over
    others: Sequence[str]  # nodes that take part
