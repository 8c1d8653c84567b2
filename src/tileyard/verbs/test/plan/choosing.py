"""Selects the cases of a suite that run: by policy, lists, and the options of the command line.

What needs more than the suite itself comes later: a time budget, shards, and cases that are already proven.
"""

import ast
import datetime
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NoReturn

from tileyard.base.errors import UsageError
from tileyard.base.model import KernelWork
from tileyard.base.quarantine import find_idle, find_quarantined, fits
from tileyard.base.wording import count_of, name_some
from tileyard.ir.dtypes import DTYPES
from tileyard.verbs.test.options import Wish
from tileyard.verbs.test.result.result import LeftOut, Policy, Selection, Suite, SuiteCase

_WORD = re.compile(r"[^\s()]+")
_OPERATORS = ("and", "or", "not")
Cases = frozenset[str]
_NAMES = {
    "half": "float16",
    "float": "float32",
    "single": "float32",
    "double": "float64",
    "int": "int32",
    "bool_": "bool",
    "boolean": "bool",
    "pred": "bool",
    "e4m3": "float8_e4m3fn",
    "e4m3fn": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "float8_e4m3": "float8_e4m3fn",
}
_SHORT = re.compile(r"(bf|fp|f|i|s|u|uint|int|float)(\d+)(?:_t)?")
_LONG = {"bf": "bfloat", "fp": "float", "f": "float", "i": "int", "s": "int", "u": "uint"}
BUILT_IN = {
    "full": Policy(name="full", select="full"),
    "smoke": Policy(name="smoke", select="smoke"),
}
LISTED = 8
"""Names that a note lists before it counts the others."""
BY_SKIP = "left out by --skip"
NEAREST = 3
WILD = re.compile(r"[*?]|\[[^]]*\]")
"""The characters of a glob that a name does not have."""
MANY = 5000
"""With more names than this, the search for the nearest ones takes too long."""
Stand = tuple[str, str]
"""A family and a class of dtypes."""


def is_expression(text: str) -> bool:
    """Whether a text is more than the name of cases, which contains no blanks."""
    return bool(re.search(r"\s", text.strip()))


def select(text: str, every: Cases, find: Callable[[str], Cases]) -> Cases:
    """The cases of ``every`` that an expression selects; ``find`` gives a text's. Raises UsageError."""
    words = [word for word in _WORD.findall(text) if word not in _OPERATORS]
    numbers: Iterator[int] = iter(range(len(words)))
    # Python's own parser reads it, with a name for each text, because texts may contain what it cannot read.
    plain = _WORD.sub(lambda one: one[0] if one[0] in _OPERATORS else f"_{next(numbers)}", text)
    try:
        return _evaluate(ast.parse(plain.strip(), mode="eval").body, every, words, find)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise UsageError(
            f"{text!r} is not an expression of names with and, or, not",
            "for example 'rows and not (f16 or slow)'",
        ) from None


def _evaluate(
    node: ast.expr, every: Cases, words: list[str], find: Callable[[str], Cases]
) -> Cases:
    """The cases of a part of an expression. Raises ValueError if it is not such a part."""
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return every.intersection(*(_evaluate(one, every, words, find) for one in values))
        case ast.BoolOp(values=values):
            return Cases().union(*(_evaluate(one, every, words, find) for one in values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return every - _evaluate(operand, every, words, find)
        case ast.Name(id=name):
            return find(words[int(name[1:])])
        case _:
            raise ValueError(ast.dump(node))


def canonical_dtype(text: str) -> str:
    """The canonical name of a type: ``float16`` for ``fp16``, ``half``, ``np.float16``; empty if unknown."""
    name = text.strip().lower().rpartition(".")[2]
    name = name.removeprefix("fp8_") if name.startswith("fp8_e") else name
    name = _NAMES.get(name, name)
    short = _SHORT.fullmatch(name)
    if short is not None:
        name = _LONG.get(short[1], short[1]) + short[2]
    return name if name in DTYPES else ""


def dtype_class(text: str) -> str:
    """``float``, ``half``, ``fp8``, ``int`` or ``bool``; an unknown name is its own class."""
    name = canonical_dtype(text)
    if not name:
        return "fp8" if re.match(r"(fp|f|float)8", text.lower()) else text
    dtype = DTYPES[name]
    if dtype.is_float:
        return {8: "fp8", 16: "half"}.get(dtype.bits, "float")
    return "int" if dtype.is_integer else "bool"


def choose(
    suite: Suite, wish: Wish, today: datetime.date, expected_s: Mapping[str, float]
) -> Selection:
    """The cases that run, and for the others the reason, in suite order. ``expected_s`` are known expected
    times by id. Raises UsageError if a text selects no case, or nothing is left.
    """
    policy = find_policy(suite, wish.policy)
    sieve = _Sieve(suite.cases)
    _follow_lists(suite, sieve)
    meant = _follow_wish(suite, wish, sieve)
    if wish.rerun is None:  # all that failed before is asked for
        _follow_policy(policy, sieve, expected_s, frozenset(wish.select))
    if not sieve.rest:
        _refuse_nothing(suite, wish, meant, sieve)
    chosen = tuple(sieve.rest)
    quarantined, notes = find_quarantined(
        suite.quarantine,
        [case.id for case in chosen],
        today,
        others={case.id: case.plain_id for case in chosen} if suite.parameters else {},
    )
    asked = [case for case in suite.cases if case.id in meant]
    asked = [c for c in asked if not sieve.reasons.get(c.id, "").startswith(BY_SKIP)]
    uncovered = find_uncovered(asked, chosen)
    return Selection(
        policy=policy.name,
        cases=chosen,
        left_out=tuple(
            LeftOut(case=case.id, reason=sieve.reasons[case.id])
            for case in suite.cases
            if case.id in sieve.reasons
        ),
        uncovered=uncovered,
        quarantined=quarantined,
        notes=(
            *notes,
            *_tell_of_excluded(suite, policy, sieve),
            *_tell_of_unmarked(suite, policy, wish, sieve),
            *_tell_of_coverage(suite, wish, uncovered, expected_s),
            *_tell_of_idle_rules(suite),
            *_tell_of_lost(suite, wish),
        ),
    )


def find_policy(suite: Suite, name: str) -> Policy:
    """The policy of that name: the suite's own, else a built-in one. Raises UsageError."""
    policies = {**BUILT_IN, **suite.policies}
    if name not in policies:
        near = get_close_matches(name, policies, n=1)
        listed = f"there are {', '.join(policies)}"
        raise UsageError(
            f"{suite.path}: there is no policy {name!r}",
            f"did you mean {near[0]!r}? {listed}" if near else listed,
        )
    return policies[name]


def find_uncovered(cases: Iterable[SuiteCase], kept: Iterable[SuiteCase]) -> tuple[str, ...]:
    """The families of some cases of which none is kept, in the order of the cases."""
    covered = {case.family for case in kept}
    return tuple(dict.fromkeys(case.family for case in cases if case.family not in covered))


def find_covering(
    suite: Suite, families: Sequence[str], expected_s: Mapping[str, float]
) -> dict[str, tuple[str, ...]]:
    """For each of these families the policies that run some of it, ignoring budgets."""
    found: dict[str, list[str]] = {family: [] for family in families}
    # The cases that a policy takes of a family depend on no other family.
    cases = [case for case in suite.cases if case.family in found]
    for policy in {**BUILT_IN, **suite.policies}.values():
        sieve = _Sieve(cases)
        _follow_lists(suite, sieve)
        _follow_policy(policy, sieve, expected_s)
        for family in {case.family for case in sieve.rest}:
            found[family].append(policy.name)
    return {family: tuple(names) for family, names in found.items()}


class _Sieve:
    """Cases that may still run, and the reasons of those that may not."""

    def __init__(self, cases: Sequence[SuiteCase]) -> None:
        self.rest = list(cases)
        self.reasons: dict[str, str] = {}

    def drop(self, reasons: dict[str, str]) -> None:
        """Leave cases out, each for its reason."""
        self.reasons.update(reasons)
        self.rest = [case for case in self.rest if case.id not in reasons]


def _follow_lists(suite: Suite, sieve: _Sieve) -> None:
    if suite.allow:
        allowed = [rule.cases for rule in suite.allow]
        sieve.drop(
            {
                case.id: "not on the allow list"
                for case in sieve.rest
                if not any(fits_case(glob, case) for glob in allowed)
            }
        )
    for rule in suite.skip:
        sieve.drop(
            {
                case.id: f"on the skip list: {rule.reason}"
                for case in sieve.rest
                if fits_case(rule.cases, case)
            }
        )


def _follow_wish(suite: Suite, wish: Wish, sieve: _Sieve) -> frozenset[str]:
    """Leave out what was not requested; returns the ids of everything requested. Raises UsageError."""
    meant = frozenset(case.id for case in suite.cases)
    if wish.select:
        meant = frozenset().union(
            *(_find_asked(suite, f"--select {text}", text) for text in wish.select)
        )
        reason = f"not selected by --select {' '.join(wish.select)}"
        sieve.drop({case.id: reason for case in sieve.rest if case.id not in meant})
    for text in wish.skip:
        asked = f"--skip {text}"
        skipped = _find_asked(suite, asked, text)
        reason = f"{BY_SKIP} {text}"
        sieve.drop({case.id: reason for case in sieve.rest if case.id in skipped})
    if wish.rerun is not None:
        meant = meant.intersection(wish.rerun)
        reason = "did not fail in the run that is repeated"
        sieve.drop({case.id: reason for case in sieve.rest if case.id not in meant})
    return meant


def _find_asked(suite: Suite, asked: str, text: str) -> frozenset[str]:
    """The cases that an option selects, at least one per text of an expression. Raises UsageError."""
    is_joined = is_expression(text) and not _find_named(text, suite.cases)
    if is_joined:
        every = frozenset(case.id for case in suite.cases)
        meant = select(text, every, lambda word: _find_asked(suite, f"{word} in {asked}", word))
    else:
        meant = find_meant(text, suite.cases)
    if not meant:
        near = () if is_joined else nearest(text, suite.cases)
        raise UsageError(
            f"{suite.path}: {asked} matches none of its {count_of(len(suite.cases), 'case')}",
            f"did you mean {' or '.join(near)}?" if near else "",
        )
    return meant


def _follow_policy(
    policy: Policy,
    sieve: _Sieve,
    expected_s: Mapping[str, float],
    named: frozenset[str] = frozenset(),
) -> None:
    """Leave out what the policy does not select. ``named`` are texts that were requested besides it."""
    if policy.cases:
        reason = f"policy {policy.name} takes only cases like {', '.join(policy.cases)}"
        sieve.drop(
            {
                case.id: reason
                for case in sieve.rest
                if not any(is_about(text, case) for text in policy.cases)
            }
        )
    for text in policy.exclude:
        reason = f"policy {policy.name} excludes {text}"
        sieve.drop({case.id: reason for case in sieve.rest if is_about(text, case)})
    for rule in policy.skip:
        reason = f"on the skip list of policy {policy.name}: {rule.reason}"
        sieve.drop({case.id: reason for case in sieve.rest if is_about(rule.cases, case)})
    if policy.tags:
        reason = f"policy {policy.name} takes only cases tagged {', '.join(policy.tags)}"
        wanted = frozenset(policy.tags)
        sieve.drop({case.id: reason for case in sieve.rest if not wanted.intersection(case.tags)})
    if policy.select == "full":
        reason = "a case of smoke runs only"
        hidden = (
            case.id
            for case in sieve.rest
            if case.only_smoke and named.isdisjoint((case.id, case.plain_id))
        )
        sieve.drop(dict.fromkeys(hidden, reason))
    if policy.select == "declared":
        reason = f"policy {policy.name} takes only cases that are declared as smoke"
        sieve.drop({case.id: reason for case in sieve.rest if not case.smoke})
    if policy.select == "smoke":
        stands = choose_smoke(sieve.rest, expected_s)
        sieve.drop(
            {
                case.id: f"policy {policy.name} runs another case of its family:"
                f" {stands[stand_of(case)][0]}"
                for case in sieve.rest
                if case.id not in stands[stand_of(case)]
            }
        )


def _refuse_nothing(suite: Suite, wish: Wish, meant: frozenset[str], sieve: _Sieve) -> NoReturn:
    """Report why nothing runs: nothing was requested, or all of it is left out."""
    asked = [f"policy {wish.policy}", *(f"--select {text}" for text in wish.select)]
    asked += [f"--skip {text}" for text in wish.skip]
    if wish.rerun is not None:
        asked.append(f"{count_of(len(wish.rerun), 'case')} that failed")
    first = next((case.id for case in suite.cases if case.id in meant), "")
    if wish.rerun == ():
        why = "nothing failed in the run that is repeated"
    elif not first:
        why = "none of them is in the suite"
    elif len(meant) == 1:
        why = f"{first}: {sieve.reasons[first]}"
    else:
        why = f"all {len(meant)} cases are left out; {first}: {sieve.reasons[first]}"
    raise UsageError(f"{suite.path}: nothing to run for {', '.join(asked)}: {why}")


def _tell_of_excluded(suite: Suite, policy: Policy, sieve: _Sieve) -> Iterator[str]:
    """Report how many cases a policy excludes, and of which families: whole ones first, then parts."""
    begin = f"policy {policy.name} excludes"
    out = [case for case in suite.cases if sieve.reasons.get(case.id, "").startswith(begin)]
    if not out:
        return
    wholes = Counter(case.family for case in suite.cases)
    parts = Counter(case.family for case in out)
    shown = [family for family in parts if parts[family] == wholes[family]]
    shown += [f"{f} ({n} of {wholes[f]})" for f, n in parts.items() if n < wholes[f]]
    yield f"{begin} {count_of(len(out), 'case')}: {name_some(shown, LISTED)}"


def _tell_of_unmarked(suite: Suite, policy: Policy, wish: Wish, sieve: _Sieve) -> Iterator[str]:
    """Report that a smoke run is as large as a full one; nothing about cases requested by name."""
    if policy.select != "smoke" or wish.select or wish.rerun is not None or len(sieve.rest) < 2:
        return
    begin = f"policy {policy.name} "
    is_smaller = any(reason.startswith(begin) for reason in sieve.reasons.values())
    if not is_smaller and not any(case.smoke for case in suite.cases):
        why = "no case says smoke = true, and each is alone in its family and class of dtypes"
        yield f"policy {policy.name} chooses nothing, so all {len(sieve.rest)} cases run: {why}"


def _tell_of_coverage(
    suite: Suite, wish: Wish, uncovered: Sequence[str], expected_s: Mapping[str, float]
) -> Iterator[str]:
    """Report which policies run what this one leaves out; nothing about cases requested by name."""
    if wish.select or wish.rerun is not None:
        return
    together: dict[tuple[str, ...], list[str]] = {}
    for family, policies in find_covering(suite, uncovered, expected_s).items():
        together.setdefault(policies, []).append(family)
    for policies, families in together.items():
        *others, last = policies or ("",)
        listed = f"policies {', '.join(others)} and {last}" if others else f"policy {last}"
        named = name_some(families, LISTED)
        yield (
            f"cases of {named} run only under the {listed}"
            if policies
            else f"no policy runs cases of {named}"
        )


def _tell_of_idle_rules(suite: Suite) -> Iterator[str]:
    """Name the entries of lists that match no case; those for another value of a parameter may."""
    cases = [case.id for case in suite.cases]
    if suite.parameters:
        cases += [case.plain_id for case in suite.cases]
        listed = [rule.cases for rule in (*suite.allow, *suite.skip)]
        listed += [entry.cases for entry in suite.quarantine]
        cases += [text for text in listed if "@" in text]
    yield from find_idle("allow", suite.allow, cases)
    yield from find_idle("skip", suite.skip, cases)
    yield from find_idle("quarantine", suite.quarantine, cases)


def _tell_of_lost(suite: Suite, wish: Wish) -> Iterator[str]:
    """Report how many of the cases to be run again no longer exist."""
    lost = frozenset(wish.rerun or ()).difference(case.id for case in suite.cases)
    if lost:
        yield f"{len(lost)} of the cases that failed are not in the suite any more: {min(lost)}" + (
            ", ..." if len(lost) > 1 else ""
        )


# ---- the smoke run --------------------------------------------------------------------------------


def choose_smoke(
    cases: Sequence[SuiteCase], expected_s: Mapping[str, float]
) -> dict[Stand, tuple[str, ...]]:
    """The ids that represent each family and class of dtypes: declared smoke cases, else the one with the
    shortest expected time, which unknown ones follow; of equal ones that with the least data, then the first.
    """
    members: dict[Stand, list[SuiteCase]] = {}
    for case in cases:
        members.setdefault(stand_of(case), []).append(case)
    return {
        stand: tuple(case.id for case in those if case.smoke)
        or (min(those, key=lambda case: (expected_s.get(case.id, math.inf), _size(case))).id,)
        for stand, those in members.items()
    }


def stand_of(case: SuiteCase) -> Stand:
    """The family and class of dtypes that a case represents."""
    return case.family or case.testcase, dtype_class(case.dtype)


def _size(case: SuiteCase) -> int:
    """Number of elements of its data; for a kernel, a number that grows with its sizes."""
    if isinstance(case.work, KernelWork):
        sizes = [
            value for value in case.work.arguments.values() if type(value) is int and value > 0
        ]
        return math.prod(sizes)
    return math.prod(case.shape)


# ---- which cases a text selects ----------------------------------------------------------------


def find_meant(text: str, cases: Sequence[SuiteCase]) -> frozenset[str]:
    """The ids that a text on the command line selects, by the first rule that matches any: that id alone; a
    testcase, family or tag; an expression of such texts; a glob of ids; a part of ids.
    """
    if named := _find_named(text, cases):
        return named
    if is_expression(text):
        every = frozenset(case.id for case in cases)
        return select(text, every, lambda word: find_meant(word, cases))
    like = frozenset(case.id for case in cases if fits_case(text, case))
    return like or frozenset(case.id for case in cases if text in case.id)


def _find_named(text: str, cases: Sequence[SuiteCase]) -> frozenset[str]:
    """The case of that id, otherwise all of a testcase, family or tag of that name."""
    exact = frozenset(case.id for case in cases if text in (case.id, case.plain_id))
    return exact or frozenset(
        case.id for case in cases if text in (case.testcase, case.family) or text in case.tags
    )


def is_about(text: str, case: SuiteCase) -> bool:
    """Whether a text of a policy selects a case: its testcase, family or tag, or a glob on its id."""
    return text in (case.testcase, case.family) or text in case.tags or fits_case(text, case)


def fits_case(glob: str, case: SuiteCase) -> bool:
    """Whether a glob matches a case, with or without the values of its suite's parameters in its name."""
    return fits(glob, case.id) or (case.id != case.plain_id and fits(glob, case.plain_id))


def nearest(text: str, cases: Sequence[SuiteCase]) -> tuple[str, ...]:
    """Names of the suite that are closest to a text, or a glob, that matches nothing."""
    text = WILD.sub("", text).strip("/") or text
    names: dict[str, None] = {}
    for case in cases:
        names.update(dict.fromkeys((case.testcase, case.family, *case.tags)))
    if len(cases) <= MANY:
        names.update(dict.fromkeys(case.id for case in cases))
    return tuple(get_close_matches(text, names, n=NEAREST, cutoff=0.5))
