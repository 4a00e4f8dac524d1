"""The faults that `mutants.py` plants: small changes of one expression, found on the syntax tree.

Text is never touched: docstrings, annotations, messages, names, disclosures, imports, TYPE_CHECKING blocks. Neither are
the arguments of `rng`, since one random stream is as good as another.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Mutant", "mutants_of", "unlike"]

TEXT = {"name", "uploads", "downloads", "keeps", "reference", "__all__", "__getattr__", "METHODS"}
MESSAGES = {"choose", "unknown", "closest", "ConfigError", "DataError", "TrainingError", "finder", "TypeVar"}
UNSEEN = TEXT | {"strict", "device", "default_factory", "compare", "fget"}  # keywords that no run on one CPU shows
SYMMETRIC = {
    "minimum", "maximum", "fmin", "fmax", "min", "max", "equal", "promote_types", "logaddexp", "cosine", "transpose",
}  # fmt: skip
TYPES = {"isinstance", "issubclass", "getattr", "hasattr", "setattr"}
OPPOSITE = {
    "sum": "mean", "min": "max", "amin": "amax", "argmin": "argmax", "minimum": "maximum", "fmin": "fmax",
    "any": "all", "floor": "ceil",
}  # fmt: skip
OPPOSITE |= {b: a for a, b in OPPOSITE.items()}
ALONG = {  # methods whose first argument is a dimension
    "sum", "mean", "amax", "amin", "max", "min", "argsort", "argmax", "argmin", "softmax", "log_softmax", "logsumexp",
    "cumsum", "flip", "unsqueeze", "squeeze", "flatten", "any", "all", "std", "gather", "index_copy", "index_fill",
}  # fmt: skip
JOINS = {"cat", "stack"}  # functions whose second argument is a dimension
OTHER: dict[type[ast.AST], tuple[type[ast.AST], ...]] = {
    ast.Gt: (ast.GtE, ast.Lt), ast.GtE: (ast.Gt, ast.Lt), ast.Lt: (ast.LtE, ast.Gt), ast.LtE: (ast.Lt, ast.Gt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,), ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}  # fmt: skip
TIGHT = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Attribute, ast.Subscript, ast.Call, ast.Starred)
LOOSE = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Lambda)


@dataclass(frozen=True)
class Mutant:
    """One fault in one file."""

    file: str
    line: int
    operator: str
    before: str  # the lines it touches, spaces collapsed
    after: str
    owner: str  # the class around it and its name in the tables, or ""
    scope: int  # first line of the innermost function around it; 0 for what runs at import
    span: tuple[int, int]  # characters of the file that are replaced
    by: str

    def applied(self, source: str) -> str:
        """The file with the fault."""
        return source[: self.span[0]] + self.by + source[self.span[1] :]

    def key(self, source: str) -> str:
        """Names the fault in this version of the file."""
        return hashlib.sha1(f"{self.file}\0{self.applied(source)}".encode()).hexdigest()[:12]


Change = tuple[str, ast.expr, ast.expr]  # operator, the node replaced, what by


def _name(call: ast.Call) -> str:
    """The last name of what is called."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _integer(node: ast.AST | None) -> int | None:
    """The value of an integer literal, signed or not."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _integer(node.operand)
        return None if inner is None else -inner
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _with(node: ast.expr, **changes: object) -> ast.expr:
    """A copy with fields changed."""
    other = copy.copy(node)
    for name, value in changes.items():
        setattr(other, name, value)
    return other


def _plus(node: ast.expr, step: int) -> ast.expr:
    """node + step; a literal is counted out."""
    value = _integer(node)
    if value is not None:
        return ast.Constant(value + step)
    return ast.BinOp(node, ast.Add() if step > 0 else ast.Sub(), ast.Constant(abs(step)))


def _textual(node: ast.AST) -> bool:
    """Whether + joins rather than adds."""
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp | ast.Constant) and not isinstance(
        getattr(node, "value", None), int | float
    )


def _arithmetic(node: ast.BinOp) -> Iterator[Change]:
    if _textual(node.left) or _textual(node.right):
        return
    match node.op:
        case ast.Add() | ast.Sub():
            yield "sign", node, _with(node, op=ast.Sub() if isinstance(node.op, ast.Add) else ast.Add())
        case ast.Mult():
            yield "divisor", node, _with(node, op=ast.Div())
        case ast.Div() | ast.FloorDiv():
            yield "divisor", node, _with(node, op=ast.Mult())
            yield "divisor", node, _with(node, right=_plus(node.right, 1))
        case ast.Pow():
            yield "exponent", node, _with(node, right=_plus(node.right, 1))
            yield "exponent", node, _with(node, op=ast.Mult())
        case ast.BitAnd() | ast.BitOr():
            yield "condition", node, _with(node, op=ast.BitOr() if isinstance(node.op, ast.BitAnd) else ast.BitAnd())
        case _:
            return


def _unary(node: ast.UnaryOp) -> Iterator[Change]:
    if isinstance(node.op, ast.USub) and _integer(node) is None:
        yield "sign", node, node.operand
    elif isinstance(node.op, ast.Not | ast.Invert) and not _static(node.operand):
        yield "condition", node, node.operand


def _compare(node: ast.Compare) -> Iterator[Change]:
    for i, op in enumerate(node.ops):
        for other in OTHER[type(op)]:
            yield "comparison", node, _with(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])


CHANGES = {ast.BinOp: _arithmetic, ast.UnaryOp: _unary, ast.Compare: _compare}


def _negated(test: ast.expr) -> Iterator[Change]:
    """An equality's negation is already a comparison, a negation's the operand."""
    single = isinstance(test, ast.Compare) and len(test.ops) == 1 and len(OTHER[type(test.ops[0])]) == 1
    if not single and not _static(test) and not (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)):
        yield "condition", test, ast.UnaryOp(ast.Not(), test)


def _static(test: ast.expr) -> bool:
    """Whether a condition holds for type checkers alone: no test that runs can tell."""
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def _kind(node: ast.expr) -> str:
    """Arguments of one kind may be mistaken for each other."""
    if isinstance(node, ast.Constant | ast.List | ast.Tuple | ast.Lambda | ast.JoinedStr) or _integer(node) is not None:
        return type(getattr(node, "value", node)).__name__
    return "expression"


def unlike(sources: Iterable[str]) -> set[str]:
    """Functions and classes of the package whose first two arguments are declared of different kinds."""
    alike: dict[str, bool] = {}
    for node in (n for source in sources for n in ast.walk(ast.parse(source))):
        if isinstance(node, ast.FunctionDef):
            declared = [a.annotation for a in node.args.args if a.arg not in ("self", "cls")]
        elif isinstance(node, ast.ClassDef):
            declared = [s.annotation for s in node.body if isinstance(s, ast.AnnAssign)]
        else:
            continue
        if len(declared) >= 2 and declared[0] and declared[1]:
            kinds = [set(ast.unparse(d).split(" | ")) for d in declared[:2] if d]
            alike[node.name] = alike.get(node.name, False) or bool(kinds[0] & kinds[1])
    return {name for name, same in alike.items() if not same}


def _swapped(node: ast.Call, unlike: Collection[str]) -> Iterator[Change]:
    args, name = node.args, _name(node)
    at = 1 if name == "where" and len(args) == 3 else 0  # the condition is no candidate
    plain = name == "add" and len(args) + len(node.keywords) == 2
    if len(args) < at + 2 or name in SYMMETRIC | TYPES or name in unlike or plain:
        return
    a, b = args[at : at + 2]
    if _kind(a) == _kind(b) and ast.dump(a) != ast.dump(b) and not isinstance(a, ast.Starred):
        yield "swap", node, _with(node, args=[*args[:at], b, a, *args[at + 2 :]])


def _calls(node: ast.Call, unlike: Collection[str]) -> Iterator[Change]:
    name, func = _name(node), node.func
    yield from _swapped(node, unlike)
    if isinstance(func, ast.Attribute):
        if name in ("detach", "square", "sqrt") and not node.args:
            yield "detach" if name == "detach" else "exponent", node, func.value
        if name == "mean" and len(node.args) == 1 and ast.unparse(func.value).split(".")[-1] in ("batch", "rows"):
            yield "reduction", node, _with(node, func=_with(func, value=node.args[0]), args=[])  # the mask forgotten
        elif name in OPPOSITE:
            yield "reduction", node, _with(node, func=_with(func, attr=OPPOSITE[name]))
    elif isinstance(func, ast.Name) and name in ("min", "max", "any", "all"):
        yield "reduction", node, _with(node, func=ast.Name(OPPOSITE[name]))
    for i, keyword in enumerate(node.keywords):
        others = [*node.keywords[:i], *node.keywords[i + 1 :]]
        if keyword.arg and keyword.arg not in UNSEEN:
            yield "keyword", node, _with(node, keywords=others)
        if name in ("clamp", "clip") and keyword.arg in ("min", "max"):
            other = ast.keyword("max" if keyword.arg == "min" else "min", keyword.value)
            yield "clamp", node, _with(node, keywords=[other])
    if name in ("range", "arange") and 1 <= len(node.args) <= 2:
        yield "range", node, _with(node, args=[*node.args[:-1], _plus(node.args[-1], -1)])


def _integers(node: ast.expr, operator: str) -> Iterator[Change]:
    value = _integer(node)
    assert value is not None
    if operator in ("index", "axis"):
        other = {0: 1, 1: 0, -1: 0}.get(value, value + 1)
        yield operator, node, ast.Constant(other)
        return
    yield operator, node, ast.Constant(value + 1)
    yield operator, node, ast.Constant(value - 1)
    if value < 0:
        yield "sign", node, ast.Constant(-value)


def _slice(node: ast.Slice) -> Iterator[Change]:
    for bound, step in ((node.lower, 1), (node.upper, -1)):
        if bound is not None:
            yield "slice", bound, _plus(bound, step)


class _Finder:
    """Walks a file and collects the changes, with the function that each stands in."""

    def __init__(self, unlike: Collection[str]) -> None:
        self.unlike = unlike
        self.owner = ""
        self.found: list[tuple[Change, int, bool, str]] = []

    def add(self, changes: Iterator[Change], scope: int, tight: bool) -> None:
        self.found.extend((change, scope, tight, self.owner) for change in changes)

    def visit(self, node: ast.AST | None, scope: int, role: str = "literal", parent: ast.AST | None = None) -> None:
        """One node; ``role`` says what an integer literal here is."""
        if node is None or isinstance(node, ast.Import | ast.ImportFrom | ast.Raise | ast.Assert | ast.JoinedStr):
            return
        if isinstance(node, ast.If) and _static(node.test):
            return
        tight = isinstance(parent, TIGHT)
        if isinstance(node, ast.expr) and _integer(node) is not None:
            self.add(_integers(node, role), scope, tight)
            return
        special = getattr(self, f"visit_{type(node).__name__}", None)
        if special:
            special(node, scope, tight)
            return
        if changes := CHANGES.get(type(node)):
            self.add(changes(node), scope, tight)
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            self.add(_negated(node.test), scope, True)
        for test in getattr(node, "ifs", []):
            self.add(_negated(test), scope, True)
        self.below(node, scope)

    def below(self, node: ast.AST, scope: int) -> None:
        """The children."""
        for child in ast.iter_child_nodes(node):
            self.visit(child, scope, parent=node)

    def visit_BoolOp(self, node: ast.BoolOp, scope: int, tight: bool) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.add(iter([("condition", node, _with(node, op=other))]), scope, tight)
        self.below(node, scope)

    def visit_FunctionDef(self, node: ast.FunctionDef, scope: int, tight: bool) -> None:
        if node.name in TEXT:
            return
        for default in (*node.args.defaults, *node.args.kw_defaults):
            self.visit(default, scope)
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
        for statement in node.body:
            self.visit(statement, first, parent=node)

    def visit_ClassDef(self, node: ast.ClassDef, scope: int, tight: bool) -> None:
        named = [s.value for s in node.body if isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == "name"]
        self.owner = " ".join([node.name.lower(), *(str(v.value) for v in named if isinstance(v, ast.Constant))])
        for statement in node.body:
            self.visit(statement, scope, parent=node)
        self.owner = ""

    def visit_AnnAssign(self, node: ast.AnnAssign, scope: int, tight: bool) -> None:
        if ast.unparse(node.target) not in TEXT:
            self.visit(node.value, scope)

    def visit_Assign(self, node: ast.Assign, scope: int, tight: bool) -> None:
        if not any(isinstance(t, ast.Name) and t.id in TEXT for t in node.targets):
            for target in node.targets:
                self.visit(target, scope)
            self.visit(node.value, scope)

    def visit_Subscript(self, node: ast.Subscript, scope: int, tight: bool) -> None:
        self.visit(node.value, scope, parent=node)
        for part in node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]:
            if isinstance(part, ast.Slice):
                self.add(_slice(part), scope, False)
                for bound in (part.lower, part.upper, part.step):
                    if bound is not None and _integer(bound) is None:
                        self.visit(bound, scope)
            else:
                self.visit(part, scope, "index")

    def visit_Call(self, node: ast.Call, scope: int, tight: bool) -> None:
        name = _name(node)
        if name in MESSAGES or ast.unparse(node.func).startswith("rng."):
            return
        if name == "require":
            self.visit(node.args[0], scope)
            return
        self.add(_calls(node, self.unlike), scope, tight)
        self.visit(node.func, scope, parent=node)
        for i, argument in enumerate(node.args):
            along = (name in ALONG and i == 0) if isinstance(node.func, ast.Attribute) else False
            axis = along or (name in JOINS and i == 1)
            inner = argument.elts if axis and isinstance(argument, ast.Tuple) else [argument]
            for a in inner:
                self.visit(a, scope, "axis" if axis else "literal")
        for keyword in node.keywords:
            if keyword.arg not in TEXT:
                self.visit(keyword.value, scope, "axis" if keyword.arg in ("dim", "axis") else "literal")


def mutants_of(file: str, source: str, unlike: Collection[str] = ()) -> list[Mutant]:
    """Every mutant of a file, in the order of their places, each fault once."""
    tree, lines = ast.parse(source), source.splitlines(keepends=True)
    starts = [0]
    for text in lines:
        starts.append(starts[-1] + len(text))

    def place(line: int, column: int) -> int:  # columns of the syntax tree count bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    finder = _Finder(unlike)
    finder.visit(tree, 0)
    intact, seen, found = ast.dump(tree), set[str](), list[Mutant]()
    for (operator, old, new), scope, tight, owner in finder.found:
        assert old.end_lineno is not None and old.end_col_offset is not None
        span = place(old.lineno, old.col_offset), place(old.end_lineno, old.end_col_offset)
        by = ast.unparse(ast.fix_missing_locations(new))
        by = f"({by})" if tight and isinstance(new, LOOSE) else by
        first, last = starts[old.lineno - 1], starts[old.end_lineno]
        before, after = source[first:last], source[first : span[0]] + by + source[span[1] : last]
        texts = " ".join(before.split()), " ".join(after.split())
        one = Mutant(file, old.lineno, operator, *texts, owner, scope, span, by)
        mutated = ast.dump(ast.parse(one.applied(source)))
        if mutated != intact and mutated not in seen:
            seen.add(mutated)
            found.append(one)
    return sorted(found, key=lambda m: (m.span, m.operator, m.by))
