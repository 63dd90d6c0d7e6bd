"""The solver cvc5 as a program that reads SMT-LIB from its standard input, made of its Python package.

The package has no program, and the symbolic compiler starts one. It answers each command as soon as that is complete.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TextIO


def commands(source: TextIO) -> Iterator[str]:
    """The commands, each from its first bracket to its last. Brackets in strings, quoted symbols and comments don't count."""
    text, depth, quote = "", 0, ""
    for line in source:
        for character in line:
            if character == ";" and not quote:
                break
            text += character
            if quote:
                quote = "" if character == quote else quote
            elif character in '"|':
                quote = character
            elif character in "()":
                depth += 1 if character == "(" else -1
                if depth == 0:
                    yield text
                    text = ""


def main() -> None:
    """Answer until the input ends."""
    import cvc5  # type: ignore[import-not-found]

    manager = cvc5.TermManager()
    solver, symbols = cvc5.Solver(manager), cvc5.SymbolManager(manager)
    for text in commands(sys.stdin):
        if text.strip() == "(reset)":
            # A symbol manager forgets neither its symbols nor its logic.
            solver, symbols = cvc5.Solver(manager), cvc5.SymbolManager(manager)
            continue
        parser = cvc5.InputParser(solver, symbols)
        parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "input")
        while not (command := parser.nextCommand()).isNull():
            sys.stdout.write(command.invoke(solver, symbols))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
