"""Which settings state each field of the modelled release's configuration classes, read from upstream's sources.

A field is stated by the keys of the JSON flags that its class validates, and by the arguments that upstream's
`create_engine_config` and its helpers hand to the class. What nothing states, upstream sets itself.
"""

import ast

# Classes whose fields upstream takes from arguments by another way than a call: the model's configuration hands these on.
HANDED_ON = {"MultiModalConfig": {"limit_per_prompt": "limit_mm_per_prompt"}}


def is_config(node):
    return any(ast.unparse(decorator).split("(")[0] in ("config", "dataclass") for decorator in node.decorator_list)


def field_names(tree, name):
    """The dataclass fields of a class, those of its bases first; values that only its constructor reads are none."""
    node, names = tree.classes[name], {}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in tree.classes:
            names.update(dict.fromkeys(field_names(tree, base.id)))
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign):
            text = ast.unparse(statement.annotation)
            if "ClassVar" not in text and "InitVar" not in text:
                names[statement.target.id] = None
    return list(names)


class Calls(ast.NodeVisitor):
    """The arguments behind each keyword of each call of a class."""

    def __init__(self, classes, arguments):
        self.classes, self.arguments, self.locals, self.found = classes, arguments, {}, {}

    def of(self, node):
        """The arguments that an expression reads, itself or by way of a local variable."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in self.classes:
            return set()  # its own fields say what they read
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            return {node.attr} & self.arguments
        if isinstance(node, ast.Name):
            return self.locals.get(node.id, set())
        return set().union(*map(self.of, ast.iter_child_nodes(node)))

    def visit_FunctionDef(self, node):
        self.locals = {}
        self.generic_visit(node)

    def visit_Assign(self, node):
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.locals.setdefault(target.id, set()).update(self.of(node.value))

    def visit_Call(self, node):
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in self.classes:
            for keyword in node.keywords:
                if keyword.arg is not None:
                    self.found.setdefault((node.func.id, keyword.arg), set()).update(self.of(keyword.value))


def config_classes(tree, nested, keys):
    """Every configuration class with its fields and, for each, the keys of the settings that state it."""
    names = [
        node.name
        for path in sorted((tree.root / "config").glob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and is_config(node)
    ]
    calls = Calls(set(names), set(tree.fields("AsyncEngineArgs")))
    calls.visit(ast.parse((tree.root / "engine/arg_utils.py").read_text()))

    def stated(owner, field):
        by = [f"{prefix}.{field}" for prefix, name in nested.items() if name == owner]
        by += sorted(calls.found.get((owner, field), ()))
        if owner in HANDED_ON:
            by.append(HANDED_ON[owner].get(field, field))
        return [key for key in by if key in keys]

    return [{"class": name, "fields": [[field, stated(name, field)] for field in field_names(tree, name)]} for name in names]
