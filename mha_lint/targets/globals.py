"""Stand-ins for sizes at module level that could not be computed: ``vocab_size`` of a text that is
not there.
"""

from __future__ import annotations

import ast
from types import ModuleType

import torch

from mha_lint.targets.infer.scheme import SCHEMES
from mha_lint.targets.infer.sized import sized
from mha_lint.targets.infer.vocabulary import Role, role_of
from mha_lint.targets.session import Session
from mha_lint.targets.source import Source

GUESSED = frozenset(
    {Role.WIDTH, Role.HEADS, Role.KV_HEADS, Role.HEAD_DIM, Role.LENGTH, Role.VOCABULARY}
    | {Role.LAYERS, Role.INNER, Role.RATE, Role.DEVICE, Role.CLASSES, Role.BATCH}
)


def fill_failed_globals(module: ModuleType, source: Source, session: Session) -> None:
    """Set the names that definitions of `source` read and whose assignments failed or were left out
    because something they need failed.
    """
    if not session.failed:
        return
    definitions = [s for s in source.tree.body if isinstance(s, ast.ClassDef | ast.FunctionDef)]
    wanted = {
        node.id
        for statement in definitions
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    } - {statement.name for statement in definitions}
    for name in sorted(session.failed.keys() & wanted - vars(module).keys()):
        role = role_of(name)
        if role in GUESSED:
            text = sized(name, role, SCHEMES[0])[0]
            vars(module)[name] = eval(text, {"torch": torch})
            session.note(f"{name} could not be computed: taken to be {text}")
