"""What the names of a file mean: import aliases, and files of the same project."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

HIGHEST = 5


@dataclass(frozen=True, slots=True)
class Imports:
    """Local name -> dotted name in the module it came from ("F" -> "torch.nn.functional")."""

    names: dict[str, str]
    files: dict[str, tuple[str, str]]
    """Local name -> (file of the same project, name in it)."""

    def dotted(self, node: ast.AST) -> str:
        """Return the dotted name of `node` with aliases resolved; "" if it is no plain name."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        parts.append(self.names.get(node.id, node.id))
        return ".".join(reversed(parts))


def read_imports(tree: ast.Module, path: str) -> Imports:
    """Collect the imports of `tree`, wherever they stand in it."""
    names: dict[str, str] = {}
    files: dict[str, tuple[str, str]] = {}
    folder = Path(path).absolute().parent
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            file = find_module(module, node.level, folder)
            for alias in node.names:
                local = alias.asname or alias.name
                names[local] = f"{module}.{alias.name}" if module else alias.name
                if file is not None:
                    files[local] = (str(file), alias.name)
    return Imports(names, files)


def find_module(module: str, level: int, folder: Path) -> Path | None:
    """Return the project file that ``from {'.' * level}{module} import ...`` means, if any."""
    parts = module.split(".") if module else []
    if level:
        for _ in range(level - 1):
            folder = folder.parent
        return _file(folder.joinpath(*parts))
    if not parts or parts[0] == "torch":
        return None
    for above in (folder, *list(folder.parents)[:HIGHEST]):
        if above != above.parent and (file := _file(above.joinpath(*parts))) is not None:
            return file
        if (above / ".git").exists():
            break
    return None


def _file(place: Path) -> Path | None:
    for file in (place.with_suffix(".py") if place.name else place, place / "__init__.py"):
        if file.is_file():
            return file
    return None
