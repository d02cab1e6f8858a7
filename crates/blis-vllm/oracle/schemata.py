"""Many mutants in one binary: each a branch that an environment variable takes, so that one build serves all of them.

cargo-mutants says what the mutants are; here every place that it would change becomes a choice among the code as it is and its
mutants. A mutant that cannot be put so, or does not compile so, is answered as not expressed, and is the caller's to judge.
Needs the packages tree-sitter and tree-sitter-rust.
"""

import json
import os
import re
import resource
import subprocess
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

import tree_sitter
import tree_sitter_rust

PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_rust.language()))
LIBRARY = "crates/blis-vllm/src/lib.rs"
CHOICE = """
pub fn mutant() -> u32 {
    static CHOSEN: std::sync::LazyLock<u32> =
        std::sync::LazyLock::new(|| std::env::var("MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(0));
    *CHOSEN
}
"""
# A mutant that loops for ever or fills the memory is noticed by these; the short replay takes one second, all of it four.
QUICK_S = 6
THOROUGH_S = 30
# Where a compiler's complaint lies between these two, it is about that mutant.
MARKS = re.compile(rb"/\*([BE])(\d+)\*/")
MEMORY = 4 << 30


class File:
    """A source file and the mutants of it, by identifier."""

    def __init__(self, text: bytes):
        self.text = text
        self.root = PARSER.parse(text).root_node
        self.starts = [0]
        for line in text.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)
        self.nodes = list(walk(self.root))

    def offset(self, place: dict) -> int:
        start = self.starts[place["line"] - 1]
        line = self.text[start : self.starts[place["line"]]].decode()
        return start + len(line[: place["column"] - 1].encode())

    def node(self, mutant: dict):
        """The piece of syntax that a mutant replaces, or none that can be put as a choice."""
        first, last = (self.offset(mutant["span"][end]) for end in ("start", "end"))
        genre = mutant["genre"]
        if genre == "BinaryOperator":
            return next((node for node in self.nodes if is_operation(node, first, last)), None)
        if genre == "UnaryOperator":
            return next((node for node in self.nodes if node.type == "unary_expression" and node.start_byte == first), None)
        if genre == "MatchArmGuard":
            return next((node for node in self.nodes if (node.start_byte, node.end_byte) == (first, last)), None)
        if genre == "FnValue" and "iter::" not in mutant["replacement"]:
            bodies = [node.child_by_field_name("body") for node in self.nodes if node.type == "function_item"]
            around = [body for body in bodies if body and body.start_byte < first and last <= body.end_byte - 1]
            return max(around, key=lambda body: body.start_byte, default=None)
        return None

    def rewritten(self, mutants: dict[int, dict]) -> bytes:
        at = {}
        for number, mutant in mutants.items():
            node = self.node(mutant)
            at.setdefault((node.start_byte, node.end_byte, node.type), []).append((number, mutant))
        text = self.text[: self.root.start_byte] + self.render(self.root, at) + self.text[self.root.end_byte :]
        return re.sub(rb"\bconst fn\b", b"fn", text)

    def plain(self, node, at: dict) -> bytes:
        if not node.children:
            return self.text[node.start_byte : node.end_byte]
        parts, position = [], node.start_byte
        for child in node.children:
            parts += [self.text[position : child.start_byte], self.render(child, at)]
            position = child.end_byte
        return b"".join([*parts, self.text[position : node.end_byte]])

    def render(self, node, at: dict) -> bytes:
        here = at.get((node.start_byte, node.end_byte, node.type), [])
        as_it_is = self.plain(node, at)
        if not here:
            return as_it_is
        if node.type == "block":
            returns = b"".join(
                b" if crate::mutant() == %d { /*B%d*/ return %s; /*E%d*/ }" % (number, number, value_of(mutant), number)
                for number, mutant in here
            )
            return b"{" + returns + as_it_is[1:]
        arms = b"".join(
            b"%d => (/*B%d*/%s/*E%d*/), " % (number, number, self.mutated(node, mutant, at), number) for number, mutant in here
        )
        return b"(match crate::mutant() { %s_ => (%s) })" % (arms, as_it_is)

    def mutated(self, node, mutant: dict, at: dict) -> bytes:
        if mutant["genre"] == "BinaryOperator":
            sides = [self.render(node.child_by_field_name(side), at) for side in ("left", "right")]
            return sides[0] + b" " + mutant["replacement"].encode() + b" " + sides[1]
        if mutant["genre"] == "UnaryOperator":
            return self.render(node.children[-1], at)
        return mutant["replacement"].encode()


def walk(node):
    yield node
    for child in node.children:
        yield from walk(child)


def is_operation(node, first: int, last: int) -> bool:
    if node.type not in ("binary_expression", "compound_assignment_expr"):
        return False
    operator = node.child_by_field_name("operator")
    return (operator.start_byte, operator.end_byte) == (first, last) and not binds(node)


def binds(node) -> bool:
    """Whether names are bound on the way through a condition: it can only be written as it is."""
    inside = (child for child in node.children if child.type not in ("block", "closure_expression"))
    return node.type == "let_condition" or any(map(binds, inside))


def value_of(mutant: dict) -> bytes:
    return b"" if mutant["replacement"] == "()" else mutant["replacement"].encode()


class Binary:
    """The test binaries with all mutants that can be expressed; `numbers` says which those are."""

    def __init__(self, source: Path, work: Path, mutants: list[dict]):
        self.work = work
        files = {name: File((source / name).read_bytes()) for name in {mutant["file"] for mutant in mutants}}
        places = dict(enumerate((mutant for mutant in mutants if files[mutant["file"]].node(mutant)), 1))
        (work / LIBRARY).write_text((source / LIBRARY).read_text() + CHOICE)
        while True:
            for name, file in files.items():
                (work / name).write_bytes(file.rewritten({number: place for number, place in places.items() if place["file"] == name}))
            wrong = self.complaints()
            if not wrong:
                break
            places = {number: place for number, place in places.items() if number not in wrong}
        self.numbers = {place["name"]: number for number, place in places.items()}
        self.library, self.replay = self.built()

    def cargo(self, *arguments: str) -> list[dict]:
        environment = {**os.environ, "CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_PROFILE_DEV_OPT_LEVEL": "1", "RUSTFLAGS": "--cap-lints=allow"}
        command = ["cargo", *arguments, "-p", "blis-vllm", "--message-format=json"]
        run = subprocess.run(command, cwd=self.work, env=environment, capture_output=True, text=True)
        return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]

    def complaints(self) -> set[int]:
        errors = [row["message"] for row in self.cargo("check", "--lib") if row.get("message", {}).get("level") == "error"]
        wrong = {self.blamed(error) for error in errors if error["spans"]}
        if None in wrong:
            raise SystemExit("\n".join(error["rendered"] for error in errors if error["spans"] and self.blamed(error) is None))
        return wrong

    def blamed(self, error: dict) -> int | None:
        for span in sorted(error["spans"], key=lambda span: not span["is_primary"]):
            path = self.work / span["file_name"]
            around = []
            for mark in MARKS.finditer(path.read_bytes() if path.exists() else b""):
                if mark.start() >= span["byte_end"]:
                    break
                if mark[1] == b"B":
                    around.append(int(mark[2]))
                else:
                    around.remove(int(mark[2]))
            if around:
                return around[-1]
        return None

    def built(self) -> tuple[str, str]:
        rows = self.cargo("test", "--no-run", "--lib", "--test", "it")
        found = {row["target"]["kind"][0]: row["executable"] for row in rows if row.get("executable")}
        if not {"lib", "test"} <= set(found):
            raise SystemExit("\n".join(row["message"]["rendered"] for row in rows if row.get("message", {}).get("level") == "error"))
        return found["lib"], found["test"]

    def notices(self, name: str | None, binary: str, filters: list[str], seconds: int) -> bool:
        number = self.numbers[name] if name else 0
        environment = {**os.environ, "MUTANT": str(number), "RUST_BACKTRACE": "0"}
        command = [binary, *filters]
        folder = self.work / "crates/blis-vllm"
        bounds = partial(bounded, seconds)
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, preexec_fn=bounds).returncode != 0

    def judge(self, name: str | None, quick: list[str], thorough: list[str]) -> str:
        judges = [(self.replay, quick, QUICK_S), (self.library, thorough, THOROUGH_S), (self.replay, thorough, THOROUGH_S)]
        noticed = any(self.notices(name, *judge) for judge in judges)
        return "CaughtMutant" if noticed else "MissedMutant"

    def judge_all(self, quick: list[str], thorough: list[str]):
        """What comes of each mutant, as it becomes known."""
        if self.judge(None, quick, thorough) == "CaughtMutant":
            raise SystemExit("the tests fail with no mutant chosen")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            judged = {pool.submit(self.judge, name, quick, thorough): name for name in self.numbers}
            for future in as_completed(judged):
                yield judged[future], future.result()


def bounded(seconds: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
