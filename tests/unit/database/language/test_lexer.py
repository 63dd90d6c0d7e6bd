"""Tokens of both languages: kinds, byte spans, boundaries."""

from __future__ import annotations

import pytest

from gitops.database.language.lexer import MAX_SOURCE_BYTES, Lexer, TokenKind
from gitops.database.language.text import LanguageError, Span


def tokens(text):
    lexer = Lexer(text if isinstance(text, bytes) else text.encode())
    found = []
    while not lexer.at(TokenKind.EOF):
        found.append(lexer.advance())
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1..5", ["INT 1", "DOTDOT ..", "INT 5"]),
        ("1.5..2.25", ["FLOAT 1.5", "DOTDOT ..", "FLOAT 2.25"]),
        ("..5", ["DOTDOT ..", "INT 5"]),
        ("1...5", ["INT 1", "DOTDOT ..", "DOT .", "INT 5"]),
        ("1.x", ["INT 1", "DOT .", "NAME x"]),
        ("007", ["INT 007"]),
        ("2nd 1e5 1.5x", ["WORD 2nd", "WORD 1e5", "INT 1", "DOT .", "WORD 5x"]),
        ("nodePerson trueish Stringb", ["NAME nodePerson", "NAME trueish", "TYPE_NAME Stringb"]),
        ("_a A_b9", ["NAME _a", "TYPE_NAME A_b9"]),
        ("$x.name $_", ["VAR $x", "DOT .", "NAME name", "VAR $_"]),
        ("$a <knows> $b", ["VAR $a", "LT <", "NAME knows", "GT >", "VAR $b"]),
        (
            "< <= > >= = != -> - @ ?",
            ["LT <", "LE <=", "GT >", "GE >=", "EQ =", "NE !=", "ARROW ->", "MINUS -", "AT @", "QUESTION ?"],
        ),
        (
            "{ } ( ) [ ] : ,",
            ["LBRACE {", "RBRACE }", "LPAREN (", "RPAREN )", "LBRACKET [", "RBRACKET ]", "COLON :", "COMMA ,"],
        ),
        ("a/**/b // c\r\nd /* // */ e", ["NAME a", "NAME b", "NAME d", "NAME e"]),
        ('"// no" "/* no */"', ['STRING "// no"', 'STRING "/* no */"']),
        ("", []),
    ],
)
def test_kinds(text, expected):
    assert [f"{token.kind.name} {token.text}" for token in tokens(text)] == expected


def test_spans_are_bytes():
    found = tokens('/* ä */ name "äö" Z')
    assert [token.span for token in found] == [Span(9, 13), Span(14, 20), Span(21, 22)]


def test_string_value_is_decoded_and_text_is_not():
    (token,) = tokens(r'"a\"b\\n\n\r\t' + "\n" + 'é"')
    assert token.value == 'a"b\\n\n\r\t\né'
    assert token.text.startswith(r'"a\"b')


@pytest.mark.parametrize(
    ("text", "fragment", "span"),
    [
        ('"abc', "unterminated string", (0, 1)),
        ('"abc\\"', "unterminated string", (0, 1)),
        ('"abc\\', "unterminated escape sequence", (4, 5)),
        ('"é\\q"', "unsupported escape sequence", (3, 5)),
        ('"\\é"', "unsupported escape sequence", (1, 4)),
        ('"\\\\\\x"', "unsupported escape sequence", (3, 5)),
        ("a /* b", "unterminated block comment", (2, 4)),
        ("é", "unexpected character", (0, 2)),
        ("$X", "unexpected character", (0, 1)),
        ("!", "unexpected character", (0, 1)),
        ("a\u00a0b", "unexpected character", (1, 3)),
        ("\ufeffa", "unexpected character", (0, 3)),
        (b"a \xff", "not valid UTF-8", (2, 3)),
        ("1" * 65, "longer than 64", (0, 65)),
        (b" " * (MAX_SOURCE_BYTES + 1), "over the limit", (0, 1)),
    ],
)
def test_refused(text, fragment, span):
    with pytest.raises(LanguageError, match=fragment) as caught:
        tokens(text)
    assert caught.value.problems[0].span == Span(*span)


@pytest.mark.parametrize("member", ["1", "2nd", "in-progress", "A_b", "-", "a--b", "9-9", "x-1.5"])
def test_enum_member_has_its_own_alphabet(member):
    lexer = Lexer(f"( {member} , b )".encode())
    lexer.expect(TokenKind.LPAREN)
    lexer.peek(2)
    token = lexer.enum_member()
    assert token.text == member.partition(".")[0]
    assert (token.start, token.end) == (2, 2 + len(token.text))
    assert lexer.at(TokenKind.DOT) or lexer.at(TokenKind.COMMA)


def test_enum_member_refuses_what_is_none():
    with pytest.raises(LanguageError, match="expected an enum member, found `,`"):
        Lexer(b",").enum_member()


def test_the_cursor_stays_at_the_end():
    lexer = Lexer(b"a")
    assert lexer.advance().text == "a"
    assert lexer.advance().kind is lexer.advance().kind is TokenKind.EOF
    assert lexer.current.span == Span(1, 2)


def test_peeking_does_not_move():
    lexer = Lexer(b"a b c")
    assert (lexer.peek(2).text, lexer.peek().text, lexer.advance().text, lexer.advance().text) == ("c", "b", "a", "b")


def test_rule_labels_are_the_callers():
    with pytest.raises(LanguageError) as caught:
        Lexer(b'"\\q"', grammar_rule="G", escape_rule="E")
    assert caught.value.problems[0].rule == "E"
    with pytest.raises(LanguageError) as caught:
        Lexer(b"!", grammar_rule="G", escape_rule="E")
    assert caught.value.problems[0].rule == "G"


def test_long_tokens_are_shortened_in_messages():
    with pytest.raises(LanguageError) as caught:
        Lexer(b"a" * 1000).expect(TokenKind.LBRACE)
    assert len(str(caught.value)) < 120
