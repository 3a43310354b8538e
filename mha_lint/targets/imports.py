"""What the names of a file mean: import aliases, and files of the same project."""

from __future__ import annotations

import ast
import os
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


def read_imports(tree: ast.Module, path: str, modules: Modules | None = None) -> Imports:
    """Collect the imports of `tree`, wherever they stand in it."""
    names: dict[str, str] = {}
    files: dict[str, tuple[str, str]] = {}
    folder = str(Path(path).absolute().parent)
    modules = modules or Modules()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            file = modules.find(module, node.level, folder)
            for alias in node.names:
                local = alias.asname or alias.name
                names[local] = f"{module}.{alias.name}" if module else alias.name
                if file is not None:
                    files[local] = (file, alias.name)
    return Imports(names, files)


def find_module(module: str, level: int, folder: Path) -> Path | None:
    """Return the project file that ``from {'.' * level}{module} import ...`` means, if any."""
    found = Modules().find(module, level, str(folder))
    return None if found is None else Path(found)


class Modules:
    """The project files that imports mean; what was looked up once is remembered."""

    def __init__(self) -> None:
        """Know of nothing yet."""
        self._found: dict[tuple[str, str, int], str | None] = {}
        self._files: dict[str, str | None] = {}
        self._above: dict[str, tuple[str, ...]] = {}

    def find(self, module: str, level: int, folder: str) -> str | None:
        """Return what `find_module` returns, for the absolute path of a folder."""
        key = (folder, module, level)
        if key not in self._found:
            self._found[key] = self._find(module, level, folder)
        return self._found[key]

    def _find(self, module: str, level: int, folder: str) -> str | None:
        below = module.replace(".", os.sep)
        if level:
            home = Path(folder)
            for _ in range(level - 1):
                home = home.parent
            return self._file(str(home / below))
        if not module or module.partition(".")[0] == "torch":
            return None
        for above in self._roots(folder):
            if (file := self._file(f"{above}{os.sep}{below}")) is not None:
                return file
        return None

    def _roots(self, folder: str) -> tuple[str, ...]:
        """Return the folders that can hold what is imported: `folder` and some above, to a .git."""
        if folder not in self._above:
            found: list[str] = []
            for above in (Path(folder), *list(Path(folder).parents)[:HIGHEST]):
                if above != above.parent:
                    found.append(str(above))
                if os.path.exists(above / ".git"):  # noqa: PTH110 - a folder that may not be looked at
                    break
            self._above[folder] = tuple(found)
        return self._above[folder]

    def _file(self, place: str) -> str | None:
        if place not in self._files:
            both = (f"{place}.py", f"{place}{os.sep}__init__.py")
            found = (file for file in both if os.path.isfile(file))  # noqa: PTH113 - strings, many
            self._files[place] = next(found, None)
        return self._files[place]
