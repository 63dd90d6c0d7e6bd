"""What makes a real GitHub harder to work with than its description. All of it is on; a test that needs a kinder one says so.

    hub.world.habits.busy_every = 0

Nothing of this breaks GitHub's description: answers are late, refused for a while, or told twice.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Habits"]


@dataclass
class Habits:
    """The habits of one service.

    `late_index`: how many times the index of requests by commit is empty for a new merge. `late_commits`: how many statuses of
    a new commit are refused because the service does not find it. `creates_labels`: whether a label that the repository does not
    have may be created, whatever the token may do. `shows_rules`: whether rulesets can be read, which not every plan of GitHub
    includes. `busy_every`: each so-many-th write is refused by the secondary rate limit, 0 for none. `longest_page`: how many
    entries a page has at most; a list with the newest first grows while it is read, so that a page begins with the last entry of
    the one before.
    `deliveries`: how often each webhook is sent.
    """

    late_index: int = 2
    late_commits: int = 1
    creates_labels: bool = False
    shows_rules: bool = False
    busy_every: int = 5
    longest_page: int = 3
    deliveries: int = 2

    def be_prompt(self) -> None:
        """Answer at once, for tests that count requests, or whose programs would really wait."""
        self.late_commits, self.busy_every, self.longest_page = 0, 0, 100
