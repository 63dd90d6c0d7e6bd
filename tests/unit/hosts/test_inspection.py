"""Which answers of a host keep it from being managed."""

from dataclasses import replace

import pytest

from gitops.core.diagnostics import Diagnostics
from gitops.hosts.facts import HostFacts
from gitops.hosts.inspection import check_host

GOOD = HostFacts(
    system={"ID": "ubuntu", "ID_LIKE": "debian", "PRETTY_NAME": "Ubuntu"},
    kernel="Linux 6.1",
    architecture="amd64",
    machine="m",
    boot="b",
    clock=1_000_000,
    free_kib=1 << 20,
    systemd=True,
)
CASES = [
    ({}, []),
    ({"clock": 1_000_299}, []),
    ({"clock": 1_000_300}, ["host_clock_skew"]),
    ({"clock": 999_700}, ["host_clock_skew"]),
    ({"free_kib": 65_535}, ["host_disk_full"]),
    ({"broken": ("nginx",)}, ["host_packages_broken"]),
    ({"missing_tools": ("useradd", "mv")}, ["host_tool_missing", "host_tool_missing"]),
    ({"systemd": False}, ["host_unsupported"]),
    ({"system": {"ID": "alpine"}}, ["host_unsupported"]),
]


@pytest.mark.parametrize(("changes", "codes"), CASES)
def test_what_keeps_a_host_from_being_managed(changes, codes):
    problems = Diagnostics()
    check_host(replace(GOOD, **changes), "web1", 1_000_000, problems)
    assert list(problems.codes()) == codes
