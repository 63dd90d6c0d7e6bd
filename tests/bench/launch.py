"""`python -I -S launch.py PROGRAM ARGUMENT...`: run a program and say what it took, in one line.

A process of its own, and a small one: Linux counts in the peak of a new program the size of the process that started it.
The line: exit code, wall time in ns, CPU time in us, peak resident memory in KiB.
"""

import os
import sys
import time


def main() -> None:
    """Start, wait, tell."""
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    start = time.perf_counter_ns()
    child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
    _, status, used = os.wait4(child, 0)
    wall = time.perf_counter_ns() - start
    cpu = round((used.ru_utime + used.ru_stime) * 1e6)
    print(os.waitstatus_to_exitcode(status), wall, cpu, used.ru_maxrss)


if __name__ == "__main__":
    main()
