// Sixteen float lanes, whatever the width of the processor's registers: every path computes the same IEEE operations in
// the same order, so all paths give the same bits. Only for the sources that are compiled once per path.
#pragma once
#include <cstdint>
#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace gearshift::GEARSHIFT_PATH {
namespace {

constexpr int LANES = 16;
#if defined(__AVX512F__)
constexpr int NATIVE = 16;
#elif defined(__AVX__)
constexpr int NATIVE = 8;
#else
constexpr int NATIVE = 4;
#endif
constexpr int PARTS = LANES / NATIVE;

typedef float NativeFloat __attribute__((vector_size(NATIVE * 4)));
typedef int32_t NativeInt __attribute__((vector_size(NATIVE * 4)));

struct Ints {
    NativeInt part[PARTS];
};
struct Floats {
    NativeFloat part[PARTS];
};

#define GEARSHIFT_INLINE inline __attribute__((always_inline))
#define GEARSHIFT_PARTS for (int i = 0; i < PARTS; ++i)

GEARSHIFT_INLINE Floats load(const float* from) {
    Floats out;
    GEARSHIFT_PARTS __builtin_memcpy(&out.part[i], from + i * NATIVE, sizeof(NativeFloat));
    return out;
}
GEARSHIFT_INLINE Ints load(const int32_t* from) {
    Ints out;
    GEARSHIFT_PARTS __builtin_memcpy(&out.part[i], from + i * NATIVE, sizeof(NativeInt));
    return out;
}
GEARSHIFT_INLINE void store(float* to, Floats a) {
    GEARSHIFT_PARTS __builtin_memcpy(to + i * NATIVE, &a.part[i], sizeof(NativeFloat));
}
GEARSHIFT_INLINE void store(int32_t* to, Ints a) {
    GEARSHIFT_PARTS __builtin_memcpy(to + i * NATIVE, &a.part[i], sizeof(NativeInt));
}
GEARSHIFT_INLINE Floats all(float value) {
    Floats out;
    GEARSHIFT_PARTS out.part[i] = value - NativeFloat{};
    return out;
}
#define GEARSHIFT_OPERATOR(op) \
    GEARSHIFT_INLINE Floats operator op(Floats a, Floats b) { \
        GEARSHIFT_PARTS a.part[i] = a.part[i] op b.part[i]; \
        return a; \
    }
GEARSHIFT_OPERATOR(+)
GEARSHIFT_OPERATOR(-)
GEARSHIFT_OPERATOR(*)
GEARSHIFT_OPERATOR(/)
#undef GEARSHIFT_OPERATOR
// a > b ? a : b, and a < b ? a : b, so the second one when an operand is NaN. That is MAXPS and MINPS, but the compiler
// does not see it.
GEARSHIFT_INLINE NativeFloat larger(NativeFloat a, NativeFloat b) {
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX__)
    return _mm256_max_ps(a, b);
#else
    return a > b ? a : b;
#endif
}
GEARSHIFT_INLINE NativeFloat smaller(NativeFloat a, NativeFloat b) {
#if defined(__AVX512F__)
    return _mm512_min_ps(a, b);
#elif defined(__AVX__)
    return _mm256_min_ps(a, b);
#else
    return a < b ? a : b;
#endif
}
GEARSHIFT_INLINE Floats larger(Floats a, Floats b) {
    GEARSHIFT_PARTS a.part[i] = larger(a.part[i], b.part[i]);
    return a;
}
GEARSHIFT_INLINE Floats smaller(Floats a, Floats b) {
    GEARSHIFT_PARTS a.part[i] = smaller(a.part[i], b.part[i]);
    return a;
}
GEARSHIFT_INLINE Floats magnitude(Floats a) {
    GEARSHIFT_PARTS a.part[i] = (NativeFloat)((NativeInt)a.part[i] & 0x7fffffff);
    return a;
}
GEARSHIFT_INLINE Floats to_floats(Ints a) {
    Floats out;
    GEARSHIFT_PARTS out.part[i] = __builtin_convertvector(a.part[i], NativeFloat);
    return out;
}

// Adding 1.5 * 2^23 leaves the nearest integer (ties to even) in the low bits: the same on every path, |a| < 2^22.
constexpr float ROUND = 12582912.0f;
constexpr int32_t ROUND_BITS = 0x4b400000;
GEARSHIFT_INLINE Ints to_ints(Floats a) {
    Ints out;
    GEARSHIFT_PARTS out.part[i] = (NativeInt)(a.part[i] + ROUND) - ROUND_BITS;
    return out;
}

// Lane i joins lane i + 8, then i + 4, i + 2 and i + 1, whatever the registers: one fixed tree.
template <class Join>
GEARSHIFT_INLINE float fold_lanes(Floats a, Join join) {
    for (int half = PARTS / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) a.part[i] = join(a.part[i], a.part[i + half]);
    NativeFloat lanes = a.part[0];
    for (int half = NATIVE / 2; half > 0; half /= 2) {
        NativeInt from;
        for (int i = 0; i < NATIVE; ++i) from[i] = (i + half) % NATIVE;
        lanes = join(lanes, __builtin_shuffle(lanes, from));
    }
    return lanes[0];
}
GEARSHIFT_INLINE float sum(Floats a) {
    return fold_lanes(a, [](NativeFloat x, NativeFloat y) { return x + y; });
}
GEARSHIFT_INLINE float maximum(Floats a) {
    return fold_lanes(a, [](NativeFloat x, NativeFloat y) { return larger(x, y); });
}

// 2^a for |a| <= 125 (clamped); relative error below 3e-7; exactly 1 for 0. Taylor series of 2^f on |f| <= 1/2.
GEARSHIFT_INLINE NativeFloat exp2(NativeFloat a) {
    const NativeFloat zero = {};
    a = smaller(larger(a, zero - 125.0f), zero + 125.0f);
    const NativeFloat shifted = a + ROUND;
    const NativeFloat f = a - (shifted - ROUND);
    NativeFloat p = 1.5403530e-4f * f + 1.3333558e-3f;
    p = p * f + 9.6181291e-3f;
    p = p * f + 5.5504109e-2f;
    p = p * f + 2.4022651e-1f;
    p = p * f + 6.9314718e-1f;
    p = p * f + 1.0f;
    return (NativeFloat)((NativeInt)p + (((NativeInt)shifted - ROUND_BITS) << 23));
}
GEARSHIFT_INLINE Floats exp2(Floats a) {
    GEARSHIFT_PARTS a.part[i] = exp2(a.part[i]);
    return a;
}
GEARSHIFT_INLINE float exp2(float a) {
    const NativeFloat zero = {};
    return exp2(zero + a)[0];
}
constexpr float LOG2_E = 1.44269504f;

}  // namespace
}  // namespace gearshift::GEARSHIFT_PATH
