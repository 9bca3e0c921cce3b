"""House rules that no linter knows, read off the syntax trees of the library."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "lakedex"

MAX_MODULE_LINES = 700
MAX_FUNCTION_LINES = 60

# obstore reads its own; its client has to know when they change.
MAY_READ_ENVIRONMENT = ("cli/", "spark/session.py", "io/obstore_client.py")
MAY_PRINT = ("cli/",)
MAY_USE_SPARK = ("spark/",)
MAY_USE_PARQUET = ("parquet/",)
# What Spark carries between processes of one session, as task or row; never what lies in a table's folder.
MAY_PICKLE = (
    "spark/engine.py",
    "tagging/tasks.py",
    "write/file_group_tasks.py",
    "tagging/tagging.py",
    "testing/storage_tests.py",
)
MAY_ASSERT = ("testing/",)
NEVER_IMPORTED = ("marshal", "shelve", "dill", "joblib", "yaml", "copyreg")
# Each deletes only what it has made itself or checked: whatever a table's files name goes by layout/contained_files.py.
MAY_DELETE = (
    "io/",
    "timeline/active.py",
    "timeline/table_config.py",
    "layout/contained_files.py",
    "timeline/archived.py",
    "parquet/base_file_writer.py",
    "maintenance/compaction_task.py",
    "maintenance/metadata_compaction.py",
    "index/definitions.py",
    "index/bitmap/run_files.py",
    "write/create_table.py",
    "write/file_group_tasks.py",
    "spark/staged_rows.py",
    "spark/catalog/",
    "testing/",
)
# Picks Spark or the local engine: the one place that must not import both at its head.
MAY_IMPORT_LATE = ("table/session.py",)

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file; ``name`` is its path below the package."""

    name: str
    text: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree; many rules look at each."""
        return tuple(ast.walk(self.tree))

    def within(self, places: tuple[str, ...]) -> bool:
        """Whether the module is one of ``places`` or lies in one of those that end with a slash."""
        return any(self.name == place or (place.endswith("/") and self.name.startswith(place)) for place in places)


def load(path: Path, root: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    return Module(path.relative_to(root).as_posix(), text, ast.parse(text, filename=str(path)))


MODULES = [load(path, SOURCE) for path in sorted(SOURCE.rglob("*.py"))]


def test_there_is_something_to_check() -> None:
    assert len(MODULES) > 5


def test_modules_are_short() -> None:
    """Docstrings of functions are not counted."""
    assert_none(long_modules(MODULES))


def test_functions_are_short() -> None:
    assert_none(long_functions(MODULES))


def test_only_the_command_line_prints() -> None:
    assert_none(prints(MODULES))


def test_environment_variables_are_read_in_three_places() -> None:
    assert_none(environment_reads(MODULES))


def test_only_the_spark_package_imports_pyspark() -> None:
    assert_none(imports_outside(MODULES, ("pyspark", "py4j"), MAY_USE_SPARK))


def test_only_the_parquet_package_opens_parquet() -> None:
    assert_none(imports_outside(MODULES, ("pyarrow.parquet",), MAY_USE_PARQUET))


def test_only_what_spark_carries_is_pickled() -> None:
    assert_none(imports_outside(MODULES, ("pickle", "cloudpickle", "pyspark.cloudpickle"), MAY_PICKLE))


def test_nothing_runs_text_or_bytes() -> None:
    assert_none(imports_outside(MODULES, NEVER_IMPORTED, ()))
    assert_none(executions(MODULES))


def test_few_modules_delete_files() -> None:
    assert_none(deletions(MODULES))


def test_no_late_imports_of_own_modules() -> None:
    assert_none(late_imports(MODULES))


def test_errors_have_names() -> None:
    assert_none(nameless_errors(MODULES))


def test_validation_does_not_assert() -> None:
    assert_none(assertions(MODULES))


def test_public_modules_say_what_they_are_and_export() -> None:
    assert_none(unexplained_modules(MODULES))


BREAKS_EVERY_RULE = (
    """
import os
import pyspark.sql
import pyarrow.parquet as pq
from pyarrow import parquet
from os import environ
from pyspark import cloudpickle
import pickle, marshal

def long():
    from lakedex.types import TableType
    from . import sibling
    import lakedex.io
    print(os.environ["HOME"], os.getenv("HOME"))
    assert TableType
    if TableType:
        raise Exception("no")
    eval("1"), exec("1"), np.load("f", allow_pickle=True)
    handle.storage.delete("x")
    run(storage.delete_tree, ["x"])
    raise BaseException
"""
    + "    pass\n" * 60
    + "#\n" * 700
)


def test_what_spark_imports_by_itself_is_one_name() -> None:
    """Each Spark session imports every ``pyspark_*`` that it finds, whether lakedex is used or not."""
    module = load(SOURCE.parent / "pyspark_lakedex" / "__init__.py", SOURCE.parent)
    assert [type(node).__name__ for node in module.tree.body] == ["Expr", "ImportFrom", "Assign"]
    assert_none(unexplained_modules([module]))


def test_the_rules_bite() -> None:
    module = Module("write/bad.py", BREAKS_EVERY_RULE, ast.parse(BREAKS_EVERY_RULE))
    assert len(list(long_modules([module]))) == 1
    assert len(list(long_functions([module]))) == 1
    assert len(list(prints([module]))) == 1
    assert len(list(environment_reads([module]))) == 3
    assert len(list(imports_outside([module], ("pyspark", "py4j"), MAY_USE_SPARK))) == 2
    assert len(list(imports_outside([module], ("pyarrow.parquet",), MAY_USE_PARQUET))) == 2
    assert len(list(imports_outside([module], ("pickle", "pyspark.cloudpickle"), MAY_PICKLE))) == 2
    assert len(list(imports_outside([module], NEVER_IMPORTED, ()))) == 1
    assert len(list(executions([module]))) == 3
    assert len(list(late_imports([module]))) == 3
    assert len(list(deletions([module]))) == 2
    assert len(list(nameless_errors([module]))) == 2
    assert len(list(assertions([module]))) == 1
    assert len(list(unexplained_modules([module]))) == 2


def assert_none(found: Iterator[str]) -> None:
    violations = list(found)
    if violations:
        pytest.fail("\n".join(violations), pytrace=False)


def docstring_lines(node: ast.AST) -> int:
    """Lines of a function's docstring, which no limit counts: a public method has every section that applies."""
    first = node.body[0] if isinstance(node, Function) else None
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return (first.end_lineno or 0) - first.lineno + 1 if first and is_docstring else 0


def long_modules(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        functions = [node for _, node in nodes([module]) if isinstance(node, Function)]
        lines = module.text.count("\n") - sum(map(docstring_lines, functions))
        if lines > MAX_MODULE_LINES:
            yield f"{module.name}: {lines} lines, at most {MAX_MODULE_LINES}"


def long_functions(modules: list[Module]) -> Iterator[str]:
    for module, node in nodes(modules):
        if isinstance(node, Function):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1 - docstring_lines(node)
            if lines > MAX_FUNCTION_LINES:
                yield f"{place(module, node)}: {node.name} has {lines} lines, at most {MAX_FUNCTION_LINES}"


def prints(modules: list[Module]) -> Iterator[str]:
    for module, node in nodes(modules, MAY_PRINT):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield f"{place(module, node)}: print; use logging, or return the text"


def environment_reads(modules: list[Module]) -> Iterator[str]:
    names = {"environ", "environb", "getenv", "putenv", "unsetenv"}
    for module, node in nodes(modules, MAY_READ_ENVIRONMENT):
        by_attribute = (
            isinstance(node, ast.Attribute)
            and node.attr in names
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
        )
        by_import = (
            isinstance(node, ast.ImportFrom) and node.module == "os" and names & {alias.name for alias in node.names}
        )
        if by_attribute or by_import:
            yield f"{place(module, node)}: environment variables belong to {', '.join(MAY_READ_ENVIRONMENT)}"


def imports_outside(modules: list[Module], packages: tuple[str, ...], allowed: tuple[str, ...]) -> Iterator[str]:
    for module, node in nodes(modules, allowed):
        for name in imported(node):
            if any(name == package or name.startswith(package + ".") for package in packages):
                yield f"{place(module, node)}: {name} belongs to {' and '.join(allowed) or 'no module'}"
                break


def executions(modules: list[Module]) -> Iterator[str]:
    for module, node in nodes(modules):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("eval", "exec"):
            yield f"{place(module, node)}: {node.func.id} runs text"
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
            yield f"{place(module, node.value)}: numpy.load unpickles"


def late_imports(modules: list[Module]) -> Iterator[str]:
    for module, function in nodes(modules, MAY_IMPORT_LATE):
        if isinstance(function, Function):
            for node in ast.walk(function):
                relative = isinstance(node, ast.ImportFrom) and node.level > 0
                if relative or any(name.split(".")[0] == "lakedex" for name in imported(node)):
                    yield f"{place(module, node)}: import in {function.name} of an own module; import at the head"


def nameless_errors(modules: list[Module]) -> Iterator[str]:
    for module, node in nodes(modules):
        if isinstance(node, ast.Raise):
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(raised, ast.Name) and raised.id in ("Exception", "BaseException"):
                yield f"{place(module, node)}: raise {raised.id}; raise one of lakedex.errors"


def deletions(modules: list[Module]) -> Iterator[str]:
    for module, node in nodes(modules, MAY_DELETE):
        if not isinstance(node, ast.Attribute) or node.attr not in ("delete", "delete_tree"):
            continue
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        if node.attr == "delete_tree" or owner.endswith("storage"):
            yield f"{place(module, node)}: deletes files; call layout/contained_files.py with what the table names"


def assertions(modules: list[Module]) -> Iterator[str]:
    for module, node in nodes(modules, MAY_ASSERT):
        if isinstance(node, ast.Assert):
            yield f"{place(module, node)}: assert vanishes under -O; raise one of lakedex.errors"


def unexplained_modules(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        parts = module.name.removesuffix(".py").split("/")
        if any(part.startswith("_") and part != "__init__" for part in parts):
            continue
        docstring = ast.get_docstring(module.tree) or ""
        if not docstring or docstring.startswith("TODO"):
            yield f"{module.name}: no docstring that says what it is"
        only_docstring = len(module.tree.body) <= 1
        if not only_docstring and not any(exports(node) for node in module.tree.body):
            yield f"{module.name}: no __all__"


def exports(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def nodes(modules: list[Module], allowed: tuple[str, ...] = ()) -> Iterator[tuple[Module, ast.AST]]:
    for module in modules:
        if not module.within(allowed):
            for node in module.nodes:
                yield module, node


def imported(node: ast.AST) -> Iterator[str]:
    """Names that a statement imports: ``from a import b`` may mean ``a`` or the module ``a.b``."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def place(module: Module, node: ast.AST) -> str:
    return f"src/lakedex/{module.name}:{getattr(node, 'lineno', 0)}"
