import ipaddress

import pytest

from crawler.rules import addresses

PUBLIC = [
    "1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.255.255", "172.32.0.0", "100.63.255.255", "100.128.0.0",
    "198.17.255.255", "198.20.0.0", "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8", "2002:808:808::1", "9.255.255.255", "11.0.0.0",
]  # fmt: skip
REFUSED = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.2.5", "192.88.99.1", "192.168.1.1",
    "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1",
    "64:ff9b::10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1",
    "2002:c0a8:101::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:db8::1", "2001:2::1", "2001:10::1", "3fff::1", "fc00::1",
    "fd12:3456::1", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "100::1", "5f00::1", "4000::1",
    "2606:4700::1111%eth0", "", "localhost", "127.1", "2130706433", "0x7f.0.0.1", "1.2.3.4.5", "[::1]",
]  # fmt: skip


# Where clouds serve what only their machines may read: metadata, credentials, agents, name servers.
PLATFORMS = {
    "AWS": ("169.254.169.254", "169.254.169.253", "169.254.170.2", "169.254.170.23", "fd00:ec2::254", "fd00:ec2::23"),
    "Azure": ("169.254.169.254", "168.63.129.16"),
    "GCP": ("169.254.169.254", "fd20:ce::254"),
    "Alibaba": ("100.100.100.200", "100.100.2.136", "100.100.2.138"),
    "Oracle": ("169.254.169.254", "192.0.0.192", "fd00:c1::a9fe:a9fe"),
    "DigitalOcean, Hetzner, IBM, Huawei, Vultr": ("169.254.169.254",),
    "OpenStack": ("169.254.169.254", "fe80::a9fe:a9fe"),
    "Tencent": ("169.254.0.23", "100.88.222.5"),
    "Scaleway": ("169.254.42.42", "fd00:42::42"),
    "Linode": ("169.254.169.254", "fd00:a9fe:a9fe::1"),
    "Equinix Metal": ("192.80.8.124",),
}


@pytest.mark.parametrize("cloud", PLATFORMS)
def test_the_platform_of_a_cloud_is_refused_in_every_form(cloud: str) -> None:
    for address in PLATFORMS[cloud]:
        assert not addresses.is_public(address)
        if "." in address:
            number = int(ipaddress.IPv4Address(address))
            for form in (0xFFFF << 32 | number, (0x64_FF9B << 96) | number, 0x2002 << 112 | number << 80 | 1):
                assert not addresses.is_public(str(ipaddress.IPv6Address(form))), ipaddress.IPv6Address(form)


def test_the_addresses_next_to_a_platform_are_public() -> None:
    for address in ("168.63.129.15", "168.63.129.17", "192.80.8.123", "192.80.8.125", "::ffff:168.63.129.17"):
        assert addresses.is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_public(address: str) -> None:
    assert addresses.is_public(address)


@pytest.mark.parametrize("address", REFUSED)
def test_an_address_that_is_not_of_the_public_internet_is_refused(address: str) -> None:
    assert not addresses.is_public(address)
    with pytest.raises(addresses.AddressRefusedError):
        addresses.check_address(address, allow_private=False)


def test_private_addresses_pass_when_they_are_allowed() -> None:
    addresses.check_address("127.0.0.1", allow_private=True)
    addresses.check_address("1.1.1.1", allow_private=False)


def test_a_refused_address_is_not_an_os_error() -> None:
    assert not issubclass(addresses.AddressRefusedError, OSError | RuntimeError)


def test_ports_of_other_protocols_are_denied_and_those_of_the_web_are_not() -> None:
    assert all(addresses.is_port_denied(port) for port in (0, 22, 25, 110, 6000, 6667, 10080))
    assert not any(addresses.is_port_denied(port) for port in (80, 443, 8000, 8080, 8443, 3000, 49152))


@pytest.mark.parametrize(
    ("host", "is_literal"),
    [
        ("127.0.0.1", True),
        ("[::1]", True),
        ("::1", True),
        ("example.com", False),
        ("a.b.1", False),
        ("1e3.de", False),
    ],
)
def test_ip_literals_are_told_from_names(host: str, *, is_literal: bool) -> None:
    assert addresses.is_address(host) is is_literal
