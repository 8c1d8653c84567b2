"""Runs a user's code: calls by the names of parameters, and errors as one line and a short
traceback. The origin of objects and files separates the user's own code from installed packages.
"""

import ast
import contextlib
import functools
import importlib.metadata
import importlib.util
import inspect
import linecache
import re
import sys
import textwrap
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tileyard.artifacts.objects import digest_bytes
from tileyard.base.errors import TileyardError, UsageError, UserCodeError
from tileyard.base.wording import name_line, show_value
from tileyard.frontend.reads import is_installed, is_own

WORDS_LENGTH = 160
"""Most characters of the compiler's own words."""
CODE_LENGTH = 80
"""Most characters of the user's line that are quoted."""
_SEES_NO_VALUE = (
    "Python cannot decide on a value that is known only when the kernel runs: use T.if_then_else, "
    "T.min, T.max, &, |"
)
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.DOTALL), sentence)
    for pattern, sentence in (
        (r"Literal value (\S+) exceeds \w+ of (\w+)", r"\1 is not a value of \2"),
        (
            r"Expected integer argument as \w+ of (\S+) operator[^,]*, but received (.+?) of type (\w+)",
            r"\1 takes integers, and \2 is \3",
        ),
        (
            r"dtype\(\)\.is_u?int\(\).*? is false: *(\S[^\n]*)",
            r"this takes integers, and \1 is no integer",
        ),
        (
            r"dtype\(\)\.is_bool\(\)\) is false",
            "`and`, `or` and `not` take conditions, and an operand is a number",
        ),
        (r"StructuralEqual check failed", "the shapes of the two sides differ"),
        (r"Divide by zero|pb->value != 0", "division by zero"),
        (
            r"multiple types of integer divisions",
            "/ of integers is ambiguous: write //, or convert to a float first",
        ),
        (r"Cannot use and / or / not operator|cannot use and / or / not", _SEES_NO_VALUE),
        (
            r"T\.gemm (\w+) shape check failed: \w+ = (\d+), \w+ = (\d+)",
            r"the operands of T.gemm differ in \1: \2 and \3",
        ),
        (r"Operator (\S+) is not registered", r"there is no operation \1"),
        (
            r"Mismatched type on argument #(\d+) when calling.*?Expected `(.+?)` but got `(.+?)`",
            r"an argument has the wrong type: \3 in place of \2",
        ),
        (
            r"Layout infer conflict between (\w+) and (\w+)",
            r"\1 and \2 lie on different threads: let one of them pass through shared memory",
        ),
        (
            r"no available layout found",
            "no layout over the threads fits all tiles of a T.Parallel loop: "
            "index its fragments by the loop's own variables",
        ),
        (
            r"it->second\.indices, indices\)\) is false: (\w+): ([^\n]+) and ([^\n]+)",
            r"a T.Parallel loop uses the fragment \1 at \2 and at \3, and each iteration may use one place",
        ),
        (r"Check failed: .*? is false: *([A-Z][^\n]* [^\n]*)", r"\1"),
        (r"^(?:In|in) T\.Parallel loop:\s*(\S[^\n]*)", r"a T.Parallel loop is refused: \1"),
    )
)
"""Patterns of texts that TileLang 0.1.15 and its TVM raise, with what they say in a user's terms."""
_RAW = re.compile(
    r"Check failed|ICHECK|Internal|StructuralEqual|Mismatched type|is false\b|\bTVM\b"
    r"|and / or / not|shape check failed"
    r"|Layout infer|::|->|^\s*$|in T\.Parallel loop:\s*$"
)
"""Signs of a text that is about the compiler's own code."""
PYTHON = f"python {sys.version_info.major}.{sys.version_info.minor}"
"""The language version that bytecode is for."""
_SHY_MODULES = ("torch", "numpy")
"""Modules with functions that do not state their origin."""
_NO_PYTHON = frozenset({".cc", ".cpp", ".h", ".pxi", ".pyx"})
"""Suffixes of library sources whose frames appear in tracebacks, with paths that only their authors have."""
_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def find_sentence(text: str) -> str:
    """What a compiler's text says in a user's terms; empty if it says so itself, or is not known."""
    for pattern, sentence in _RULES:
        found = pattern.search(text)
        if found is not None:
            return " ".join(found.expand(sentence).split())
    return ""


def explain_refusal(text: str, file: str = "", line: int = 0) -> str:
    """The sentence for what TileLang raised at a user's line; empty if unknown, or it says so itself."""
    said, code = find_sentence(text), quote_line(file, line)
    if said:
        return f"{said}, in {code}" if code else said
    return (
        f"TileLang does not take {code or 'this kernel'}" if _RAW.search(first_line(text)) else ""
    )


def first_line(text: str) -> str:
    """The first line of a text that is not empty, cut short."""
    first = next((one for one in text.splitlines() if one.strip()), "")
    return textwrap.shorten(first, WORDS_LENGTH, placeholder=" ...")


def quote_line(file: str, line: int) -> str:
    """The code of a line between backticks; empty if it is not known."""
    code = linecache.getline(file, line).strip() if file else ""
    return f"`{textwrap.shorten(code, CODE_LENGTH, placeholder=' ...')}`" if code else ""


def explain_assertion(file: str, line: int, values: Mapping[str, object]) -> str:
    """What a failed assertion without a message asserts, with the values of its names."""
    code = linecache.getline(file, line).strip()
    try:
        (statement,) = ast.parse(code).body
    except (SyntaxError, ValueError):
        statement = None
    if not isinstance(statement, ast.Assert):
        return f"an assertion fails, in {quote_line(file, line)}" if code else "an assertion fails"
    names = [node.id for node in ast.walk(statement.test) if isinstance(node, ast.Name)]
    known = {
        name: values[name] for name in names if isinstance(values.get(name), int | float | str)
    }
    where = ", ".join(f"{name} = {show_value(value)}" for name, value in known.items())
    asserted = f"`{ast.unparse(statement.test)}` does not hold"
    return f"{asserted}, where {where}" if where else asserted


def is_compilers(file: str) -> bool:
    """Whether a source file is TileLang's or TVM's, as far as these are imported."""
    homes = (getattr(sys.modules.get(name), "__file__", None) for name in ("tilelang", "tvm"))
    return any(home and file.startswith(f"{home.rpartition('/')[0]}/") for home in homes)


def own_name(value: object) -> tuple[str, str]:
    """The module and name under which an object can be found again; empty if it cannot. A function
    has its code's name, because ``functools.wraps`` gives it another's.
    """
    if isinstance(value, types.FunctionType):
        home: object = value.__globals__.get("__name__")
        names: list[object] = [value.__code__.co_qualname]
    else:
        home = getattr(value, "__module__", None)
        names = [getattr(value, attribute, None) for attribute in ("__qualname__", "__name__")]
    for module in (
        (home, *_SHY_MODULES) if isinstance(value, types.BuiltinFunctionType) else (home,)
    ):
        for name in names:
            if not isinstance(module, str) or not isinstance(name, str) or "<" in name:
                continue
            # A library's class or function may be hidden by another object of its name.
            if isinstance(value, (type, types.FunctionType)) or _look_up(module, name) is value:
                return module, name
    return "", ""


def _look_up(module: str, qualname: str) -> object:
    found: object = None
    if module in sys.modules:
        first, *rest = qualname.split(".")
        found = vars(sys.modules[module]).get(first)
        for part in rest:
            found = getattr(found, part, None)
    return found


def defining_module(value: object) -> types.ModuleType | None:
    """The loaded module in which a function or class was defined, if it states one."""
    name = getattr(value, "__module__", None)
    return sys.modules.get(name) if isinstance(name, str) else None


def digest_source(file: Path) -> str:
    """The digest of a source file, comments and formatting ignored; of any other file byte for byte."""
    data = file.read_bytes()
    if file.suffix == ".py":
        with contextlib.suppress(SyntaxError):
            data = ast.dump(ast.parse(data)).encode()
    return digest_bytes(data)


def installed_version(module: str) -> str | None:
    """The version of the installed package that contains a module; None for the user's own."""
    return _package_version(module.partition(".")[0])


@functools.cache
def _package_version(top: str) -> str | None:
    if top in sys.stdlib_module_names:
        return PYTHON
    module = sys.modules.get(top)
    spec = module.__spec__ if module is not None else importlib.util.find_spec(top)
    origin = getattr(spec, "origin", None)
    places = [origin] if origin else list(getattr(spec, "submodule_search_locations", None) or [])
    if not places or not is_installed(places[0]):
        return None
    version = getattr(module, "__version__", None)
    if version is None:
        try:
            version = importlib.metadata.version(top)
        except importlib.metadata.PackageNotFoundError:
            return None
    return str(version)


def is_users(file: str) -> bool:
    """Whether a source file (or a notebook's cell) is the user's: not a package, a library, or Tileyard."""
    if file.startswith("<"):
        return file == "<string>" or file.startswith("<ipython")
    return not (Path(file).suffix in _NO_PYTHON or is_installed(file) or is_own(file))


def find_place(function: object) -> tuple[str, int]:
    """The file and the line in which a function begins; empty and 0 if they are not known."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)  # type: ignore[arg-type]
    code = code or getattr(vars(type(function)).get("__call__"), "__code__", None)
    return ("", 0) if code is None else (str(code.co_filename), int(code.co_firstlineno))


@contextlib.contextmanager
def name_place(function: object, name: str) -> Iterator[None]:
    """What the block refuses begins with the place of a function and a name."""
    try:
        yield
    except UsageError as error:
        file, line = find_place(function)
        place = f"{name_line(file, line)}: " if file else ""
        raise UsageError(f"{place}{name}: {error.message}", error.hint) from None


@contextlib.contextmanager
def blame_user(doing: str = "") -> Iterator[None]:
    """Turn all that a user's code raises, SystemExit included, into UserCodeError; ``doing`` begins the
    message. Tileyard's own errors, interrupts and MemoryError, which the machine causes, pass through.
    """
    try:
        yield
    except (TileyardError, KeyboardInterrupt, GeneratorExit, MemoryError):
        raise
    except BaseException as error:
        raise describe_failure(error, doing) from error


def describe_failure(error: BaseException, doing: str = "") -> UserCodeError:
    """``file:line: doing: Type: first line`` of the user's innermost frame, and a traceback."""
    frames = _frames_of(error)
    file, line = _find_place(error, frames)
    users = [frame for frame in frames if is_users(frame.filename)]
    what = _explain(error, file, line, frames) or describe_exception(error)
    shown = [*traceback.format_list(users or frames), *traceback.format_exception_only(error)]
    summary = f"{doing}: {what}" if doing else what
    return UserCodeError(
        message=f"{name_line(file, line)}: {summary}" if file else summary,
        summary=summary,
        file=file,
        line=line,
        trace="".join(["Traceback (your code only):\n", *shown]),
    )


def explain_error(error: BaseException) -> str:
    """``file:line: what is wrong`` for an error of TileLang's that does not say it to users; else empty."""
    frames = _frames_of(error)
    if not any(is_compilers(frame.filename) for frame in frames):
        return ""
    file, line = _find_place(error, frames)
    said = _explain(error, file, line, frames)
    return f"{name_line(file, line)}: {said}" if said and file else said


def _frames_of(error: BaseException) -> list[traceback.FrameSummary]:
    trace = error.__traceback__
    return list(traceback.extract_tb(getattr(trace, "tb_next", None) or trace))


def _find_place(error: BaseException, frames: Sequence[traceback.FrameSummary]) -> tuple[str, int]:
    """The user's innermost line; an empty file and 0 if there is none."""
    if isinstance(error, SyntaxError) and error.filename and is_users(error.filename):
        return error.filename, error.lineno or 0
    users = [frame for frame in frames if is_users(frame.filename)]
    return (users[-1].filename, users[-1].lineno or 0) if users else ("", 0)


def _explain(
    error: BaseException, file: str, line: int, frames: Sequence[traceback.FrameSummary]
) -> str:
    """What is wrong with the user's line, for errors that don't say so themselves; else empty."""
    text = str(error)
    if isinstance(error, AssertionError) and frames and text.strip() in ("", "Assertion failed"):
        at = frames[-1]
        said, inner = (
            explain_assertion(name, number, _values_at(error, name))
            for name, number in ((file, line), (at.filename, at.lineno or 0))
        )
        has_more = "does not hold" in inner and "does not hold" not in said
        return f"{said} (TileLang: {inner})" if has_more else said
    if isinstance(error, KeyError) and file:
        return f"there is no key {text}, in {quote_line(file, line)} (KeyError)"
    files = [frame.filename for frame in frames]
    if files and not is_users(files[-1]) and any(map(is_compilers, files)):
        said = explain_refusal(text, file, line)
        own = f"{type(error).__name__}: {first_line(text)}".removesuffix(": ")
        return f"{said} (TileLang: {own})" if said else ""
    return ""


def _values_at(error: BaseException, file: str) -> Mapping[str, object]:
    found: Mapping[str, object] = {}
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename == file:
            found = {**frame.f_globals, **frame.f_locals}
    return found


def describe_exception(error: BaseException) -> str:
    """The exception's type and the first line of its message."""
    if isinstance(error, SystemExit):
        return f"it ended the process with status {error.code!r}"
    text = str(error)
    if isinstance(error, SyntaxError) and is_users(
        error.filename or ""
    ):  # its place is named anyway
        text = f"{error.msg}: {error.text.strip()}" if error.text else error.msg
    lines = text.strip().splitlines()
    said = next((line.strip() for line in lines if line.strip()), "")
    name = type(error).__name__
    return f"{name}: {said}" if said else name


def call_by_name(
    function: Callable[..., object], values: Mapping[str, object], what: str
) -> object:
    """Call with those ``values`` that the parameters name, or with all of them if there is
    ``**kwargs``. ``what`` names the function in messages. Raises UsageError if a parameter is not
    in ``values``, and UserCodeError for anything that the function raises.
    """
    parameters = parameters_of(function)
    if parameters is None:
        with blame_user(what):
            return function(**values)
    unknown = [
        parameter.name
        for parameter in parameters
        if parameter.name not in values
        and parameter.default is parameter.empty
        and parameter.kind not in _VARIADIC
    ]
    if unknown:
        raise UsageError(
            f"{what} asks for {', '.join(unknown)}, which the kernel does not have",
            hint=f"it may ask for {', '.join(values)}" if values else "",
        )
    positional = [
        values[parameter.name]
        for parameter in parameters
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.name in values
    ]
    keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    named = {parameter.name for parameter in parameters if parameter.kind in keyword}
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    taken = {name: value for name, value in values.items() if takes_all or name in named}
    with blame_user(what):
        return function(*positional, **taken)


def parameters_of(function: Callable[..., object]) -> list[inspect.Parameter] | None:
    """A callable's parameters; None if unknown, as for some callables written in C."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
