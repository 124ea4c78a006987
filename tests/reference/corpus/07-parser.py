import re
from dataclasses import dataclass
from typing import NamedTuple

TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d+)?)|([A-Za-z_]\w*)|(.))")


class Token(NamedTuple):
    kind: str
    text: str
    position: int


@dataclass
class Number:
    value: float


@dataclass
class Name:
    name: str


@dataclass
class Binary:
    operator: str
    left: "Node"
    right: "Node"


Node = Number | Name | Binary
PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "^": 3}


def tokens(text: str) -> list[Token]:
    found = []
    for match in TOKEN.finditer(text.rstrip()):
        number, name, other = match.groups()
        if number is not None:
            found.append(Token("number", number, match.start(1)))
        elif name is not None:
            found.append(Token("name", name, match.start(2)))
        else:
            found.append(Token("operator", other, match.start(3)))
    found.append(Token("end", "", len(text)))
    return found


class Parser:
    """Precedence climbing: each call handles operators that bind at least as tightly as `minimum`."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.index = 0

    def take(self) -> Token:
        token = self.tokens[self.index]
        self.index += 1
        return token

    def expression(self, minimum: int = 1) -> Node:
        left = self.atom()
        while (operator := self.tokens[self.index].text) in PRECEDENCE and PRECEDENCE[operator] >= minimum:
            self.take()
            tighter = PRECEDENCE[operator] + (0 if operator == "^" else 1)
            left = Binary(operator, left, self.expression(tighter))
        return left

    def atom(self) -> Node:
        token = self.take()
        if token.kind == "number":
            return Number(float(token.text))
        if token.kind == "name":
            return Name(token.text)
        if token.text == "(":
            inside = self.expression()
            closing = self.take()
            if closing.text != ")":
                raise SyntaxError(f"expected ')' at {closing.position}, found {closing.text!r}")
            return inside
        raise SyntaxError(f"unexpected {token.text!r} at {token.position}")


def evaluate(node: Node, names: dict[str, float]) -> float:
    match node:
        case Number(value):
            return value
        case Name(name):
            return names[name]
        case Binary("+", left, right):
            return evaluate(left, names) + evaluate(right, names)
        case Binary("-", left, right):
            return evaluate(left, names) - evaluate(right, names)
        case Binary("*", left, right):
            return evaluate(left, names) * evaluate(right, names)
        case Binary("/", left, right):
            return evaluate(left, names) / evaluate(right, names)
        case Binary("^", left, right):
            return evaluate(left, names) ** evaluate(right, names)
    raise TypeError(f"not a node: {node!r}")


assert evaluate(Parser("2 * (x + 3) ^ 2 - 1").expression(), {"x": 1.0}) == 31.0

