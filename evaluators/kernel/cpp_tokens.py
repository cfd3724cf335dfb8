"""C++ text as tokens: comments and strings apart, continued lines joined, every token with its line."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Token:
    """One token. ``kind``: name, number, text (string or character), mark, or directive (a whole line after ``#``)."""

    kind: str
    text: str
    line: int


class BadText(Exception):
    """The text cannot be taken apart; the message says why."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


_MARKS: tuple[str, ...] = (
    "...",
    "<<=",
    ">>=",
    "->*",
    "::",
    "->",
    "++",
    "--",
    "<<",
    ">>",
    "<=",
    ">=",
    "==",
    "!=",
    "&&",
    "||",
    "##",
)
_MARKS += ("+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", ".*")
_NAME = re.compile(r"[A-Za-z_$]\w*", re.ASCII)
_NUMBER = re.compile(r"\.?\d(?:[eEpP][+-]|'\w|[\w.])*", re.ASCII)
_RAW = re.compile(r'(?:u8|u|U|L)?R"([^ ()\\\t\v\f\n]{0,16})\(')
_TEXT = re.compile(r"(?:u8|u|U|L)?\"")
_DIGRAPHS = ("%:", "<:", "<%")


def tokens(source: str) -> list[Token]:
    """Take a file apart.

    Raises:
        BadText: an unfinished comment or text, a character that no C++ file needs, or another spelling of a mark that
            would hide what stands there (digraphs, universal character names).
    """
    return _Reader(source).run()


class _Reader:
    def __init__(self, source: str) -> None:
        self.text = source.replace("\r\n", "\n").replace("\r", "\n")
        self.at, self.line = 0, 1
        self.out: list[Token] = []

    def run(self) -> list[Token]:
        text, size = self.text, len(self.text)
        fresh = True  # nothing but blanks on this line so far
        while self.at < size:
            char = text[self.at]
            if char == "\n":
                self.line += 1
                self.at += 1
                fresh = True
            elif self._splice() or char in " \t\v\f":
                self.at += 1 if char in " \t\v\f" else 0
            elif text.startswith("//", self.at):
                self._line_comment()
            elif text.startswith("/*", self.at):
                self._block_comment()
            elif char == "#" and fresh:
                self._directive()
            else:
                self._token(char)
                fresh = False
        return self.out

    def _splice(self) -> bool:
        found = re.compile(r"\\[ \t]*\n").match(self.text, self.at)
        if found is None:
            return False
        self.at = found.end()
        self.line += 1
        return True

    def _line_comment(self) -> None:
        while self.at < len(self.text) and self.text[self.at] != "\n":
            if not self._splice():
                self.at += 1

    def _block_comment(self) -> None:
        end = self.text.find("*/", self.at + 2)
        if end < 0:
            raise BadText("a comment is not closed", self.line)
        self.line += self.text.count("\n", self.at, end)
        self.at = end + 2

    def _directive(self) -> None:
        start, line = self.at + 1, self.line
        parts: list[str] = []
        self.at = start
        while self.at < len(self.text) and self.text[self.at] != "\n":
            if self._splice():
                parts.append(" ")
            elif self.text.startswith("/*", self.at):
                self._block_comment()
                parts.append(" ")
            elif self.text.startswith("//", self.at):
                self._line_comment()
            else:
                parts.append(self.text[self.at])
                self.at += 1
        self.out.append(Token("directive", "".join(parts).strip(), line))

    def _token(self, char: str) -> None:
        text = self.text
        raw = _RAW.match(text, self.at)
        if raw is not None:
            end = text.find(f'){raw[1]}"', raw.end())
            if end < 0:
                raise BadText("a raw string is not closed", self.line)
            self._push("text", end + len(raw[1]) + 2)
            return
        if char in "\"'" or _TEXT.match(text, self.at):
            self._quoted(text.index('"', self.at) if char not in "\"'" else self.at)
            return
        for pattern, kind in ((_NAME, "name"), (_NUMBER, "number")):
            found = pattern.match(text, self.at)
            if found is not None:
                self._push(kind, found.end())
                if self.at < len(text) and self._splice():
                    raise BadText("a line is continued inside a word", self.line)
                return
        if any(text.startswith(mark, self.at) for mark in _DIGRAPHS):
            raise BadText("digraphs are not allowed: write #, [ and { as they are", self.line)
        if char == "\\" or not (" " <= char <= "~") or char in "@`":
            raise BadText(f"the character {char!r} is not allowed outside comments and texts", self.line)
        mark = next((m for m in _MARKS if text.startswith(m, self.at)), char)
        self._push("mark", self.at + len(mark))

    def _quoted(self, start: int) -> None:
        quote, at = self.text[start], start + 1
        while at < len(self.text) and self.text[at] != quote:
            if self.text[at] == "\n":
                raise BadText("a text is not closed", self.line)
            at += 2 if self.text[at] == "\\" else 1
        if at >= len(self.text):
            raise BadText("a text is not closed", self.line)
        self._push("text", at + 1)

    def _push(self, kind: str, end: int) -> None:
        piece = self.text[self.at : end]
        self.out.append(Token(kind, piece, self.line))
        self.line += piece.count("\n")
        self.at = end
