"""Promises about every command: documented, quick, torch-free where torch is not needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from mha_lint import __version__
from mha_lint.cli.main import cli, run
from mha_lint.rulebook.pack import builtin_pack, load_pack

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = sorted(cli.commands.items())
RULES = load_pack(builtin_pack())


def process(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False
    )


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[n for n, _ in COMMANDS])
def test_a_command_is_documented_by_example(name: str, command: click.Command) -> None:
    assert command.help is not None
    _, _, example = command.help.partition("Example:\n")
    assert f"    mha-lint {name}" in example


@pytest.mark.parametrize(("name", "command"), COMMANDS, ids=[n for n, _ in COMMANDS])
def test_an_option_is_documented(name: str, command: click.Command) -> None:
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            text, _, _ = (parameter.help or "").partition(" [default: ")
            assert text.endswith("."), parameter.name
            assert text[0].isupper(), parameter.name


@pytest.mark.parametrize(
    "arguments", [["--help"], ["check", "-h"], ["rules"], ["explain", "MHA204"], ["--version"]]
)
def test_no_torch_is_imported(arguments: list[str]) -> None:
    code = (
        "import sys; from mha_lint.cli.main import run; code = run(sys.argv[1:]);"
        "heavy = {'torch', 'numpy', 'sympy'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else code)"
    )
    done = process("-c", code, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_the_readers_of_targets_import_no_torch() -> None:
    code = "import sys, mha_lint.cli.request; sys.exit('torch' in sys.modules)"
    assert process("-c", code).returncode == 0


def test_version() -> None:
    assert process("-m", "mha_lint", "--version").stdout == f"mha-lint, version {__version__}\n"


def test_rules_lists_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules"]) == 0
    text = capsys.readouterr().out
    assert [row.split()[0] for row in text.splitlines() if row.startswith("MHA")] == [
        rule.code for rule in RULES
    ]
    assert run(["rules", "--format", "json"]) == 0
    assert [r["name"] for r in json.loads(capsys.readouterr().out)] == [r.name for r in RULES]


@pytest.mark.parametrize("loaded", RULES, ids=lambda r: r.code)
def test_explain_shows_the_whole_documentation(
    loaded: object, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = next(r for r in RULES if r is loaded)
    assert run(["explain", rule.name]) == 0
    by_name = capsys.readouterr().out
    assert run(["explain", rule.code.lower()]) == 0
    assert capsys.readouterr().out == by_name
    words = by_name.split()
    doc = rule.documentation
    for part in (doc.summary, doc.what, doc.why, *doc.bad, *doc.good, *doc.references):
        assert part.strip()
        assert set(part.split()) <= set(words)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("MHA240", "no rule 'MHA240'; there are MHA201, MHA202"),
        ("wrong-softmax-axes", "did you mean wrong-softmax-axis"),
        ("!", "mha-lint rules lists them all"),
    ],
)
def test_explain_of_an_unknown_rule(
    wanted: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", wanted]) == 2
    captured = capsys.readouterr()
    assert says in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)


@pytest.mark.parametrize("wanted", ["MHA001", "mha001", "not-checked"])
def test_explain_of_what_was_not_checked(wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", wanted]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("MHA001 not-checked\nthe status of a target, no rule\n")
    assert "exit code is 2" in shown


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = (
        "import os, sys; from mha_lint.cli.main import main;"
        "read, write = os.pipe(); os.close(read); os.dup2(write, 1);"
        "sys.argv[1:] = ['rules']; main()"
    )
    done = process("-c", code)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_child_process_prints_is_not_in_the_report() -> None:
    code = (
        "import os, types; from mha_lint.cli import engine_access; from mha_lint.cli.main import main;"
        "from mha_lint.model.report import RunReport;"
        "noisy = lambda *_: os.system('echo raw') or RunReport('0', None);"
        "engine_access.load_engine = lambda: types.SimpleNamespace(check=noisy);"
        "import sys; sys.argv[1:] = ['check', '--format', 'json', '--no-isolation']; main()"
    )
    done = process("-c", code)
    assert json.loads(done.stdout)["summary"]["targets"] == 0
    assert done.stderr == "raw\n"


def test_a_thread_that_user_code_left_does_not_keep_the_process() -> None:
    code = (
        "import sys, threading, time; from mha_lint.cli.main import main;"
        "threading.Thread(target=time.sleep, args=(60,)).start();"
        "sys.argv[1:] = ['explain', 'nothing']; main()"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, timeout=20, check=False)
    assert done.returncode == 2


def test_completion_is_offered() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "_MHA_LINT_COMPLETE": "bash_source"}
    done = subprocess.run(
        [sys.executable, "-m", "mha_lint"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert "complete -o nosort -F" in done.stdout
