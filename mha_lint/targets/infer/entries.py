"""Made-up configs as expressions: what entries they have, and one with an entry changed."""

from __future__ import annotations

import ast


def is_synthetic_config(text: str) -> bool:
    """Tell whether an argument is a config that we made up."""
    return text.startswith(("SimpleNamespace(", "AttributeDict(", "{"))


def config_entries(config: str) -> dict[str, str]:
    """Return the entries of a made-up config, and of those inside it, as expressions."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(config, mode="eval")):
        pairs: list[tuple[object, ast.expr]]
        match node:
            case ast.Call(keywords=keywords):
                pairs = [(k.arg, k.value) for k in keywords]
            case ast.Dict(keys=keys, values=values):
                named = [k.value if isinstance(k, ast.Constant) else None for k in keys]
                pairs = list(zip(named, values, strict=True))
            case _:
                continue
        for name, value in pairs:
            if isinstance(name, str):
                found.setdefault(name, ast.unparse(value))
    return found


def with_entry(config: str, name: str, text: str) -> str:
    """Return a made-up config with the entry `name` changed, or with one more."""
    tree = ast.parse(config, mode="eval")
    value = ast.parse(text, mode="eval").body
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg=known) if known == name:
                node.value = value
                return ast.unparse(tree)
            case ast.Dict(keys=keys):
                for index, key in enumerate(keys):
                    if isinstance(key, ast.Constant) and key.value == name:
                        node.values[index] = value
                        return ast.unparse(tree)
    match tree.body:
        case ast.Dict(keys=keys, values=values):
            keys.append(ast.Constant(name))
            values.append(value)
        case ast.Call(keywords=keywords):
            keywords.append(ast.keyword(name, value))
    return ast.unparse(tree)
