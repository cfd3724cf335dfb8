"""The static gate for C++: what a candidate must not contain, found in its tokens and told with the way out.

A kernel computes outputs from inputs and nothing else: it keeps no state between calls, calls nothing but arithmetic,
memory and OpenMP, and hides no name behind the preprocessor. The text is checked as written and again as the
preprocessor leaves it; ``cpp_object`` checks what the compiler made of it, which no spelling gets round.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from orienteer.evaluators.kernel.cpp_state import state_findings
from orienteer.evaluators.kernel.cpp_tokens import BadText, Token, tokens


@dataclass(frozen=True)
class Finding:
    """One thing that is not allowed; ``code`` is the rejection code after ``cheat:``."""

    code: str
    line: int
    message: str


HEADERS = frozenset(
    {
        *("algorithm", "array", "cfloat", "climits", "cmath", "cstddef", "cstdint", "cstring", "initializer_list"),
        *("limits", "new", "numeric", "tuple", "type_traits", "utility", "vector"),
        *("float.h", "limits.h", "math.h", "stddef.h", "stdint.h", "string.h", "immintrin.h", "omp.h"),
    }
)
#: A candidate of more text than this is none.
MAX_BYTES = 1 << 18
_PROCESS = "system popen fork vfork execve execvp execl posix_spawn kill raise signal sigaction ptrace waitpid"
_FILES = "fopen freopen fread fwrite fclose fscanf openat creat mmap munmap mprotect memfd_create printf fprintf puts"
_FILES += " getenv setenv secure_getenv ifstream ofstream fstream stdin stdout stderr shm_open"
_CLOCKS = (
    "clock_gettime gettimeofday clock_settime omp_get_wtime omp_get_wtick __rdtsc __rdtscp _rdtsc nanosleep usleep"
)
_CLOCKS += " timespec_get chrono __builtin_ia32_rdtsc __builtin_ia32_rdtscp __builtin_readcyclecounter"
_THREADS = "pthread_create pthread_t thrd_create jthread async call_once sched_setaffinity omp_set_num_threads"
_THREADS += " omp_set_dynamic omp_set_nested omp_set_schedule omp_set_max_active_levels"
_LINKER = "dlopen dlsym dlmopen dladdr dl_iterate_phdr syscall environ __libc_start_main backtrace"
_JUMPS = "setjmp longjmp sigsetjmp siglongjmp exit _exit _Exit quick_exit abort atexit on_exit at_quick_exit terminate"
BANNED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(_PROCESS.split(), ("process", "starts or stops processes: a kernel computes outputs only")),
    **dict.fromkeys(_FILES.split(), ("files", "reaches files, the environment or output: use the tensors only")),
    **dict.fromkeys(_CLOCKS.split(), ("clock", "reads or delays the clock: the harness does the timing")),
    **dict.fromkeys(_THREADS.split(), ("threads", "starts or arranges threads by itself: use #pragma omp parallel")),
    **dict.fromkeys(_LINKER.split(), ("foreign-function", "reaches the linker or the kernel of the system")),
    **dict.fromkeys(_JUMPS.split(), ("control", "leaves forward other than by return")),
    **dict.fromkeys(("asm", "__asm__", "__asm"), ("assembly", "inline assembly: use vector types or intrinsics")),
    **dict.fromkeys(
        ("thread_local", "__thread", "_Thread_local"), ("state", "keeps values between calls: use local variables")
    ),
    **dict.fromkeys(("const_cast", "volatile_cast"), ("mutated-input", "casts const away: inputs are read-only")),
    "_Pragma": ("preprocessor", "a pragma as an operator: write #pragma omp on a line of its own"),
    "__has_include": ("preprocessor", "asks for headers: include what docs/cpu.md lists"),
    "__FILE__": ("preprocessor", "asks where it is compiled"),
    "__DATE__": ("preprocessor", "asks when it is compiled"),
    "__TIME__": ("preprocessor", "asks when it is compiled"),
    "__COUNTER__": ("preprocessor", "a macro whose value changes"),
    "import": ("header", "imports a module: include what docs/cpu.md lists"),
    "module": ("header", "is a module: a candidate is one plain file"),
}
_INTRINSIC_BANNED = re.compile(
    r"_mm\w*(clflush|clwb|mwait|monitor|umonitor|tpause)\w*|_(rd|wr)(rand|seed|fsbase|gsbase)\w*|_x(begin|end|abort|test)"
    r"|_rdpid\w*|_serialize"
)
_BUILTIN = re.compile(
    r"__builtin_(expect|expect_with_probability|assume_aligned|prefetch|unreachable|shuffle|shufflevector|convertvector"
    r"|constant_p|bit_cast|mem(cpy|set|move|cmp)|alloca|alloca_with_align|addressof|huge_val[fl]?|inf[fl]?|nans?[fl]?"
    r"|(f?abs|sqrt|floor|ceil|rint|nearbyint|trunc|round|lrint|fma|fmin|fmax|copysign|signbit|isnan|isinf|isfinite"
    r"|isinf_sign|isnormal|exp|exp2|log|log2|log10|pow|sin|cos|tan|tanh|erf|erfc|expm1|log1p|popcount|ctz|clz|ffs|parity|bswap\d+)"
    r"(f|l|ll)?|ia32_\w+|offsetof|add_overflow|sub_overflow|mul_overflow)"
)
_ATTRIBUTES = frozenset(
    {
        *("vector_size", "aligned", "always_inline", "noinline", "may_alias", "unused", "hot", "cold", "flatten"),
        *("pure", "const", "target", "assume_aligned", "malloc", "nonnull", "packed", "gnu", "maybe_unused"),
        *("likely", "unlikely", "nodiscard", "fallthrough", "visibility", "ext_vector_type", "restrict"),
    }
)
_DIRECTIVES = frozenset({"include", "define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "error"})
_OMP_BANNED = {
    "threadprivate": ("state", "keeps values between calls"),
    "target": ("threads", "works on another device"),
    "requires": ("threads", "arranges devices"),
    "interop": ("threads", "works on another device"),
}


def check(source: str) -> list[Finding]:
    """Check a candidate as it is written; an empty list when there is nothing against it."""
    if len(source.encode("utf-8", "replace")) > MAX_BYTES:
        return [Finding("contract", 0, f"the file is larger than {MAX_BYTES >> 10} KiB")]
    if "\0" in source:
        return [Finding("syntax", 0, "the file holds a NUL character")]
    try:
        found = tokens(source)
    except BadText as error:
        return [Finding("syntax", error.line, str(error))]
    findings = [*_directives(found), *_names(found), *state_findings(_plain(found), Finding)]
    if not _defines_forward(found):
        text = 'the file defines no forward; write: extern "C" void forward(const Tensor* inputs, const Tensor* state,'
        findings.append(Finding("contract", 0, f"{text} const Tensor* outputs, int threads) {{ ... }}"))
    return sorted(findings, key=lambda item: item.line)


def check_expanded(text: str) -> list[Finding]:
    """Check the candidate's own lines as the preprocessor leaves them."""
    try:
        found = tokens(text)
    except BadText as error:
        return [Finding("syntax", error.line, str(error))]
    return [*_pragmas(found), *_names(found), *state_findings(_plain(found), Finding)]


def _plain(found: Sequence[Token]) -> list[Token]:
    return [token for token in found if token.kind != "directive"]


def _directives(found: Sequence[Token]) -> list[Finding]:
    out = list(_pragmas(found))
    for token in found:
        if token.kind != "directive":
            continue
        word = re.match(r"\w*", token.text)
        name, rest = (word[0], token.text[word.end() :].strip()) if word is not None else ("", token.text)
        if name in ("pragma", ""):
            if token.text and name == "":
                out.append(Finding("preprocessor", token.line, f"the directive #{token.text[:40]} is not allowed"))
            continue
        if name not in _DIRECTIVES:
            out.append(Finding("preprocessor", token.line, f"the directive #{name} is not allowed"))
        elif name == "include":
            out += _include(rest, token.line)
        else:
            out += _macro(name, rest, token.line)
    return out


def _include(rest: str, line: int) -> list[Finding]:
    if rest == '"orienteer.h"':
        return []
    system = re.fullmatch(r"<([\w./]+)>", rest)
    if system is not None and system[1] in HEADERS:
        return []
    allowed = ", ".join(sorted(name for name in HEADERS if "." not in name))
    return [Finding("header", line, f"#include {rest[:60]} is not allowed; there are: {allowed}, immintrin.h, omp.h")]


def _macro(name: str, rest: str, line: int) -> list[Finding]:
    if name == "define" and ("##" in rest or re.search(r"(?<![#'\"])#(?!#)", rest)):
        return [Finding("preprocessor", line, "a macro that builds names or texts (## or #): write them out")]
    try:
        body = tokens(rest)
    except BadText as error:
        return [Finding("syntax", line, str(error))]
    out = [Finding(f.code, line, f"in a macro, {f.message}") for f in _names(body)]
    if name == "define":
        hidden = next((t.text for t in body[1:] if t.text in ("static", "extern", "typedef", "namespace")), None)
        if hidden is not None:
            out.append(Finding("preprocessor", line, f"a macro with {hidden} in it: write it where it is used"))
        if body and body[0].text in ("forward", "Tensor", "const", "static", "extern", "return", "if", "for", "while"):
            out.append(Finding("preprocessor", line, f"a macro called {body[0].text} hides what is written"))
    return out


def _pragmas(found: Sequence[Token]) -> list[Finding]:
    out = []
    for token in found:
        if token.kind != "directive" or not token.text.startswith("pragma"):
            continue
        words = re.findall(r"\w+", token.text)[1:]
        if words[:1] == ["omp"]:
            for word in words[1:3]:
                if word in _OMP_BANNED:
                    code, text = _OMP_BANNED[word]
                    out.append(Finding(code, token.line, f"#pragma omp {word} {text}"))
        elif words[:2] not in (["GCC", "ivdep"], ["GCC", "unroll"], ["GCC", "diagnostic"]) and words[:1] != ["once"]:
            text = " ".join(words[:3])
            out.append(
                Finding("preprocessor", token.line, f"#pragma {text} is not allowed: omp, GCC ivdep, GCC unroll")
            )
    return out


def _names(found: Sequence[Token]) -> list[Finding]:
    out: list[Finding] = []
    for position, token in enumerate(found):
        if token.kind == "mark":
            out += _marks(found, position)
        if token.kind != "name":
            continue
        name = token.text
        before = found[position - 1].text if position else ""
        if name in BANNED and before not in (".", "->"):
            code, text = BANNED[name]
            out.append(Finding(code, token.line, f"{name} {text}"))
        elif name.startswith("__builtin_") and not _BUILTIN.fullmatch(name):
            out.append(Finding("foreign-function", token.line, f"{name} is not one of the built-ins for arithmetic"))
        elif _INTRINSIC_BANNED.fullmatch(name):
            out.append(Finding("foreign-function", token.line, f"{name} does not compute"))
        elif name in ("__attribute__", "__attribute"):
            out += _attribute(found, position)
        elif name == "extern":
            out += _extern(found, position)
    return out


def _marks(found: Sequence[Token], position: int) -> list[Finding]:
    texts = [token.text for token in found[position : position + 5]]
    line = found[position].line
    if texts[:2] == ["(", "*"] and (
        texts[2:4] == [")", "("] or (len(texts) == 5 and texts[3] == ")" and texts[4] == "(" and _word(texts[2]))
    ):
        return [Finding("function-pointer", line, "a pointer to a function: call functions by their names")]
    if texts[:2] == ["[", "["]:
        end = next((i for i in range(position, len(found)) if found[i].text == "]"), len(found))
        return _attribute_names(found[position + 2 : end])
    return []


def _word(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z_]\w*", text) is not None and text not in ("this",)


def _attribute(found: Sequence[Token], position: int) -> list[Finding]:
    depth, inside = 0, []
    for token in found[position + 1 :]:
        depth += (token.text == "(") - (token.text == ")")
        if depth == 0:
            break
        if depth == 2 or (token.text == "(" and depth == 3):
            inside.append(token)
    return _attribute_names(inside)


def _attribute_names(inside: Sequence[Token]) -> list[Finding]:
    out, depth = [], 0
    for token in inside:
        depth += (token.text == "(") - (token.text == ")")
        if token.kind == "name" and depth <= 1 and token.text.strip("_") not in _ATTRIBUTES:
            text = f"the attribute {token.text} is not allowed: code runs from forward only, memory has no other names"
            out.append(Finding("attribute", token.line, text))
    return out


def _extern(found: Sequence[Token], position: int) -> list[Finding]:
    following = [token.text for token in found[position + 1 : position + 12]]
    if following[:1] == ['"C"'] and "forward" in following[: following.index("(") if "(" in following else 0]:
        return []
    if following[:2] == ['"C"', "{"]:
        return []
    text = "declares what another file defines: only forward is extern"
    return [Finding("foreign-function", found[position].line, text)]


def _defines_forward(found: Sequence[Token]) -> bool:
    plain = _plain(found)
    for position, token in enumerate(plain):
        if token.text == "forward" and position + 1 < len(plain) and plain[position + 1].text == "(":
            depth = 0
            for after in plain[position + 1 :]:
                depth += (after.text == "(") - (after.text == ")")
                if depth == 0 and after.text == "{":
                    return True
                if depth == 0 and after.text != ")" and after.text not in ("noexcept",):
                    break
    return False
