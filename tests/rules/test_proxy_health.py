"""Whose fault it is when a request through a proxy brings no answer, and who tries a proxy that is down."""

import random

import pytest

from crawler.rules.proxy_health import ALONE_MAX, DOMAINS_MAX, FIRST_MS, MANY_MS, TARGETS_MAX, Fault, ProxyHealth

GIVE_UP_MS = 3_600_000
A, B, C = "https://a.test", "https://b.test", "https://c.test"


class Lab:
    """A proxy, at times that only tests move."""

    def __init__(self) -> None:
        self.health = ProxyHealth(give_up_ms=GIVE_UP_MS)
        self.now_ms = 1_000_000

    def fails(self, target: str, fault: Fault = Fault.EITHER) -> bool:
        """Is it the target's fault?"""
        self.health.begins(target)
        domain = target.rpartition("/")[2]
        return self.health.failed(target, ".".join(domain.split(".")[-2:]), fault, "why", now_ms=self.now_ms)

    def serves(self, target: str) -> None:
        self.health.begins(target)
        self.now_ms += 1
        self.health.served(target, now_ms=self.now_ms)

    def waits_ms(self, target: str) -> int:
        return self.health.wait_ms(target, now_ms=self.now_ms)

    def next_try(self, target: str) -> None:
        """Wait until this target may try."""
        while wait_ms := self.waits_ms(target):
            self.now_ms += wait_ms


@pytest.mark.parametrize("fault", [Fault.EITHER, Fault.REFUSED, Fault.LIKELY])
def test_a_target_is_at_fault_once_another_was_served(fault: Fault) -> None:
    lab = Lab()
    lab.serves(B)
    assert not lab.fails(A, fault), "what was served before tells nothing of now"
    lab.serves(B)
    assert lab.fails(A, fault)
    assert lab.waits_ms(A) == 0, "the rules for hosts say when"
    lab.serves(A)
    assert not lab.fails(A, fault), "it has answered since: all begins again"


def test_a_request_that_began_before_the_witness_tells_nothing() -> None:
    """A request that hangs ends after the proxy has come back, and served others."""
    lab = Lab()
    lab.fails(A)
    lab.health.begins(A)
    lab.serves(B)
    assert not lab.health.failed(A, "a.test", Fault.EITHER, "", now_ms=lab.now_ms)
    assert lab.fails(A)


@pytest.mark.parametrize("dead_of_ten", [3, 5, 8])
def test_dead_sites_end_however_many_there_are(dead_of_ten: int) -> None:
    """Each is found at fault after a few attempts, and the proxy is not taken for broken for long."""
    lab, chance = Lab(), random.Random(1)
    sites = [(f"https://d{n}.test", n % 10 < dead_of_ten) for n in range(500)]
    left, began_ms, attempts = sum(is_dead for _, is_dead in sites), lab.now_ms, 0
    while left:
        lab.now_ms += 20
        place = chance.randrange(len(sites))
        target, is_dead = sites[place]
        if lab.waits_ms(target):
            continue
        attempts += 1
        if not is_dead:
            lab.serves(target)
        elif lab.fails(target):
            sites[place], left = sites[-1], left - 1
            sites.pop()
        assert lab.now_ms - began_ms < 3_600_000, left
    assert attempts < 20 * 500


def test_what_shows_by_itself_needs_no_witness() -> None:
    lab = Lab()
    assert lab.fails(A, Fault.TARGET)
    for _ in range(5 * ALONE_MAX):
        lab.serves(B)
        assert not lab.fails(A, Fault.PROXY)
        lab.now_ms += GIVE_UP_MS


@pytest.mark.parametrize(
    ("fault", "is_bounded"),
    [(Fault.EITHER, True), (Fault.REFUSED, False), (Fault.BUSY, False), (Fault.LIKELY, False), (Fault.PROXY, False)],
)
def test_a_target_that_is_alone_is_at_fault_after_some_attempts(fault: Fault, is_bounded: bool) -> None:
    lab, began_ms = Lab(), 1_000_000
    found = []
    for _ in range(2 * ALONE_MAX):
        lab.next_try(A)
        found.append(lab.fails(A, fault))
    assert found.index(True) + 1 == ALONE_MAX if is_bounded else not any(found)
    assert lab.now_ms - began_ms > 30_000


ALL = (Fault.EITHER, Fault.REFUSED, Fault.BUSY, Fault.LIKELY)


@pytest.mark.parametrize("fault", ALL)
def test_few_that_never_answered_are_at_fault_after_some_attempts_where_others_did(fault: Fault) -> None:
    """The last URLs of a crawl may be such: there is no other to be a witness any more."""
    lab, began_ms, targets = Lab(), 1_000_000, {f"https://t{n}.test": 0 for n in range(4)}
    lab.serves(A)
    while targets:
        for target in [*targets]:
            lab.next_try(target)
            targets[target] += 1
            if lab.fails(target, fault):
                assert targets.pop(target) == ALONE_MAX
    assert 30_000 < lab.now_ms - began_ms < 120_000


@pytest.mark.parametrize("fault", ALL)
def test_while_something_that_answered_before_fails_no_target_is_at_fault(fault: Fault) -> None:
    lab = Lab()
    lab.serves(A)
    for _ in range(3 * ALONE_MAX):
        for target in (A, B, C):
            lab.next_try(target)
            assert not lab.fails(target, fault)


@pytest.mark.parametrize("fault", ALL)
def test_many_that_never_answered_wait_for_a_witness(fault: Fault) -> None:
    lab, targets = Lab(), [f"https://t{n}.test" for n in range(DOMAINS_MAX)]
    lab.serves(A)
    while lab.now_ms < 1_000_000 + MANY_MS - 60_000:
        for target in targets:
            assert lab.waits_ms(target) or not lab.fails(target, fault)
        lab.now_ms += 100
    for _ in range(ALONE_MAX):
        lab.serves(A)
        is_own = lab.fails(targets[0], fault)
    assert is_own


@pytest.mark.slow(ci=True)
@pytest.mark.parametrize("fault", ALL)
def test_many_that_never_answered_end_though_no_witness_is_left(fault: Fault) -> None:
    """The last links of a crawl, after all pages of the sites that answer."""
    lab, began_ms, left = Lab(), 1_000_000, {f"https://t{n}.test": 3 for n in range(200)}
    lab.serves(A)
    while left:
        for target in [*left]:
            if not lab.waits_ms(target) and lab.fails(target, fault):
                left[target] -= 1  # attempts
                if not left[target]:
                    del left[target]
        lab.now_ms += 100
        assert lab.now_ms - began_ms < 3 * MANY_MS, len(left)


def test_being_asked_too_much_counts_only_after_some_attempts() -> None:
    """429: by chance some are served and others not."""
    lab, found = Lab(), []
    for _ in range(ALONE_MAX):
        found.append(lab.fails(A, Fault.BUSY))
        lab.serves(B)
    assert found == [False] * (ALONE_MAX - 1) + [True]


def test_a_target_that_answered_before_is_not_at_fault_for_being_alone() -> None:
    """In a crawl of one site, its proxy may be down for longer than a misspelt name is tried."""
    lab = Lab()
    lab.serves(A)
    for _ in range(3 * ALONE_MAX):
        lab.next_try(A)
        assert not lab.fails(A)


@pytest.mark.parametrize(
    ("fault", "is_bounded"),
    [(Fault.EITHER, True), (Fault.REFUSED, True), (Fault.BUSY, True), (Fault.LIKELY, False), (Fault.PROXY, False)],
)
def test_without_a_witness_several_targets_wait_as_long_as_hosts_may_be_silent(fault: Fault, is_bounded: bool) -> None:
    lab, began_ms = Lab(), 1_000_000
    while lab.now_ms - began_ms < GIVE_UP_MS - 120_000:
        for target in (A, B, C):
            lab.next_try(target)
            assert not lab.fails(target, fault)
    lab.now_ms += 120_000
    assert lab.fails(A, fault) == is_bounded


def fail_many(lab: Lab) -> None:
    for number in range(DOMAINS_MAX):
        assert lab.waits_ms(A) == 0
        assert not lab.fails(f"https://e{number}.test")


def test_several_domains_that_fail_in_a_row_are_the_proxy_and_one_tries_it() -> None:
    lab = Lab()
    others = [f"https://d{n}.test" for n in range(20)]
    fail_many(lab)
    for other in others:  # each may try once
        lab.next_try(other)
        assert not lab.fails(other)
    lab.now_ms += 60_000
    pauses = []
    for _ in range(8):
        began_ms = lab.now_ms
        lab.next_try(others[0])
        assert lab.waits_ms(others[0]) == 0, "it may take several turns"
        assert all(lab.waits_ms(one) > 0 for one in others[1:])
        pauses.append(lab.now_ms - began_ms)
        assert not lab.fails(others[0])
    assert pauses == sorted(pauses)
    assert pauses[-1] <= 30_000
    lab.next_try(others[0])
    lab.serves(others[0])
    assert not any(map(lab.waits_ms, ("https://e0.test", *others)))
    assert not lab.fails("https://e0.test"), "it failed because of the proxy"
    lab.serves(B)
    assert lab.fails("https://e0.test")


def test_however_many_links_fail_targets_that_answered_go_on() -> None:
    """A filter refuses what a page links to: that is no reason to stop the others."""
    lab = Lab()
    lab.serves(A)
    fail_many(lab)
    assert lab.waits_ms(A) == 0
    for _ in range(3):
        lab.next_try("https://e0.test")
        assert not lab.fails("https://e0.test")
        assert lab.waits_ms(A) == 0
    assert not lab.fails(A)
    assert 0 < lab.waits_ms(A) <= 2_000, "it waits for its own pause"


def test_new_targets_try_once_one_after_the_other_while_many_fail() -> None:
    lab, new = Lab(), [f"https://n{n}.test" for n in range(40)]
    fail_many(lab)
    began_ms = lab.now_ms
    waits = [lab.waits_ms(target) for target in new]
    assert waits == [FIRST_MS * (n + 1) for n in range(len(new))]
    assert [lab.waits_ms(target) for target in new] == waits, "each has its place"
    for target in new:
        lab.next_try(target)
        assert lab.now_ms - began_ms <= FIRST_MS * len(new)
        lab.fails(target)
    assert sum(not lab.waits_ms(target) for target in new) == 1, "one at a time tries it again"
    lab.now_ms += 60_000
    assert lab.waits_ms("https://late.test") == FIRST_MS


def test_a_proxy_that_takes_no_connections_is_closed_to_those_that_answered_too() -> None:
    lab = Lab()
    lab.serves(A)
    for target in (A, B, C):
        lab.fails(target, Fault.PROXY)
    assert lab.waits_ms("https://new.test") > FIRST_MS
    lab.next_try(B)
    assert lab.waits_ms(A) > 0
    lab.serves(B)
    assert lab.waits_ms(A) == 0


def test_the_hosts_of_one_domain_never_stop_a_proxy() -> None:
    """A site can have any number of them, and make each one fail."""
    lab = Lab()
    for number in range(100):
        lab.fails(f"https://h{number}.evil.test")
    assert lab.waits_ms(A) == 0


def test_one_that_does_not_come_back_from_its_try_holds_up_nobody() -> None:
    lab = Lab()
    for target in (A, B, C):
        lab.fails(target, Fault.PROXY)
    lab.next_try("https://lost.test")
    began_ms = lab.now_ms
    lab.next_try("https://next.test")
    assert lab.now_ms - began_ms <= 30_000


def test_what_failed_before_the_pause_began_does_not_lengthen_it() -> None:
    lab = Lab()
    for target in (A, B, C):
        lab.fails(target, Fault.PROXY)
    wait_ms = lab.waits_ms("https://other.test")
    for number in range(50):
        lab.fails(f"https://open{number}.test", Fault.PROXY)
    assert lab.waits_ms("https://other.test") == wait_ms


def test_doubt_is_told_when_it_lasts() -> None:
    lab = Lab()
    assert not lab.health.is_in_doubt(now_ms=lab.now_ms)
    lab.fails(A)
    assert not lab.health.is_in_doubt(now_ms=lab.now_ms)
    assert lab.health.is_in_doubt(now_ms=lab.now_ms + 5_000)
    lab.serves(B)
    assert not lab.health.is_in_doubt(now_ms=lab.now_ms + 5_000)


def test_memory_is_bounded() -> None:
    lab = Lab()
    for number in range(TARGETS_MAX + 100):
        lab.fails(f"https://h{number}.d{number}.test")
    assert len(lab.health._troubled) == TARGETS_MAX
    assert len(lab.health._streak) <= TARGETS_MAX
    for number in range(TARGETS_MAX + 100):
        lab.waits_ms(f"https://new{number}.test")
    assert len(lab.health._first) == TARGETS_MAX
