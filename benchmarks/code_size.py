"""How much code is there? Counts AST nodes, clever forms and long functions in the product or in the given paths.

    python benchmarks/code_size.py [PATH ...]

The number of nodes does not depend on formatting or comments. A clever form is a condition times a list, an unpacked
conditional list, a nested conditional expression, or a statement with several assignment expressions. A long function
has more than 60 lines, not counting its docstring.
"""

import ast
import subprocess
import sys
from pathlib import Path

PRODUCT = ("analysis", "harness", "results", "sweeps", "workloads", "scaling_limits.py")
LONG = 60


def clever(node: ast.AST) -> bool:
    """Returns whether a node is an expression or statement that a plain ``if`` could replace."""
    match node:
        case ast.BinOp(op=ast.Mult(), left=left, right=right):
            conditions = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Call)
            has_list = any(isinstance(operand, ast.List | ast.Tuple | ast.ListComp) for operand in (left, right))
            return has_list and any(isinstance(operand, conditions) for operand in (left, right))
        case ast.Starred(value=ast.IfExp()) | ast.IfExp(body=ast.IfExp()) | ast.IfExp(orelse=ast.IfExp()):
            return True
        case ast.stmt():  # excluding nested statements
            children = [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]
            return (
                sum(isinstance(descendant, ast.NamedExpr) for child in children for descendant in ast.walk(child)) > 1
            )
    return False


def is_long(node: ast.AST) -> bool:
    """Returns whether a node is a function of more than 60 lines, not counting its docstring."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    first = node.body[1 if ast.get_docstring(node) is not None and len(node.body) > 1 else 0]
    docstring = first.lineno - node.body[0].lineno
    return node.end_lineno - node.lineno + 1 - docstring > LONG


def main(paths: list[str]) -> None:
    """Prints the counts, then the location of each clever form and each long function."""
    command = ["git", "ls-files", "--", *(paths or PRODUCT)]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    files = [file for file in listed if file.endswith(".py")]
    nodes = [(file, node) for file in files for node in ast.walk(ast.parse(Path(file).read_text()))]
    forms = [f"{file}:{node.lineno}" for file, node in nodes if clever(node)]
    long = [f"{file}:{node.lineno} {node.name}" for file, node in nodes if is_long(node)]
    print(f"{len(nodes):,} nodes, {len(forms)} clever forms, {len(long)} functions above {LONG} lines")
    print(*forms, *long, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
