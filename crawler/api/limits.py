"""Bounds on what clients may cost. Tests make them smaller."""

import msgspec

KIB, MIB, GIB = 2**10, 2**20, 2**30


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Times in s, sizes in bytes."""

    body_bytes: int = MIB
    seed_list_bytes: int = 16 * MIB  # of seeds in one JSON document, which is read as a whole
    seed_stream_bytes: int = GIB  # of seeds in NDJSON, which are added as they come
    seed_streams: int = 4  # at the same time
    header_s: float = 20.0  # from the connection, or the last answer, until a request's headers are there
    body_s: float = 30.0  # for a whole body; for each piece of a stream
    linger_s: float = 2.0  # for the rest of a body that is not wanted, so that its sender reads the answer
    write_s: float = 15.0  # for a whole answer; for each piece of a stream
    requests_per_s: float = 100.0  # of one token, or of one address without a token
    requests_burst: int = 300
    connections: int = 4_000
    event_clients: int = 2_000
    event_buffer_bytes: int = 64 * KIB  # of the kernel, for a client that reads slowly
    events_every_s: float = 1.0
    heartbeat_s: float = 15.0
    at_once: int = 16  # requests that ask the engine; others wait
    ready_s: float = 1.0  # for the engine to answer /readyz
    shutdown_s: float = 5.0  # for open requests at the end
