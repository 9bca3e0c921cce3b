"""``./dev house``: the size and the shape of ``src/lakedex``, read from its syntax trees."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from paths import ROOT

__all__ = ["House", "Module", "measure", "private_access", "report"]

SOURCE = ROOT / "src" / "lakedex"
FACADE = "table/table.py", "Table"
SECTIONS = ("Args", "Returns", "Raises", "Example")
SHORT = 100
"""A module below this many lines with one importer is a candidate for a merge."""
BANNED = {
    # Words that exist only here, with the field's word beside them.
    "tidy, tidied": (r"\b[Tt]id(?:y|ied|ies)\b", "recover"),
    "sift": (r"\b[Ss]ift\w*", "late materialization"),
    "held_/Held": (r"\bheld_\w+|\bHeld[A-Z]\w*|\b_held\b", "cached"),
    "judge": (r"\b(?:un)?judge[ds]?(?:_\w+)?\b|\w*Judge\b", "evaluate"),
    "twin": (r"\btwins?\b", "duplicate column"),
    "told, untold": (r"\b(?:un)?told\b|\bUntold\w*", "known, untranslatable"),
    "fold(ed) runs": (r"\bfold(?:ed|ing)?_runs?\b|\bWORN_AT\b|\bFOLD_AT\b", "compact"),
    "mend, heal": (r"\bmend(?:s|ed|ing|_\w+)?\b|\bheal(?:s|ed|ing)?\b", "repair"),
    "anew": (r"\banew\b", "again"),
    "so many": (r"\bso many\b", "the number"),
    "What … as a first word": (r'"""What\b', "a noun or a verb"),
}
_PRIVATE_DEFINED = re.compile(
    r"(?:(?:def|class) |\b(?:self|cls)\.|^ *)(_[a-zA-Z]\w*[a-zA-Z0-9])\b(?= *[:=(])", re.MULTILINE
)
"""Functions, classes, variables and attributes with one leading underscore."""
_OF_OTHERS = {"_replace", "_jvm", "_jdf", "_gateway"}
"""Names that namedtuple and PySpark have, too."""
_PRIVATE_USED = re.compile(r"(?<!\bself)(?<!\bcls)\.(_[a-zA-Z]\w*)")


@dataclass(frozen=True, eq=False)
class Module:
    """One source file; ``name`` is its path below the package."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text, filename=self.name)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree."""
        return tuple(ast.walk(self.tree))

    @cached_property
    def lines(self) -> int:
        """All lines but the docstrings of functions."""
        functions = (node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        docstrings = (node.body[0] for node in functions if ast.get_docstring(node, clean=False) is not None)
        return self.text.count("\n") - sum((text.end_lineno or 0) - text.lineno + 1 for text in docstrings)

    @cached_property
    def code_lines(self) -> int:
        """Lines that hold code: no blanks, no comments, no docstrings."""
        docstrings = {
            line
            for node in self.nodes
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        held: set[int] = set()
        layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in layout:
                held.update(range(token.start[0], token.end[0] + 1))
        return len(held - docstrings)

    @cached_property
    def imports(self) -> set[str]:
        """Modules of the package that it imports, by dotted name."""
        found = set()
        for node in self.nodes:
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("lakedex"):
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        return found

    @property
    def dotted(self) -> str:
        """Its name in an import."""
        return "lakedex." + self.name.removesuffix(".py").replace("/", ".")


@dataclass(frozen=True, eq=False)
class House:
    """What is measured."""

    modules: tuple[Module, ...]
    tracked: tuple[str, ...]

    @cached_property
    def figures(self) -> dict[str, int]:
        """The measures that have a ceiling (``tests/test_house.py``)."""
        named = [module for module in self.modules if not module.name.endswith("__init__.py")]
        importers = Counter(name for module in self.modules for name in module.imports)
        lonely = [one for one in named if importers[one.dotted] == 1 and one.lines < SHORT]
        members = list(self.facade)
        return {
            "files in src": sum(name.startswith("src/") and name.endswith(".py") for name in self.tracked),
            "modules without __init__": len(named),
            "code lines": sum(module.code_lines for module in self.modules),
            "longest module": max(module.lines for module in self.modules),
            f"modules under {SHORT} lines with one importer": len(lonely),
            "signature lines with Any": sum(_mentions_any(module) for module in self.modules),
            "public members of Table": len(members),
            "public definitions without docstring": sum(1 for module in self.modules for _ in _undocumented(module)),
            "private access in tests": private_access(self.modules),
            "attributes that tests replace": replaced_in_tests(),
            "files in git": len(self.tracked),
            "KiB in git": sum((ROOT / name).stat().st_size for name in self.tracked if (ROOT / name).exists()) >> 10,
            **{f"banned: {word}": len(found) for word, found in self.banned.items()},
        }

    @cached_property
    def banned(self) -> dict[str, list[str]]:
        """For each word that the glossary does not know, where it stands."""
        found: dict[str, list[str]] = {}
        for word, (pattern, _) in BANNED.items():
            found[word] = [
                f"{module.name}:{number}"
                for module in self.modules
                for number, line in enumerate(module.text.splitlines(), 1)
                for _ in re.finditer(pattern, line)
            ]
        return found

    @property
    def facade(self) -> Iterator[tuple[str, str]]:
        """Public members of the class that users hold, with their docstrings."""
        name, class_name = FACADE
        module = next(module for module in self.modules if module.name == name)
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == class_name:
                for item in node.body:
                    if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
                        yield item.name, ast.get_docstring(item) or ""


def measure() -> House:
    """Measure the checkout."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = [Module(path.relative_to(SOURCE).as_posix(), path.read_text()) for path in sorted(SOURCE.rglob("*.py"))]
    return House(tuple(modules), tuple(listed.stdout.splitlines()))


def private_access(modules: Sequence[Module]) -> int:
    """How often tests use private names of the library, whatever object they are of."""
    private = {name for module in modules for name in _PRIVATE_DEFINED.findall(module.text)}
    count = 0
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        foreign = private - set(_PRIVATE_DEFINED.findall(text)) - _OF_OTHERS
        count += sum(name in foreign for name in _PRIVATE_USED.findall(text))
    return count


_REPLACING = re.compile(r"\.setattr\(|\bpatch\.object\(|^ +limits\(", re.MULTILINE)
"""Whatever the fixture is called, and constants of modules by way of ``limits``."""


def replaced_in_tests() -> int:
    """How often tests replace an attribute of something while they run."""
    paths = (ROOT / "tests").rglob("*.py")
    return sum(len(_REPLACING.findall(path.read_text(encoding="utf-8"))) for path in paths)


def report(house: House, shown: int = 8) -> str:
    """Everything, as aligned lines."""
    lines = [f"{count:8,}  {name}" for name, count in house.figures.items()]
    lines.append("longest modules:")
    longest: Sequence[Module] = sorted(house.modules, key=lambda module: -module.lines)[:shown]
    lines += [f"{module.lines:8,}  {module.name}" for module in longest]
    members = list(house.facade)
    with_sections = {
        section: sum(f"{section}:" in text or f"{section}s:" in text for _, text in members) for section in SECTIONS
    }
    lines.append(f"Table: {len(members)} public members; " + ", ".join(f"{k}: {v}" for k, v in with_sections.items()))
    for word, found in house.banned.items():
        if found:
            lines.append(f"say {BANNED[word][1]!r}, not {word!r}: {', '.join(found[:shown])} …")
    return "\n".join(lines)


def _mentions_any(module: Module) -> int:
    """Lines of signatures on which the type Any stands."""
    found: set[int] = set()
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef):
            parameters = [
                *node.args.posonlyargs,
                *node.args.args,
                *node.args.kwonlyargs,
                node.args.vararg,
                node.args.kwarg,
            ]
            notes = [node.returns, *(one.annotation for one in parameters if one is not None)]
            names = (part for note in notes if note is not None for part in ast.walk(note))
            found |= {part.lineno for part in names if isinstance(part, ast.Name) and part.id == "Any"}
    return len(found)


def _undocumented(module: Module) -> Iterator[str]:
    """Public functions, classes and methods without a docstring."""
    for node in module.tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield node.name
            if isinstance(node, ast.ClassDef):
                methods = (item for item in node.body if isinstance(item, ast.FunctionDef))
                yield from (
                    f"{node.name}.{item.name}"
                    for item in methods
                    if not item.name.startswith("_") and not ast.get_docstring(item)
                )
