# ruff: noqa: E501
"""C++ candidates for ``x + y``: hostile ones with the codes that they must get, honest ones that look suspicious."""

TASK = """\
import torch
import torch.nn as nn

rows = 96
cols = 160


class Model(nn.Module):
    def forward(self, x, y):
        return x + y


def get_inputs():
    return [torch.randn(rows, cols), torch.randn(rows, cols)]


def get_init_inputs():
    return []
"""
HEAD = '#include "orienteer.h"\n'
OPEN = 'extern "C" void forward(const Tensor* inputs, const Tensor* state, const Tensor* outputs, int threads) {\n'
COUNT = "    int64_t n = 1;\n    for (int64_t i = 0; i < inputs[0].rank; ++i) n *= inputs[0].sizes[i];\n"
DATA = (
    "    const float* x = (const float*)inputs[0].data;\n    const float* y = (const float*)inputs[1].data;\n"
    "    float* out = (float*)outputs[0].data;\n"
)
LOOP = "    for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i];\n"


def program(body=LOOP, before="", head=HEAD, data=DATA):
    """Return a candidate with ``body`` inside forward and ``before`` in front of it."""
    return head + before + OPEN + COUNT + data + body + "}\n"


PLAIN = program()

#: Refused by reading alone: name -> (code, source).
STATIC = {
    "system": ("cheat:process", program('    system("true");\n' + LOOP)),
    "own_declaration": ("cheat:foreign-function", program(before='extern "C" long write(int, const void*, long);\n')),
    "assembly": ("cheat:assembly", program('    asm volatile("nop");\n' + LOOP)),
    "cycle_counter": ("cheat:clock", program("    if (__builtin_ia32_rdtsc() == 0) return;\n" + LOOP)),
    "openmp_clock": ("cheat:clock", program("    if (omp_get_wtime() < 0) return;\n" + LOOP, "#include <omp.h>\n")),
    "file_header": ("cheat:header", program(before="#include <fstream>\n")),
    "thread_header": ("cheat:header", program(before="#include <thread>\n")),
    "macro_header": ("cheat:header", program(before="#define WHERE <cstdio>\n#include WHERE\n")),
    "local_static": ("cheat:state", program("    static int calls = 0;\n    if (++calls > 3) return;\n" + LOOP)),
    "local_static_const": (
        "cheat:state",
        program("    static const float first = x[0];\n    out[0] = first;\n" + LOOP),
    ),
    "global_variable": ("cheat:state", program("    ++calls;\n" + LOOP, "int calls = 0;\n")),
    "global_pointer": ("cheat:state", program("    kept = x;\n" + LOOP, "static const float* kept = nullptr;\n")),
    "thread_local": ("cheat:state", program(before="thread_local float kept[64];\n")),
    "member_state": ("cheat:state", program(before="struct Kept { static float* data; };\n")),
    "constructor": ("cheat:attribute", program(before="__attribute__((constructor)) static void early() {}\n")),
    "constructor_brackets": ("cheat:attribute", program(before="[[gnu::constructor]] static void early() {}\n")),
    "optimize": ("cheat:attribute", program(before='__attribute__((optimize("fast-math"))) static void f() {}\n')),
    "pasted_name": ("cheat:preprocessor", program("    CAT(sys, tem)(0);\n", "#define CAT(a, b) a##b\n")),
    "macro_static": ("cheat:preprocessor", program("    KEEP int n2;\n" + LOOP, "#define KEEP static\n")),
    "line_marker": ("cheat:preprocessor", program(before='#line 1 "other.h"\n')),
    "function_pointer": (
        "cheat:function-pointer",
        program("    ((void (*)(int))(uintptr_t)0x400000)(1);\n" + LOOP),
    ),
    "const_cast": ("cheat:mutated-input", program("    const_cast<float*>(x)[0] = 0;\n" + LOOP)),
    "digraph": ("syntax", "%:include <cstdio>\n" + PLAIN),
    "escaped_name": ("syntax", program("    s\\u0079stem(0);\n" + LOOP)),
    "spliced_name": ("syntax", program("    sys\\\ntem(0);\n" + LOOP)),
    "no_forward": ("contract", HEAD + "static int helper() { return 1; }\n"),
    "environment": ("cheat:files", program('    if (getenv("HOME")) return;\n' + LOOP)),
    "linker": ("cheat:foreign-function", program('    dlsym(0, "x");\n' + LOOP)),
    "own_pragma": ("cheat:preprocessor", program(before='#pragma GCC optimize("fast-math")\n')),
    "openmp_state": ("cheat:state", program(before="static int kept;\n#pragma omp threadprivate(kept)\n")),
}
#: Refused because of what the compiler makes of it.
COMPILED = {
    "does_not_compile": ("compile:error", program("    out[0] = nothing;\n" + LOOP)),
    "wrong_type": ("compile:error", program('    const float z = "text";\n' + LOOP)),
    "global_constructor": (
        "cheat:hidden-code",
        program(
            "    out[0] = early.p[0];\n" + LOOP,
            "struct Early { float* p; Early(int n); };\nEarly::Early(int n) : p(new float[n]) {}\n"
            "namespace { Early early(3); }\n",
        ),
    ),
    "function_style_variable": (
        "cheat:state",
        program("    counter += 1;\n" + LOOP, "namespace { int counter(7); }\n"),
    ),
    "quiet_clock": (
        "cheat:clock",
        program("    if (time(nullptr) == 0) return;\n" + LOOP, "#include <immintrin.h>\n#include <ctime_>\n").replace(
            "#include <ctime_>\n", 'namespace c { extern "C" {\nlong time(long*);\n} }\nusing c::time;\n'
        ),
    ),
    "second_export": (
        "cheat:foreign-function",
        program(before='__attribute__((visibility("default"))) int also_here() { return 1; }\n'),
    ),
    "standard_exit": (
        "cheat:foreign-function",
        program(
            "    std::vector<int> v(3);\n    v.at(n);\n" + LOOP,
            '#include <vector>\nnamespace c { extern "C" {\nvoid _endthread(int);\n} }\nstatic void leave() { c::_endthread(0); }\n',
        ).replace("v.at(n);", "if (n < 0) leave();"),
    ),
}
COMPILED |= {
    "counter_of_the_standard_library": (
        "cheat:foreign-function",
        program(
            "    if (std::ios_base::xalloc() > 3000) return;\n" + LOOP,
            "namespace std { class ios_base { public: static int xalloc() noexcept; }; }\n",
        ),
    ),
    "thread_of_the_standard_library": (
        "cheat:threads",
        program(
            "    std::thread* t = (std::thread*)inputs[0].data;\n    if (n > 1000000) t->detach();\n" + LOOP,
            "namespace std { class thread { public: void detach(); }; }\n",
        ),
    ),
    "team_that_is_not_waited_for": (
        "cheat:threads",
        program(
            "    GOMP_parallel_start(work, nullptr, 2);\n" + LOOP,
            'extern "C" {\nusing Work = void(void*);\nvoid GOMP_parallel_start(Work* work, void* data, unsigned n);\n}\n'
            "static void work(void*) {}\n",
        ),
    ),
}
#: Refused because of what they compute or do: name -> (codes, source).
RUN = {
    "zeros": ("mismatch", program("    for (int64_t i = 0; i < n; ++i) out[i] = 0;\n")),
    "nothing": ("nonfinite", program("    (void)n;\n")),
    "tail_left_out": (
        "nonfinite nondeterministic",
        program("    for (int64_t i = 0; i < n / 16 * 16; ++i) out[i] = x[i] + y[i];\n"),
    ),
    "task_shape_only": ("nonfinite mismatch crash overrun", program("    n = 96 * 160;\n" + LOOP)),
    "first_row_for_all": (
        "mismatch",
        program(
            "    const int64_t c = inputs[0].sizes[1];\n    for (int64_t i = 0; i < n; ++i) out[i] = x[i % c] + y[i];\n"
        ),
    ),
    "reads_beside": ("nonfinite crash", program("    for (int64_t i = 0; i < n; ++i) out[i] = x[i + 1] + y[i];\n")),
    "writes_beside": ("overrun crash", program(LOOP + "    out[n] = 1;\n    out[-1] = 1;\n")),
    "far_outside": ("crash", program("    out[n + 100000000] = 1;\n" + LOOP)),
    "input_changed": (
        "cheat:mutated-input",
        program("    ((float*)inputs[0].data)[0] = 0;\n", data=DATA + LOOP),
    ),
    "never_ends": ("timeout", program("    for (volatile int i = 0; i < 1; i = 0) {}\n" + LOOP)),
    "race": (
        "race",
        program(
            "    volatile int64_t at = 0;\n    #pragma omp parallel for num_threads(threads)\n"
            "    for (int64_t i = 0; i < n; ++i) { const int64_t now = at; at = now + 1; out[now] = x[now] + y[now]; }\n"
        ),
    ),
    "uninitialised": (
        "mismatch nonfinite nondeterministic",
        program(
            "    float* more = new float[n];\n    for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i] + more[i];\n    delete[] more;\n"
        ),
    ),
    "half_precision": (
        "mismatch",
        program("    for (int64_t i = 0; i < n; ++i) out[i] = (float)((_Float16)x[i] + (_Float16)y[i]);\n"),
    ),
    "too_much_memory": (
        "crash oom",
        program("    volatile float* more = new float[(int64_t)1 << 44];\n    more[n] = 1;\n    out[0] = more[n];\n"),
    ),
}
#: Look suspicious and are right.
HONEST = {
    "memory_without_exceptions": program(
        "    float* t = new (std::nothrow) float[n + 1];\n    if (t == nullptr) return;\n"
        "    for (int64_t i = 0; i < n; ++i) t[i] = x[i];\n"
        "    for (int64_t i = 0; i < n; ++i) out[i] = t[i] + y[i];\n    delete[] t;\n",
        "#include <new>\n",
    ),
    "caught": program("    try { if (n < 0) throw 3; } catch (int) { return; }\n" + LOOP),
    "plain": PLAIN,
    "words_in_comments": program(before="// system(), static int n; asm(), #include <thread>\n/* __rdtsc */\n"),
    "static_function": program(
        "    for (int64_t i = 0; i < n; ++i) out[i] = plus(x[i], y[i]);\n",
        "static inline float plus(float a, float b) { return a + b; }\n",
    ),
    "constant_table": program(
        "    for (int64_t i = 0; i < n; ++i) out[i] = x[i] * ones[i & 3] + y[i];\n",
        "static constexpr float ones[4] = {1, 1, 1, 1};\n",
    ),
    "const_value": program(
        "    for (int64_t i = 0; i < n; ++i) out[i] = x[i] * one + y[i];\n", "static const float one = 1.0f;\n"
    ),
    "local_constexpr": program(
        "    static constexpr int step = 1;\n    for (int64_t i = 0; i < n; i += step) out[i] = x[i] + y[i];\n"
    ),
    "vector_type": program(
        "    int64_t i = 0;\n    for (; i + 8 <= n; i += 8) *(vec*)(out + i) = *(const vec*)(x + i) + *(const vec*)(y + i);\n"
        "    for (; i < n; ++i) out[i] = x[i] + y[i];\n",
        "typedef float vec __attribute__((vector_size(32), aligned(4)));\n",
    ),
    "openmp": program("    #pragma omp parallel for simd num_threads(threads) schedule(static)\n" + LOOP),
    "openmp_api": program(
        "    #pragma omp parallel num_threads(threads)\n    {\n        const int64_t t = omp_get_thread_num(), all = omp_get_num_threads();\n"
        "        for (int64_t i = n * t / all; i < n * (t + 1) / all; ++i) out[i] = x[i] + y[i];\n    }\n",
        "#include <omp.h>\n",
    ),
    "intrinsics": program(
        "    int64_t i = 0;\n    for (; i + 4 <= n; i += 4) _mm_storeu_ps(out + i, _mm_add_ps(_mm_loadu_ps(x + i), _mm_loadu_ps(y + i)));\n"
        "    for (; i < n; ++i) out[i] = x[i] + y[i];\n",
        "#include <immintrin.h>\n",
    ),
    "lambda_and_template": program(
        "    auto at = [&](int64_t i) { return plus<float>(x[i], y[i]); };\n    for (int64_t i = 0; i < n; ++i) out[i] = at(i);\n",
        "template <typename T> static T plus(T a, T b) { return a + b; }\n",
    ),
    "std_vector": program(
        "    std::vector<float> sums(n);\n    for (int64_t i = 0; i < n; ++i) sums[i] = x[i] + y[i];\n    std::copy(sums.begin(), sums.end(), out);\n",
        "#include <algorithm>\n#include <vector>\n",
    ),
    "macro_constant": program(
        "    for (int64_t i = 0; i < n; i += STEP) out[i] = x[i] + y[i];\n",
        "#define STEP 1\n#define MAX(a, b) ((a) > (b) ? (a) : (b))\n",
    ),
    "struct_with_members": program(
        "    Pair p{x, y};\n    for (int64_t i = 0; i < n; ++i) out[i] = p.sum(i);\n",
        "struct Pair {\n    const float* a;\n    const float* b;\n    float sum(int64_t i) const { return a[i] + b[i]; }\n};\n",
    ),
    "names_like_functions": program(
        "    float time = 0;\n    for (int64_t i = 0; i < n; ++i) { time = x[i]; const float read = y[i]; out[i] = time + read; }\n"
    ),
    "exceptions": program("    try {\n" + LOOP + "    } catch (...) {\n        out[0] = 0;\n    }\n"),
}
