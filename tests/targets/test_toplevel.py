"""Tests of mha_lint.targets.toplevel."""

from __future__ import annotations

import ast

from mha_lint.targets.toplevel import definitions_only


def test_a_model_is_not_built_because_a_function_calls_its_argument_so() -> None:
    tree = ast.parse(
        "size = 3\n"
        "model = Huge(10**9)\n"
        "def load(model, params=size):\n    return [model(x) for x in params]\n"
        "def train():\n    model = 1\n    return model\n"
    )
    kept = [ast.unparse(s).split("\n")[0] for s in definitions_only(tree)]
    assert kept == ["size = 3", "def load(model, params=size):", "def train():"]
    read = ast.parse("model = Huge(1)\ndef use():\n    return [model for x in y]\n")
    assert len(definitions_only(read)) == 2
