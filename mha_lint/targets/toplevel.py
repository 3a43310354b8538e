"""Tell a module that only defines things from a script that works at top level, and keep of a script
what its definitions need.

A script that trains, downloads or parses its arguments when imported must not do so for us. Kept
are imports, definitions and those assignments whose names the definitions read; loops, bare calls
and ``if __name__ == "__main__"`` blocks are not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from mha_lint.targets.words import words

CHEAP_CALLS = words(
    """abs all any bool bytes complex dict divmod enumerate float frozenset getattr hasattr int
    isinstance len list map max min namedtuple object partial pow property range reversed round
    set slice sorted str sum super tuple type zip TypeVar ParamSpec NewType NamedTuple TypedDict
    getLogger get_logger device tensor Path compile field Enum getenv is_available sqrt log exp
    pi join split lower upper format keys items values get finfo iinfo find_spec version parse
    Version is_dir exists dirname abspath deque Counter OrderedDict defaultdict SimpleNamespace"""
)
SETTING_CALLS = words(
    """add_argument add_argument_group add_subparsers set_defaults append extend insert update
    setdefault set_default_dtype simplefilter filterwarnings register reconfigure"""
)
"""Bare calls that set up what definitions rely on, and cost nothing."""


def works_at_top_level(tree: ast.Module) -> bool:
    """Tell whether importing the module would do more than define names."""
    return any(not _harmless(statement) for statement in tree.body)


def definitions_only(tree: ast.Module, also: Iterable[str] = ()) -> list[ast.stmt]:
    """Return the statements of `tree` to run in place of all of them, in order.

    `also`: names that are needed besides those that the definitions read.
    """
    kept = list(_kept(tree.body))
    wanted = _names_read(s for s in kept if not _is_assignment(s)) | set(also)
    chosen = set(map(id, _making(wanted, [s for s in kept if _is_assignment(s)])))
    return [s for s in kept if not _is_assignment(s) or id(s) in chosen]


def making(tree: ast.Module, name: str) -> list[ast.stmt]:
    """Return the top-level assignments that make `name`, in order, with those that they read."""
    return _making({name}, [s for s in _kept(tree.body) if _is_assignment(s)])


def setting(tree: ast.Module, name: str) -> list[ast.stmt]:
    """Return the top-level assignments that set `name`, in order, with what they read.

    Imports are among them. Nothing where no assignment sets it.
    """
    kept = list(_kept(tree.body))
    made = _making({name}, [s for s in kept if _is_assignment(s)])
    read = _names_read(made)
    imports = {
        id(s)
        for s in kept
        if isinstance(s, ast.Import | ast.ImportFrom)
        and any((a.asname or a.name.partition(".")[0]) in read for a in s.names)
    }
    chosen = set(map(id, made)) | imports
    return [s for s in kept if made and id(s) in chosen]


def _making(names: set[str], assignments: list[ast.stmt]) -> list[ast.stmt]:
    """Return those of `assignments` that set `names`, or what they are made of."""
    wanted = set(names)
    chosen: set[int] = set()
    while True:
        more = [s for s in assignments if id(s) not in chosen and _targets(s) & wanted]
        if not more:
            return [s for s in assignments if id(s) in chosen]
        chosen.update(map(id, more))
        wanted |= _names_read(more)


def is_main_guard(statement: ast.stmt) -> bool:
    """Tell whether `statement` is an ``if __name__ == "__main__"`` block."""
    return isinstance(statement, ast.If) and any(
        isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
    )


def _harmless(statement: ast.stmt) -> bool:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return True
        case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Global() | ast.Delete():
            return True
        case ast.Expr(value=ast.Constant()) | ast.Assert():
            return True
        case ast.Expr(value=ast.Call() as call):
            return _called(call) in SETTING_CALLS and _cheap(call.args)
        case ast.Assign(value=value) | ast.AugAssign(value=value):
            return _cheap([value])
        case ast.AnnAssign(value=value):
            return value is None or _cheap([value])
        case ast.If():
            if is_main_guard(statement):
                return True
            return _cheap([statement.test]) and all(
                map(_harmless, statement.body + statement.orelse)
            )
        case ast.Try():
            parts = statement.body + statement.orelse + statement.finalbody
            handlers = [s for handler in statement.handlers for s in handler.body]
            tolerated = (ast.Raise, ast.Expr)  # a handler that prints or complains
            return all(map(_harmless, parts)) and all(
                _harmless(s) or isinstance(s, tolerated) for s in handlers
            )
        case _ if type(statement).__name__ == "TypeAlias":
            return True
        case _:
            return False


def _cheap(values: Iterable[ast.expr]) -> bool:
    return all(
        _called(node) in CHEAP_CALLS or _is_layer_or_class(node)
        for value in values
        for node in _evaluated_now(value)
        if isinstance(node, ast.Call)
    )


def _evaluated_now(value: ast.expr) -> Iterator[ast.AST]:
    """Walk `value` without the bodies of lambdas, which do not run yet."""
    todo: list[ast.AST] = [value]
    while todo:
        node = todo.pop()
        yield node
        if not isinstance(node, ast.Lambda):
            todo.extend(ast.iter_child_nodes(node))


def _is_layer_or_class(call: ast.Call) -> bool:
    """Tell whether `call` makes something from constants only: ``Config(n_embd=32)``."""
    name = _called(call)
    arguments = [*call.args, *(k.value for k in call.keywords)]
    return name[:1].isupper() and all(
        isinstance(
            node, ast.Constant | ast.Name | ast.Attribute | ast.UnaryOp | ast.List | ast.Tuple
        )
        for node in arguments
    )


def _called(call: ast.AST) -> str:
    if not isinstance(call, ast.Call):
        return ""
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _kept(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in statements:
        match statement:
            case ast.If() if is_main_guard(statement):
                continue
            case ast.If():
                body, orelse = list(_kept(statement.body)), list(_kept(statement.orelse))
                if body or orelse:
                    new = ast.If(statement.test, body or [ast.Pass()], orelse)
                    yield ast.fix_missing_locations(ast.copy_location(new, statement))
            case ast.Try():
                yield statement
            case ast.With() if any(isinstance(s, ast.ClassDef) for s in statement.body):
                yield statement
            case ast.Expr(value=ast.Call() as call):
                if _called(call) in SETTING_CALLS:
                    yield statement
            case ast.Expr() | ast.For() | ast.AsyncFor() | ast.While() | ast.With() | ast.Raise():
                continue
            case _:
                yield statement


def _is_assignment(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Expr):  # parser.add_argument(...): part of making `parser`
        call = statement.value
        return isinstance(call, ast.Call) and bool(_targets(statement))
    return isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign)


def _targets(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.Assign(targets=targets):
            roots: list[ast.expr] = list(targets)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            roots = [target]
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner))):
            roots = [owner]
        case _:
            return set()
    names = set()
    for root in roots:
        for node in ast.walk(root):
            if isinstance(node, ast.Name):
                names.add(node.id)
    return names


def _names_read(statements: Iterable[ast.stmt]) -> set[str]:
    """Return the names that `statements` read of the module: not the locals of their functions."""
    return {name for statement in statements for name in _free(statement)}


def _free(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    names = {name for child in ast.iter_child_nodes(node) for name in _free(child)}
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return names
    arguments = node.args
    outside = [*arguments.defaults, *filter(None, arguments.kw_defaults)]
    outside += getattr(node, "decorator_list", [])
    around = {name for part in outside for name in _free(part)}
    return (names - _locals(node)) | around


def _locals(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    """Return the parameters of `function` and the names that its own body binds."""
    bound: set[str] = set()
    shared: set[str] = set()
    body = function.body if isinstance(function.body, list) else [function.body]
    todo: list[ast.AST] = [function.args, *body]
    while todo:
        node = todo.pop()
        match node:
            case ast.arg(arg=name):
                bound.add(name)
                continue
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                shared.update(names)
            case ast.Name(id=name, ctx=ast.Store()):
                bound.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                continue  # a scope of its own
            case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                continue
            case ast.GeneratorExp():
                continue
        todo.extend(ast.iter_child_nodes(node))
    return bound - shared
