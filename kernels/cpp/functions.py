"""Helper functions of generated C++ files: elementary functions that compilers vectorise, conversions, stores.

The C library's scalar ``expf`` or ``erff`` costs some ten times the rest of a softmax or a GELU. The float32 forms here
are branch-free: range reduction and a polynomial whose coefficients were fitted (least squares with reweighting on
Chebyshev nodes) to an error near 1e-7, relative to the function's value. NaN passes through, overflow gives infinity,
underflow goes through the denormals to zero.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_EXP = """\
// exp for float: x = n ln2 + r, a polynomial in r, and two powers of two so that both ends of the range are reached.
static inline float fast_exp(float x) {
    const float clipped = x < -104.0f ? -104.0f : (x > 89.0f ? 89.0f : x);
    const float shifted = clipped * 1.44269504f + 12582912.0f;
    const float n = shifted - 12582912.0f;
    const float r = (clipped - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 0.00138368209f;
    p = p * r + 0.008374822f;
    p = p * r + 0.0416682264f;
    p = p * r + 0.166664201f;
    p = p * r + 0.499999921f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return scale_by_power(p, shifted);
}
"""
_EXP2 = """\
static inline float fast_exp2(float x) {
    const float clipped = x < -151.0f ? -151.0f : (x > 129.0f ? 129.0f : x);
    const float shifted = clipped + 12582912.0f;
    const float r = clipped - (shifted - 12582912.0f);
    float p = 0.00015345793f;
    p = p * r + 0.00133999311f;
    p = p * r + 0.00961848903f;
    p = p * r + 0.0555032878f;
    p = p * r + 0.240226469f;
    p = p * r + 0.693147206f;
    p = p * r + 1.0f;
    return scale_by_power(p, shifted);
}
"""
_SCALE = """\
// p times two to the power that stands in the low bits of shifted = n + 1.5 * 2^23.
static inline float scale_by_power(float p, float shifted) {
    int32_t n;
    std::memcpy(&n, &shifted, 4);
    n -= 0x4B400000;
    const int32_t half = n >> 1;
    const int32_t first = (int32_t)((uint32_t)(half + 127) << 23), second = (int32_t)((uint32_t)(n - half + 127) << 23);
    float a, b;
    std::memcpy(&a, &first, 4);
    std::memcpy(&b, &second, 4);
    return p * a * b;
}
"""
_LOG = """\
// log for float: x = m 2^e with m near 1, log m by the series of atanh.
static inline float fast_log(float x) {
    const float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x;
    int32_t bits;
    std::memcpy(&bits, &scaled, 4);
    const int32_t shifted = (int32_t)((uint32_t)bits - 0x3F3504F3u);
    const int32_t e = shifted >> 23;
    const int32_t mantissa = (int32_t)(((uint32_t)shifted & 0x007FFFFFu) + 0x3F3504F3u);
    float m;
    std::memcpy(&m, &mantissa, 4);
    const float exponent = (float)e - (x < 1.17549435e-38f ? 23.0f : 0.0f);
    const float s = (m - 1.0f) / (m + 1.0f), q = s * s;
    const float series = ((0.111111111f * q + 0.142857143f) * q + 0.2f) * q + 0.333333333f;
    const float result = exponent * 0.693359375f + (exponent * -2.12194440e-4f + (2.0f * s + 2.0f * s * q * series));
    const float positive = x == INFINITY ? INFINITY : result;
    return x > 0.0f ? positive : (x == 0.0f ? -INFINITY : NAN);
}
"""
_LOG2 = """\
static inline float fast_log2(float x) { return fast_log(x) * 1.44269504f; }
"""
_ERF = """\
// erf for float: an odd polynomial below 1, 1 - exp(-polynomial) above, 1 from 3.95 on.
static inline float fast_erf(float x) {
    const float y = std::fabs(x), q = x * x, t = y > 3.95f ? 3.95f : y;
    float p = 7.85423765e-05f;
    p = p * q + -0.00080103167f;
    p = p * q + 0.00518834318f;
    p = p * q + -0.0268538213f;
    p = p * q + 0.112835854f;
    p = p * q + -0.376126259f;
    p = p * q + 1.12837917f;
    float e = 1.83233004e-05f;
    e = e * t + -0.000397049358f;
    e = e * t + 0.0039609453f;
    e = e * t + -0.0244826009f;
    e = e * t + 0.107154406f;
    e = e * t + 0.634508352f;
    e = e * t + 1.12886665f;
    e = e * t + -2.35095833e-05f;
    const float tail = 1.0f - fast_exp(-e);
    return y < 1.0f ? p * x : (x != x ? x : std::copysign(y > 3.95f ? 1.0f : tail, x));
}
"""
_TURN = """\
// Takes a multiple of pi/2 off x. The bits of 2/pi come in pieces of 28, so that every product with x is exact in
// double; whole turns are dropped from each product before they are added (after Payne and Hanek 1983).
static inline double part_of_turn(double x, double piece) {
    const double product = x * piece;
    return product - 4.0 * std::trunc(product * 0.25);
}
static inline float quarter_turn(float x, int32_t& quadrant) {
    const double wide = (double)x;
    double turn = part_of_turn(wide, 170891318.0 * 0x1p-28) + part_of_turn(wide, 240010261.0 * 0x1p-56);
    turn += part_of_turn(wide, 44024437.0 * 0x1p-84) + part_of_turn(wide, 131200308.0 * 0x1p-112);
    turn += part_of_turn(wide, 232525238.0 * 0x1p-140) + part_of_turn(wide, 43358524.0 * 0x1p-168);
    const double n = std::nearbyint(turn);
    quadrant = (int32_t)n & 3;
    return (float)((turn - n) * 1.5707963267948966);
}
static inline float sine_of_quarter(float r) {
    const float q = r * r;
    return r + r * q * (-0.166666503f + q * (0.00833201755f + q * -0.000195019234f));
}
static inline float cosine_of_quarter(float r) {
    const float q = r * r;
    return 1.0f + q * (-0.499999996f + q * (0.0416666168f + q * (-0.00138866203f + q * 2.4380011e-05f)));
}
"""
_SIN = """\
static inline float fast_sin(float x) {
    int32_t quadrant;
    const float r = quarter_turn(x, quadrant);
    const float value = quadrant & 1 ? cosine_of_quarter(r) : sine_of_quarter(r);
    return quadrant & 2 ? -value : value;
}
"""
_COS = """\
static inline float fast_cos(float x) {
    int32_t quadrant;
    const float r = quarter_turn(x, quadrant);
    const float value = quadrant & 1 ? sine_of_quarter(r) : cosine_of_quarter(r);
    return (quadrant + 1) & 2 ? -value : value;
}
"""
_BF16 = """\
static inline float from_bfloat16(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    std::memcpy(&x, &wide, 4);
    return x;
}
static inline uint16_t to_bfloat16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1u);
    return (uint16_t)(x != x ? 0x7FC0u : rounded >> 16);
}
"""
_FP16 = """\
static inline float from_float16(uint16_t bits) {
    const uint32_t magnitude = (uint32_t)(bits & 0x7FFFu) << 13;
    float x;
    std::memcpy(&x, &magnitude, 4);
    x *= 5.19229686e33f;  // two to the 112: the difference of the exponents' biases
    uint32_t wide;
    std::memcpy(&wide, &x, 4);
    wide |= magnitude >= 0x0F800000u ? 0x7F800000u | magnitude : 0u;
    wide |= (uint32_t)(bits & 0x8000u) << 16;
    std::memcpy(&x, &wide, 4);
    return x;
}
static inline uint16_t to_float16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7FFFFFFFu;
    float small;
    std::memcpy(&small, &magnitude, 4);
    small += 0.5f;  // rounds to a multiple of the smallest half
    uint32_t denormal;
    std::memcpy(&denormal, &small, 4);
    denormal -= 0x3F000000u;
    const uint32_t normal = (magnitude - 0x38000000u + 0x0FFFu + ((magnitude >> 13) & 1u)) >> 13;
    const uint32_t large = magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u;
    const uint32_t half = magnitude >= 0x47800000u ? large : (magnitude < 0x38800000u ? denormal : normal);
    return (uint16_t)(sign | half);
}
"""
_SMALL = """\
template <typename A, typename B> static inline auto smaller(A a, B b) -> decltype(a + b) { return a < b ? a : b; }
template <typename A, typename B> static inline auto larger(A a, B b) -> decltype(a + b) { return a > b ? a : b; }
"""
_ABSOLUTE = """\
static inline float absolute(float x) { return std::fabs(x); }
static inline double absolute(double x) { return std::fabs(x); }
static inline int64_t absolute(int64_t x) { return x < 0 ? -x : x; }
"""
_NANMAX = """\
#pragma omp declare reduction(amax : float, double : \\
    omp_out = (omp_in > omp_out) | (omp_in != omp_in) ? omp_in : omp_out)\\
    initializer(omp_priv = -INFINITY)
#pragma omp declare reduction(amax : int64_t : omp_out = omp_in > omp_out ? omp_in : omp_out)\\
    initializer(omp_priv = omp_orig)
"""
_NANMIN = """\
#pragma omp declare reduction(amin : float, double : \\
    omp_out = (omp_in < omp_out) | (omp_in != omp_in) ? omp_in : omp_out)\\
    initializer(omp_priv = INFINITY)
#pragma omp declare reduction(amin : int64_t : omp_out = omp_in < omp_out ? omp_in : omp_out)\\
    initializer(omp_priv = omp_orig)
"""
_STREAM = """\
// Stores a run past the caches; what is not a whole aligned vector is stored as usual.
typedef float stream_vector __attribute__((vector_size(STREAM_BYTES)));
static inline void stream_out(void* target, const void* source, int64_t bytes) {
    char* to = (char*)target;
    const char* from = (const char*)source;
    while (bytes > 0 && ((uintptr_t)to % STREAM_BYTES) != 0) {
        *to++ = *from++;
        --bytes;
    }
    for (; bytes >= STREAM_BYTES; bytes -= STREAM_BYTES, to += STREAM_BYTES, from += STREAM_BYTES) {
        stream_vector value;
        std::memcpy(&value, from, STREAM_BYTES);
        STREAM_STORE((float*)to, value);
    }
    for (; bytes > 0; --bytes) *to++ = *from++;
}
"""
_SCRATCH = """\
// Memory of one call, aligned to 64 bytes.
template <typename T> struct Scratch {
    T* data;
    explicit Scratch(int64_t count)
        : data((T*)::operator new(sizeof(T) * (size_t)(count > 0 ? count : 1), std::align_val_t(64))) {}
    ~Scratch() { ::operator delete(data, std::align_val_t(64)); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
};
"""
_STREAM_WIDTH = """\
#if defined(__AVX512F__)
#define STREAM_BYTES 64
#define STREAM_STORE __builtin_ia32_movntps512
#elif defined(__AVX__)
#define STREAM_BYTES 32
#define STREAM_STORE __builtin_ia32_movntps256
#elif defined(__SSE2__)
#define STREAM_BYTES 16
#define STREAM_STORE __builtin_ia32_movntps
#else
#define STREAM_BYTES 16
#define STREAM_STORE(place, value) std::memcpy(place, &(value), 16)
#endif
"""

#: In the order in which they must stand: (a word that the file uses, text, words that the text uses).
_PARTS: tuple[tuple[str, str], ...] = (
    ("smaller|larger", _SMALL),
    ("absolute", _ABSOLUTE),
    ("scale_by_power", _SCALE),
    ("fast_exp", _EXP),
    ("fast_exp2", _EXP2),
    ("fast_log", _LOG),
    ("fast_log2", _LOG2),
    ("fast_erf", _ERF),
    ("quarter_turn", _TURN),
    ("fast_sin", _SIN),
    ("fast_cos", _COS),
    ("from_bfloat16|to_bfloat16", _BF16),
    ("from_float16|to_float16", _FP16),
    ("reduction\\(amax", _NANMAX),
    ("reduction\\(amin", _NANMIN),
    ("stream_out", _STREAM_WIDTH + _STREAM),
    ("Scratch", _SCRATCH),
)
_DOUBLES = {
    "fast_exp": "exp",
    "fast_exp2": "exp2",
    "fast_log": "log",
    "fast_log2": "log2",
    "fast_erf": "erf",
    "fast_sin": "sin",
    "fast_cos": "cos",
}


def needed(text: str, wide: bool) -> str:
    """Return the helpers that a text uses, in order, each once.

    Args:
        text: the kernels.
        wide: kernels compute with doubles too, for which the C library's functions are taken.
    """
    chosen: list[str] = []
    for word, part in reversed(_PARTS):
        used = re.search(rf"\b(?:{word})\b", text) is not None
        if used:
            chosen.insert(0, part)
            text += part
    if wide:
        for name, plain in _DOUBLES.items():
            if re.search(rf"\b{name}\b", text):
                chosen.append(f"static inline double {name}(double x) {{ return std::{plain}(x); }}\n")
    return "\n".join(chosen)


def headers(text: str) -> Sequence[str]:
    """Return the include lines of a file, fewest possible: every header costs compile time."""
    lines = ["#include <cmath>", "#include <cstdint>"]
    if "std::memcpy" in text or "std::memset" in text:
        lines.append("#include <cstring>")
    if "Scratch" in text:
        lines.insert(len(lines), "#include <new>")
    return [*lines, "", '#include "orienteer.h"']
