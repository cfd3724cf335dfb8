"""What the compiler made of a candidate: the shared object's imports, exports, start-up code and writable data.

Only what a 64-bit ELF file of the system's compiler holds is read. However a name was spelt in the text, a call of a
foreign function is an undefined symbol here, state is writable data, and code that runs by itself is an entry of
``.init_array``.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

#: Functions that a kernel may import: memory, mathematics, OpenMP, allocation, and what the compiler itself calls.
_MATHS = (
    r"(a?sin|a?cos|a?tan|sinh|cosh|tanh|asinh|acosh|atanh|atan2|exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sqrt|cbrt"
    r"|hypot|erf|erfc|[lt]gamma|floor|ceil|trunc|l?l?round|l?l?rint|nearbyint|fmod|remainder|remquo|modf|frexp|ldexp"
    r"|scalbl?n|logb|ilogb|nextafter|copysign|fabs|fmax|fmin|fdim|fma|sincos)[fl]?"
)
_IMPORTS = re.compile(
    rf"{_MATHS}|_ZGV\w+|mem(cpy|set|move|cmp|chr)|malloc|calloc|realloc|free|aligned_alloc|posix_memalign"
    r"|GOMP_(?!parallel_(start|end)$|parallel_\w+_start$|target|offload)\w+"
    r"|omp_get_(thread_num|num_threads|max_threads|num_procs|level|thread_limit)|omp_in_parallel"
    r"|__kmpc_\w+|_Zn[wa]\w+|_Zd[la]\w+|_ZSt\d+__throw_\w+|_ZSt7nothrow"
    # Of the members in the standard library's own files those of its exceptions only: threads, streams and locales,
    # which a file can declare by itself, keep state and reach the system.
    r"|_ZNK?St(9exception|9bad_alloc|20bad_array_new_length|8bad_cast|10bad_typeid|13bad_exception)\w+"
    r"|_ZTI\w+|_ZTV\w+|_ZTS\w+"
    r"|__gxx_personality_v0|_Unwind_\w+|__cxa_(begin_catch|end_catch|rethrow|throw_bad_array_new_length|finalize"
    r"|call_unexpected|allocate_exception|free_exception|throw|pure_virtual)|__stack_chk_fail|__clang_call_terminate"
    r"|__gmon_start__|_ITM_\w+|__(mul|div|ext|trunc|float|fix)\w+|__tls_get_addr|_ZSt9terminatev"
)
_LIBRARIES = re.compile(
    r"(libm|libmvec|libc|libgomp|libomp|libiomp5|libstdc\+\+|libc\+\+|libgcc_s|ld-linux\S*)\.so\.?\S*"
)
_CLOCKS = re.compile(r"_ZNSt6chrono\w+|clock\w*|gettimeofday|time|omp_get_w\w+|timespec_get|nanosleep|usleep|sleep")
_THREADS = re.compile(r"pthread_\w+|thrd_\w+|omp_set_\w+|sched_\w+|_ZNSt6thread\w*|GOMP_parallel\w*")
#: The compiler's own writable objects: a guard of its exit code, the object's handle, handlers and caught types.
_OWN_WRITABLE = re.compile(r"completed\.0|__dso_handle|__TMC_END__|DW\.ref\.(__gxx_personality_v0|_ZTI\w+)")
_MOST_WRITABLE = 24
_SHF_WRITE = 1
_SHT_SYMTAB, _SHT_DYNSYM, _SHT_DYNAMIC = 2, 11, 6
_OBJECT, _INDIRECT = 1, 10
_LOADER_SECTIONS = frozenset(
    {".dynamic", ".got", ".got.plt", ".data.rel.ro", ".init_array", ".fini_array", ".tm_clone_table"}
)


@dataclass(frozen=True)
class Problem:
    """What is wrong with an object."""

    code: str
    message: str


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int


def check(library: bytes) -> Problem | None:
    """Return the first thing in a shared object that no kernel needs, or None."""
    try:
        return _check(library)
    except (struct.error, IndexError, ValueError, KeyError):
        return Problem("object", "the compiler's output is no shared object for this machine")


def _check(library: bytes) -> Problem | None:
    if library[:6] != b"\x7fELF\x02\x01":
        return Problem("object", "the compiler's output is no 64-bit little-endian ELF file")
    sections = _sections(library)
    if not any(section.kind == _SHT_SYMTAB for section in sections):
        return Problem("object", "the compiler's output has no symbols")
    for symbol in _symbols(library, sections):
        name = symbol.name
        if symbol.kind == _INDIRECT:
            return Problem("attribute", f"{name} is resolved by code when the library is loaded")
        if symbol.section == 0 and not _IMPORTS.fullmatch(name):
            return _foreign(name)
        if symbol.section and name != "forward" and not re.match(r"_Z(N?K?St|TI|TS|TV|NK?\d*__gnu)", name):
            return Problem("foreign-function", f"{name} is visible outside: only forward is exported, make it static")
    for name in _needed(library, sections):
        if not _LIBRARIES.fullmatch(name):
            return Problem("foreign-function", f"the library {name} is linked; a kernel needs none")
    by_name = {section.name: section for section in sections}
    if any(by_name[name].size > 8 for name in (".init_array", ".fini_array") if name in by_name):
        return Problem("hidden-code", "code runs when the file is loaded or unloaded: a global object's constructor?")
    if ".preinit_array" in by_name or ".ctors" in by_name:
        return Problem("hidden-code", "code runs when the file is loaded")
    return _state(library, sections)


def _foreign(symbol: str) -> Problem:
    if _CLOCKS.fullmatch(symbol):
        return Problem("clock", f"{symbol} is called: the harness does the timing")
    if _THREADS.match(symbol):
        return Problem("threads", f"{symbol} is called: use #pragma omp parallel")
    if symbol in ("__cxa_atexit", "__cxa_guard_acquire", "__cxa_guard_release"):
        return Problem("state", "an object outlives the call of forward: use local variables")
    return Problem(
        "foreign-function", f"{symbol} is called; a kernel may call mathematics, memory and OpenMP functions"
    )


def _state(data: bytes, sections: list[_Section]) -> Problem | None:
    text = "outlives a call of forward: use local variables, or constexpr for tables"
    if any(section.name in (".tdata", ".tbss") for section in sections):
        return Problem("state", f"a variable of a thread {text}")
    writable = {
        number: section
        for number, section in enumerate(sections)
        if section.flags & _SHF_WRITE and section.name not in _LOADER_SECTIONS
    }
    caught = 0
    for symbol in _symbols(data, sections, _SHT_SYMTAB):
        caught += symbol.name.startswith("DW.ref._ZTI")
        if symbol.kind == _OBJECT and symbol.section in writable and not _OWN_WRITABLE.fullmatch(symbol.name):
            return Problem("state", f"{symbol.name} {text}")
    size = sum(section.size for section in writable.values())
    return Problem("state", f"writable data of {size} bytes {text}") if size > _MOST_WRITABLE + 8 * caught else None


def _sections(data: bytes) -> list[_Section]:
    (offset,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    raw = [struct.unpack_from("<IIQQQQII", data, offset + size * i) for i in range(count)]
    base = raw[names][4]
    return [_Section(_text(data, base + item[0]), item[1], item[2], item[4], item[5], item[6]) for item in raw]


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("utf-8", "replace")


@dataclass(frozen=True)
class _Symbol:
    name: str
    #: Number of the section that defines it; 0 for an import.
    section: int
    kind: int


def _symbols(data: bytes, sections: list[_Section], table: int = _SHT_DYNSYM) -> list[_Symbol]:
    """Return the symbols of a table that have a name."""
    out = []
    for section in sections:
        if section.kind != table:
            continue
        base = sections[section.link].offset
        for at in range(section.offset, section.offset + section.size, 24):
            name, info, _, index = struct.unpack_from("<IBBH", data, at)
            if name:
                out.append(_Symbol(_text(data, base + name), index, info & 15))
    return out


def _needed(data: bytes, sections: list[_Section]) -> list[str]:
    out = []
    for section in sections:
        if section.kind != _SHT_DYNAMIC:
            continue
        base = sections[section.link].offset
        for at in range(section.offset, section.offset + section.size, 16):
            tag, value = struct.unpack_from("<qQ", data, at)
            if tag == 1:
                out.append(_text(data, base + value))
            elif tag in (15, 29):
                raise ValueError("a search path for libraries")
    return out
