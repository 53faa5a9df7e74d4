"""Label and field selectors: which objects a list, a watch or a controller means.

Both are read from the query string's form; label selectors also from the `matchLabels` and
`matchExpressions` of an object. All requirements of a selector must hold. Refusals carry the
messages of a kube-apiserver.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from livevirt.kube.objects import field_error, names
from livevirt.kube.objects.field_error import FieldError

__all__ = [
    "EVERYTHING",
    "NOTHING",
    "FieldRequirement",
    "FieldSelector",
    "LabelRequirement",
    "LabelSelector",
    "SelectorError",
    "escape_field_value",
    "label_selector",
    "parse_field_selector",
    "parse_label_selector",
]

EXISTS, MISSING = "exists", "!"
_BINARY_OPERATORS = ("in", "notin", "=", "==", "!=", "gt", "lt")
_WRITTEN = {"gt": ">", "lt": "<", "in": " in ", "notin": " notin "}
_READ = {">": "gt", "<": "lt"}
_EXPRESSION_OPERATORS = {
    "In": "in",
    "NotIn": "notin",
    "Exists": EXISTS,
    "DoesNotExist": MISSING,
}


class SelectorError(ValueError):
    """The selector cannot be understood; the message is Kubernetes' own."""


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One condition on a label: `in`, `notin`, `=`, `==`, `!=`, `gt`, `lt`, `exists` or `!`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels fulfils the requirement."""
        match self.operator:
            case "in" | "=" | "==":
                return labels.get(self.key) in self.values
            case "notin" | "!=":
                return labels.get(self.key) not in self.values
            case "exists":
                return self.key in labels
            case "!":
                return self.key not in labels
            case _:
                have, limit = _int64(labels.get(self.key, "")), _int64(self.values[0])
                if have is None or limit is None:
                    return False
                return have > limit if self.operator == "gt" else have < limit

    def __str__(self) -> str:
        if self.operator == MISSING:
            return f"!{self.key}"
        if self.operator == EXISTS:
            return self.key
        listed = ",".join(sorted(self.values))
        if self.operator in ("in", "notin"):
            listed = f"({listed})"
        return f"{self.key}{_WRITTEN.get(self.operator, self.operator)}{listed}"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements on labels, sorted by key; one that is not `selectable` matches nothing."""

    requirements: tuple[LabelRequirement, ...] = ()
    selectable: bool = True

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether an object with these labels is selected."""
        carried = labels or {}
        return self.selectable and all(each.matches(carried) for each in self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


EVERYTHING = LabelSelector()
NOTHING = LabelSelector(selectable=False)


def label_selector(selector: Mapping[str, Any] | None) -> LabelSelector:
    """The selector an object spells out: none at all selects nothing, an empty one everything."""
    if selector is None:
        return NOTHING
    wanted = [
        _label_requirement(key, "=", (value,))
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for expression in selector.get("matchExpressions") or ():
        operator = expression.get("operator", "")
        if operator not in _EXPRESSION_OPERATORS:
            quoted = field_error.quote(operator)
            raise SelectorError(f"{quoted} is not a valid label selector operator")
        wanted.append(
            _label_requirement(
                expression.get("key", ""),
                _EXPRESSION_OPERATORS[operator],
                tuple(expression.get("values") or ()),
            )
        )
    return _sorted_selector(wanted)


def parse_label_selector(text: str) -> LabelSelector:
    """The selector of a query string: `a=b,c!=d,e in (x,y),f notin (z),g,!h,n>3,m<5`."""
    return _sorted_selector(_LabelParser(text).requirements())


def _sorted_selector(requirements: Iterable[LabelRequirement]) -> LabelSelector:
    return LabelSelector(tuple(sorted(requirements, key=lambda each: each.key)))


def _label_requirement(key: str, operator: str, values: Sequence[str]) -> LabelRequirement:
    """The requirement, once its key and values are known to be ones a label can have."""
    found = _key_errors("key", key)
    if operator in ("in", "notin") and not values:
        found.append(
            field_error.invalid(
                "values", None, "for 'in', 'notin' operators, values set can't be empty"
            )
        )
    if operator in (EXISTS, MISSING) and values:
        found.append(
            field_error.invalid(
                "values", list(values), "values set must be empty for exists and does not exist"
            )
        )
    if operator in ("gt", "lt"):
        found += [
            field_error.invalid(
                f"values[{at}]", value, "for 'Gt', 'Lt' operators, the value must be an integer"
            )
            for at, value in enumerate(values)
            if _int64(value) is None
        ]
    for at, value in enumerate(values):
        if why := names.validate_label_value(value):
            found.append(field_error.invalid(f"values[{at}][{key}]", value, "; ".join(why)))
    if found:
        messages = list(dict.fromkeys(map(str, found)))
        raise SelectorError(messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]")
    return LabelRequirement(key, operator, tuple(values))


def _key_errors(path: str, key: str) -> list[FieldError]:
    why = names.validate_label_key(key)
    return [field_error.invalid(path, key, "; ".join(why))] if why else []


def _int64(text: str) -> int | None:
    if not re.fullmatch("[+-]?[0-9]{1,100}", text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


# A NUL ends the text where a token could start, and is skipped right after one.
_TOKEN = re.compile(
    r"[ \t\r\n]*"
    r"(?:(?P<symbol>==|!=|[=!(),<>])\0?|(?P<word>[^ \t\r\n=!(),<>\0]+)\0?|(?P<end>\0|\Z))"
)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    kind: str  # "symbol", "word" or "end"


class _LabelParser:
    """Reads requirements one token at a time; `in` and `notin` are words except as operators."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._ahead = next(self._tokens)

    def requirements(self) -> list[LabelRequirement]:
        found: list[LabelRequirement] = []
        if self._ahead.kind == "end":
            return found
        if not self._starts_requirement():
            _refuse(self._ahead, ", expected: !, identifier, or 'end of string'")
        while True:
            try:
                found.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            after = self._next()
            if after.kind == "end":
                return found
            if after.text != ",":
                _refuse(after, ", expected: ',' or 'end of string'")
            if not self._starts_requirement():
                _refuse(self._ahead, ", expected: identifier after ','")

    def _starts_requirement(self) -> bool:
        return self._ahead.kind == "word" or self._ahead.text == "!"

    def _requirement(self) -> LabelRequirement:
        token = self._next()
        negated = token.text == "!"
        if negated:
            token = self._next()
        if token.kind != "word":
            _refuse(token, ", expected: identifier")
        key = token.text
        for error in _key_errors("<nil>", key):
            raise SelectorError(str(error))
        if negated:
            return _label_requirement(key, MISSING, ())
        if self._at_end_of_requirement():
            return _label_requirement(key, EXISTS, ())
        token = self._next()
        operator = _READ.get(token.text, token.text)
        if operator not in _BINARY_OPERATORS or token.text in ("gt", "lt"):
            _refuse(token, f", expected: {', '.join(_BINARY_OPERATORS)}")
        values = self._set() if operator in ("in", "notin") else {self._value()}
        return _label_requirement(key, operator, sorted(values))

    def _value(self) -> str:
        if self._at_end_of_requirement():
            return ""
        token = self._next()
        if token.kind != "word":
            _refuse(token, ", expected: identifier")
        return token.text

    def _set(self) -> set[str]:
        token = self._next()
        if token.text != "(":
            _refuse(token, " expected: '('")
        if self._ahead.text == ")":
            self._next()
            return {""}
        if self._ahead.kind != "word" and self._ahead.text != ",":
            _refuse(self._ahead, ", expected: ',', ')' or identifier")
        values: set[str] = set()
        while True:
            token = self._next()
            if token.kind == "word":
                values.add(token.text)
                if self._ahead.text not in (",", ")"):
                    _refuse(self._ahead, ", expected: ',' or ')'")
            elif token.text == ",":
                if not values or self._ahead.text in (",", ")"):
                    values.add("")  # (,a) and (a,) and (a,,b) hold the empty value
            else:
                _refuse(token, ", expected: ',', or identifier")
            if self._ahead.text == ")":
                self._next()
                return values

    def _at_end_of_requirement(self) -> bool:
        return self._ahead.kind == "end" or self._ahead.text == ","

    def _next(self) -> _Token:
        token, self._ahead = self._ahead, next(self._tokens, _Token("", "end"))
        return token


def _refuse(token: _Token, instead: str) -> NoReturn:
    raise SelectorError(f"found '{token.text}'{instead}")


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while found := _TOKEN.match(text, at):
        kind = found.lastgroup or "end"
        yield _Token("" if kind == "end" else found[kind], kind)
        if kind == "end":
            return
        at = found.end()


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """One condition on the field at `path`: `operator` is `=` or `!=`."""

    path: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{self.path}{self.operator}{escape_field_value(self.value)}"


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Requirements on fields; which paths a kind has is for the caller to say."""

    requirements: tuple[FieldRequirement, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether an object with these fields is selected; a missing field is an empty one."""
        return all(
            (fields.get(each.path, "") == each.value) == (each.operator == "=")
            for each in self.requirements
        )

    def exact(self, path: str) -> str | None:
        """The one value the field must have, if there is such a requirement."""
        for each in self.requirements:
            if each.path == path and each.operator == "=":
                return each.value
        return None

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


_FIELD_TERM = re.compile(r"(?:[^\\,]|\\.|\\\Z)*", re.DOTALL)
_FIELD_OPERATOR = re.compile("!=|==|=")
_FIELD_ESCAPE = re.compile(r"\\(.?)|[,=]", re.DOTALL)


def parse_field_selector(text: str) -> FieldSelector:
    """The selector of a query string: `metadata.name=a,spec.nodeName!=b`."""
    found = []
    for term in sorted(filter(None, _FIELD_TERM.findall(text))):
        operator = _FIELD_OPERATOR.search(term)
        if operator is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        path, value = term[: operator.start()], _unescape(term[operator.end() :])
        if path or value:
            sign = "!=" if operator[0] == "!=" else "="
            found.append(FieldRequirement(path, sign, value))
    return FieldSelector(tuple(found))


def escape_field_value(value: str) -> str:
    """The value as it must be written in a field selector: `,` `=` and the backslash escaped."""
    return re.sub(r"[\\,=]", r"\\\g<0>", value)


def _unescape(value: str) -> str:
    return _FIELD_ESCAPE.sub(_unescaped, value)


def _unescaped(found: re.Match[str]) -> str:
    sequence = found[0]
    if not sequence.startswith("\\"):
        raise SelectorError(
            f"invalid field selector: unescaped character in value: {ord(sequence)}"
        )
    if found[1] not in ("\\", ",", "="):
        raise SelectorError(f"invalid field selector: invalid escape sequence: {sequence}")
    return found[1]
