"""A host never gets more sessions at once than its declaration permits."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from gitops.hosts.channel import open_channel
from gitops.hosts.script import Script

pytestmark = pytest.mark.timeout(900)
_SESSIONS = 2
# Each script waits until it has seen a second one, so that the limit is reached as often as there are pairs.
_MEET = """
mkdir -p /run/sessions
touch "/run/sessions/$nonce"
section others
tries=0
while [ "$(ls /run/sessions | wc -l)" -lt 2 ] && [ "$tries" -lt 200 ]; do tries=$((tries + 1)); done
ls /run/sessions | wc -l
rm "/run/sessions/$nonce"
section end
"""


def test_twelve_scripts_share_two_sessions(machine, opening, login):
    channel = opening.enter_context(open_channel(machine.connection(sessions=_SESSIONS), {}, login))
    with ThreadPoolExecutor(12) as pool:
        counts = {int(each["others"]) for each in pool.map(lambda _: channel.run(Script(_MEET)), range(12))}
    assert max(counts) == _SESSIONS
