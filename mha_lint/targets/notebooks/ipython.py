"""Put out of a text what only IPython understands, so that Python reads the rest; every line stays.

Magics, shell lines and help requests are told by where they stand: at the start of a statement no
Python begins with ``%``, ``!`` or ``?``. Text that is Python already is returned as it is.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass

from mha_lint.model.dotted import is_deep
from mha_lint.targets.words import words

OTHER_LANGUAGES = words(
    """bash sh script html HTML javascript js latex markdown svg writefile file cython perl ruby pypy
    python2 sql R julia cmd system sx ! bigquery ai mermaid sparksql scala csharp fsharp kql"""
)
"""Cell magics whose cell holds no code of the notebook."""

_TIMED = r"(?:time|timeit|prun|memit)"
_OPTIONS = r"(?:(?:-[nrpl][ \t]*\d+|-[A-Za-z]+)[ \t]+)*"
_CELL_MAGIC = re.compile(r"%%\s*(?P<name>[\w!]+)")
_LINE = re.compile(r"(?P<indent>[ \t]*)(?:[%!?]|[,;/](?=\w)).*")
_TIMED_LINE = re.compile(rf"(?P<indent>[ \t]*)%{_TIMED}\b[ \t]*+{_OPTIONS}(?P<body>\S.*+)")
_HELP = re.compile(r"(?P<indent>[ \t]*)%{0,2}[A-Za-z_][\w.*\[\]'\"]*\?{1,2}[ \t]*(#.*)?")
_TARGET = r"(?P<target>[ \t]*[A-Za-z_][\w.,\[\]'\" \t*()]*?=)"
_SHELL_VALUE = re.compile(rf"{_TARGET}[ \t]*!.*")
_MAGIC_VALUE = re.compile(
    rf"{_TARGET}(?P<space>[ \t]*)(?P<magic>%(?P<name>\w+)[ \t]*{_OPTIONS})(?P<body>.*)"
)
_QUOTES = re.compile(r"'''|\"\"\"|'|\"")
_EXPORTED = re.compile(r"\n[ \t]*(?:[%!]+[ \t]*\w|#[ \t]*(?:%%|\+|-|In\s?\[))")


def plain_python(text: str) -> str:
    """Return `text` with magics, shell lines and help requests put out, and as many lines."""
    state = _State()
    out: list[str] = []
    blanking = False
    for line in text.split("\n"):
        if blanking:  # a command goes on behind a backslash
            out.append("")
            blanking = line.endswith("\\")
            continue
        new = _replaced(line) if state.at_start else None
        if new is None:
            state.read(line)
            out.append(line)
        else:
            state.read(new)
            out.append(new)
            blanking = line.endswith("\\")
    return "\n".join(out)


def plain_cell(text: str) -> str | None:
    """Return a cell's text as Python, None if a cell magic says that it is something else."""
    if parses(text):
        return text
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if not line.strip() or line.lstrip().startswith("#"):
            continue  # a form's title may stand above the magic
        magic = _CELL_MAGIC.match(line)
        if magic is None:
            break
        if magic["name"] in OTHER_LANGUAGES:
            return None
        lines[index] = ""
    return plain_python("\n".join(lines))


def plain_script(text: str) -> str:
    """Return the text of a ``.py`` file that was exported from a notebook as Python.

    Anything else, and what parses, is returned as it is.
    """
    if parses(text) or not may_be_exported(text):
        return text
    return plain_python(text.replace("\r\n", "\n"))


def may_be_exported(text: str) -> bool:
    """Tell whether `text` may come from a notebook: it has magics, or a mark of an exporter."""
    if "get_ipython(" in text or "jupytext" in text:
        return True
    return _EXPORTED.search("\n" + text) is not None


def parses(text: str) -> bool:
    """Tell whether `text` is Python."""
    return syntax_error(text) is None


def syntax_error(text: str) -> tuple[int, str] | None:
    """Return line and message of the first syntax error of `text`, or None."""
    if is_deep(text):
        return 1, "too many nested names"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes are the user's, and harmless
            ast.parse(text)
    except SyntaxError as error:
        return error.lineno or 1, error.msg
    except (ValueError, RecursionError, MemoryError) as error:
        return 1, str(error) or type(error).__name__
    return None


def _replaced(line: str) -> str | None:
    """Return what stands for `line`, which begins a statement; None if it is left as it is."""
    timed = _TIMED_LINE.fullmatch(line)
    if timed is not None and parses(timed["body"]):
        return f"{timed['indent']}{timed['body']}"
    found = _LINE.fullmatch(line) or _HELP.fullmatch(line)
    if found is not None:
        return f"{found['indent']}pass" if found["indent"] else ""
    if (value := _SHELL_VALUE.fullmatch(line)) is not None:
        return f"{value['target']} []"
    if (value := _MAGIC_VALUE.fullmatch(line)) is not None:
        body = value["body"]
        if re.fullmatch(_TIMED, value["name"]) and parses(body) and body:
            return value["target"] + value["space"] + " " * len(value["magic"]) + body
        return f"{value['target']} None"
    return None


@dataclass(slots=True)
class _State:
    """Where a reader of lines stands: in brackets, in a long string, behind a backslash."""

    depth: int = 0
    quote: str = ""
    continued: bool = False

    @property
    def at_start(self) -> bool:
        """Tell whether the next line begins a statement."""
        return not self.depth and not self.quote and not self.continued

    def read(self, line: str) -> None:
        """Go over one line."""
        self.continued = False
        index = 0
        while index < len(line):
            character = line[index]
            if character == "\\":
                self.continued = index == len(line) - 1
                index += 2
            elif self.quote:
                if line.startswith(self.quote, index):
                    index += len(self.quote)
                    self.quote = ""
                else:
                    index += 1
            elif (quotes := _QUOTES.match(line, index)) is not None:
                self.quote = quotes[0]
                index = quotes.end()
            elif character == "#":
                break
            else:
                self.depth += (character in "([{") - (character in ")]}")
                self.depth = max(self.depth, 0)
                index += 1
        if len(self.quote) == 1 and not self.continued:
            self.quote = ""  # it was never closed: a syntax error of the user, on this line alone
