"""Loading a folder of rule files, and what its errors name."""

from __future__ import annotations

from pathlib import Path

import pytest

from mha_lint.rulebook.pack import PackError, load_pack

RULE = '''\
"""Something is wrong.

What: one line
goes on.

Why: because.

Bad:

```python
# build: A()
class A: ...
```

Good:

```python
What: not a heading, it stands in a fence
```

```python
class C: ...
```

References:
- One, which
  goes on.
- Two.
"""

from mha_lint.rule_api import Severity, site_rule


@site_rule("{code}", severity=Severity.ERROR, since="0.1")
def check(facts):
    yield from ()
'''


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_an_empty_pack_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PackError, match="no rule files"):
        load_pack(tmp_path)


def test_a_broken_rule_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, "oops.py", "1 / 0")
    with pytest.raises(PackError, match=r"oops\.py: ZeroDivisionError"):
        load_pack(tmp_path)


def test_a_file_without_a_rule_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "none.py", "x = 1")
    with pytest.raises(PackError, match="holds 0 rules"):
        load_pack(tmp_path)


def test_a_rule_without_documentation_is_refused(tmp_path: Path) -> None:
    code = RULE.replace("{code}", "X001").rpartition('"""')[2]
    write(tmp_path, "bare.py", code)
    with pytest.raises(PackError, match="has no docstring"):
        load_pack(tmp_path)


def test_a_rule_that_checks_nothing_is_refused(tmp_path: Path) -> None:
    head = '"""Doc."""\nfrom mha_lint.rule_api import Rule, Severity\n'
    write(tmp_path, "idle.py", head + 'idle = Rule("X001", Severity.NOTE, "1")\n')
    with pytest.raises(PackError, match="must check either a site or a subject"):
        load_pack(tmp_path)


def test_two_files_with_one_code_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.py", RULE.replace("{code}", "X001"))
    write(tmp_path, "b.py", RULE.replace("{code}", "X001"))
    with pytest.raises(PackError, match=r"b\.py: X001 is taken by .*a\.py"):
        load_pack(tmp_path)


def test_rules_come_sorted_with_their_documentation(tmp_path: Path) -> None:
    write(tmp_path, "late.py", RULE.replace("{code}", "X002"))
    write(tmp_path, "family/some_name.py", RULE.replace("{code}", "X001"))
    write(tmp_path, "_private.py", "1 / 0")
    first, second = load_pack(tmp_path)
    assert (first.code, first.name, second.code) == ("X001", "some-name", "X002")
    doc = first.documentation
    assert (doc.family, doc.severity, doc.since, doc.scope) == ("family", "error", "0.1", "site")
    assert doc.summary == "Something is wrong."
    assert doc.what == "one line\ngoes on."
    assert doc.why == "because."
    assert doc.references == ("One, which goes on.", "Two.")
    assert [(e.bad, e.source) for e in first.examples] == [
        (True, "# build: A()\nclass A: ...\n"),
        (False, "What: not a heading, it stands in a fence\n"),
        (False, "class C: ...\n"),
    ]
