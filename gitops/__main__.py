"""`python -m gitops` is the `gitops` command."""

from gitops.cli.main import entry

if __name__ == "__main__":
    entry()
