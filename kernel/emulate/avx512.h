// The AVX-512 intrinsics that the wide paths use, lane by lane as Intel's guide defines them. For tests only: it proves
// the integers, not the speed. MXCSR is taken to be at its default (round to nearest even).
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace emulated {

template <class T, int BYTES>
struct Lanes {
    static constexpr int count = BYTES / int(sizeof(T));
    T lane[count];
    T& operator[](int i) { return lane[i]; }
    T operator[](int i) const { return lane[i]; }
};

template <int BYTES>
struct alignas(BYTES) Integers {
    uint8_t byte[BYTES];
};

// The same bits seen as lanes of T, and back.
template <class T, int BYTES>
Lanes<T, BYTES> as(const Integers<BYTES>& x) {
    Lanes<T, BYTES> y;
    std::memcpy(&y, &x, BYTES);
    return y;
}
template <class T, int BYTES>
Integers<BYTES> bits(const Lanes<T, BYTES>& x) {
    Integers<BYTES> y;
    std::memcpy(&y, &x, BYTES);
    return y;
}

// result[i] = f(a[i], b[i]) over lanes of T.
template <class T, int BYTES, class F>
Integers<BYTES> each(const Integers<BYTES>& a, const Integers<BYTES>& b, F f) {
    const auto x = as<T>(a), y = as<T>(b);
    Lanes<T, BYTES> r;
    for (int i = 0; i < r.count; i++) r[i] = T(f(x[i], y[i]));
    return bits(r);
}
template <class T, class R, int FROM, int TO = FROM / int(sizeof(T)) * int(sizeof(R))>
Integers<TO> convert(const Integers<FROM>& a) {
    const auto x = as<T>(a);
    Lanes<R, TO> r;
    for (int i = 0; i < r.count; i++) r[i] = R(x[i]);
    return bits(r);
}

}  // namespace emulated

using __m128i = emulated::Integers<16>;
using __m256i = emulated::Integers<32>;
using __m512i = emulated::Integers<64>;
using __m512 = emulated::Lanes<float, 64>;
using __mmask16 = uint16_t;
using __mmask32 = uint32_t;
enum { _MM_HINT_T1 };

#define EMULATED(NAME, T, EXPRESSION)                                        \
    inline __m512i NAME(__m512i x, __m512i y) {                              \
        return emulated::each<T>(x, y, [](T a, T b) { return EXPRESSION; }); \
    }
EMULATED(_mm512_and_si512, uint64_t, a& b)
EMULATED(_mm512_or_si512, uint64_t, a | b)
EMULATED(_mm512_add_epi8, uint8_t, a + b)
EMULATED(_mm512_add_epi16, uint16_t, a + b)
EMULATED(_mm512_add_epi32, uint32_t, a + b)
EMULATED(_mm512_sub_epi16, uint16_t, a - b)
EMULATED(_mm512_sub_epi32, uint32_t, a - b)
EMULATED(_mm512_mullo_epi16, uint16_t, uint32_t(a) * b)
EMULATED(_mm512_mulhi_epu16, uint16_t, uint32_t(a) * b >> 16)
EMULATED(_mm512_mullo_epi32, uint32_t, a* b)
#undef EMULATED

#define EMULATED(NAME, T, EXPRESSION)                                       \
    inline __m512i NAME(__m512i x, unsigned n) {                            \
        return emulated::each<T>(x, x, [n](T a, T) { return EXPRESSION; }); \
    }
EMULATED(_mm512_slli_epi32, uint32_t, n > 31 ? 0 : a << n)
EMULATED(_mm512_srli_epi32, uint32_t, n > 31 ? 0 : a >> n)
EMULATED(_mm512_srai_epi32, int32_t, a >> std::min(n, 31u))
EMULATED(_mm512_slli_epi16, uint16_t, n > 15 ? 0 : a << n)
EMULATED(_mm512_srli_epi16, uint16_t, n > 15 ? 0 : a >> n)
EMULATED(_mm512_srli_epi64, uint64_t, n > 63 ? 0 : a >> n)
#undef EMULATED

inline void _mm_prefetch(const char*, int) {}
inline __m512i _mm512_loadu_si512(const void* p) {
    __m512i x;
    std::memcpy(&x, p, sizeof x);
    return x;
}
inline void _mm512_storeu_si512(void* p, __m512i x) { std::memcpy(p, &x, sizeof x); }
inline __m128i _mm_loadu_si128(const __m128i* p) {
    __m128i x;
    std::memcpy(&x, static_cast<const void*>(p), sizeof x);
    return x;
}
inline __m256i _mm256_loadu_si256(const __m256i* p) {
    __m256i x;
    std::memcpy(&x, static_cast<const void*>(p), sizeof x);
    return x;
}
inline void _mm_storeu_si128(__m128i* p, __m128i x) { std::memcpy(static_cast<void*>(p), &x, sizeof x); }
inline void _mm256_storeu_si256(__m256i* p, __m256i x) { std::memcpy(static_cast<void*>(p), &x, sizeof x); }

inline __m512i _mm512_setzero_si512() { return {}; }
template <class T>
__m512i emulated_set1(T x) {
    emulated::Lanes<T, 64> r;
    std::fill(r.lane, r.lane + r.count, x);
    return emulated::bits(r);
}
inline __m512i _mm512_set1_epi8(char x) { return emulated_set1(int8_t(x)); }
inline __m512i _mm512_set1_epi16(short x) { return emulated_set1(int16_t(x)); }
inline __m512i _mm512_set1_epi32(int x) { return emulated_set1(int32_t(x)); }
inline __m512i _mm512_set1_epi64(long long x) { return emulated_set1(int64_t(x)); }
inline __m128i _mm_setr_epi32(int a, int b, int c, int d) {
    return emulated::bits(emulated::Lanes<int32_t, 16>{a, b, c, d});
}
inline __m512i _mm512_broadcast_i32x4(__m128i x) {
    __m512i r;
    for (int i = 0; i < 4; i++) std::memcpy(r.byte + 16 * i, &x, 16);
    return r;
}

inline __m512i _mm512_cvtepu8_epi32(__m128i x) { return emulated::convert<uint8_t, uint32_t>(x); }
inline __m512i _mm512_cvtepi8_epi16(__m256i x) { return emulated::convert<int8_t, int16_t>(x); }
inline __m256i _mm512_cvtepi64_epi32(__m512i x) { return emulated::convert<int64_t, int32_t>(x); }
inline __m256i _mm512_cvtepi32_epi16(__m512i x) { return emulated::convert<int32_t, int16_t>(x); }
inline __m128i _mm512_cvtepi32_epi8(__m512i x) { return emulated::convert<int32_t, int8_t>(x); }

// Each quarter shuffles its own bytes; a set top bit of the index gives zero.
inline __m512i _mm512_shuffle_epi8(__m512i x, __m512i index) {
    __m512i r;
    for (int i = 0; i < 64; i++) r.byte[i] = index.byte[i] & 128 ? 0 : x.byte[i / 16 * 16 + (index.byte[i] & 15)];
    return r;
}
template <int BYTES>
emulated::Integers<BYTES> emulated_shuffle_words(emulated::Integers<BYTES> x, int control, int first) {
    const auto words = emulated::as<uint16_t>(x);
    auto r = words;
    for (int start = first; start < r.count; start += 8)
        for (int i = 0; i < 4; i++) r[start + i] = words[start + (control >> 2 * i & 3)];
    return emulated::bits(r);
}
inline __m128i _mm_shufflelo_epi16(__m128i x, int control) { return emulated_shuffle_words(x, control, 0); }
inline __m128i _mm_shufflehi_epi16(__m128i x, int control) { return emulated_shuffle_words(x, control, 4); }
inline __m512i _mm512_mask_mov_epi16(__m512i base, __mmask32 mask, __m512i x) {
    auto r = emulated::as<uint16_t>(base);
    const auto y = emulated::as<uint16_t>(x);
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) r[i] = y[i];
    return emulated::bits(r);
}

// sum + products of two signed 16-bit words in every 32-bit lane, without saturation.
[[gnu::noinline]] inline __m512i _mm512_dpwssd_epi32(__m512i sum, __m512i a, __m512i b) {
    auto r = emulated::as<uint32_t>(sum);
    const auto x = emulated::as<int16_t>(a), y = emulated::as<int16_t>(b);
    for (int i = 0; i < 32; i++) r[i / 2] += uint32_t(int32_t(x[i]) * int32_t(y[i]));
    return emulated::bits(r);
}
// sum + products of four unsigned bytes of a and four signed bytes of b, without saturation.
[[gnu::noinline]] inline __m512i _mm512_dpbusd_epi32(__m512i sum, __m512i a, __m512i b) {
    auto r = emulated::as<uint32_t>(sum);
    const auto x = emulated::as<uint8_t>(a);
    const auto y = emulated::as<int8_t>(b);
    for (int i = 0; i < 64; i++) r[i / 4] += uint32_t(int32_t(x[i]) * int32_t(y[i]));
    return emulated::bits(r);
}
inline int32_t _mm512_reduce_add_epi32(__m512i x) {
    const auto lanes = emulated::as<uint32_t>(x);
    uint32_t sum = 0;
    for (uint32_t lane : lanes.lane) sum += lane;
    return int32_t(sum);
}

template <class F>
__m512 emulated_floats(__m512 a, __m512 b, F f) {
    __m512 r;
    for (int i = 0; i < 16; i++) r[i] = f(a[i], b[i]);
    return r;
}
inline __m512 _mm512_set1_ps(float x) {
    __m512 r;
    std::fill(r.lane, r.lane + 16, x);
    return r;
}
inline __m512 _mm512_setzero_ps() { return _mm512_set1_ps(0); }
inline __m512 _mm512_add_ps(__m512 a, __m512 b) {
    return emulated_floats(a, b, [](float x, float y) { return x + y; });
}
inline __m512 _mm512_mul_ps(__m512 a, __m512 b) {
    return emulated_floats(a, b, [](float x, float y) { return x * y; });
}
// The second operand wins when one is NaN.
inline __m512 _mm512_min_ps(__m512 a, __m512 b) {
    return emulated_floats(a, b, [](float x, float y) { return x < y ? x : y; });
}
inline __m512 _mm512_max_ps(__m512 a, __m512 b) {
    return emulated_floats(a, b, [](float x, float y) { return x > y ? x : y; });
}
inline __m512 _mm512_abs_ps(__m512 a) {
    return emulated_floats(a, a, [](float x, float) { return std::fabs(x); });
}
inline float _mm512_reduce_max_ps(__m512 x) { return *std::max_element(x.lane, x.lane + 16); }
inline __m512i _mm512_cvtps_epi32(__m512 x) {
    emulated::Lanes<int32_t, 64> r;
    for (int i = 0; i < 16; i++) r[i] = int32_t(std::nearbyint(x[i]));
    return emulated::bits(r);
}
inline __m512 _mm512_cvtepi32_ps(__m512i x) {
    const auto lanes = emulated::as<int32_t>(x);
    __m512 r;
    for (int i = 0; i < 16; i++) r[i] = float(lanes[i]);
    return r;
}
inline __m512 _mm512_loadu_ps(const float* p) {
    __m512 r;
    std::memcpy(&r, p, sizeof r);
    return r;
}
// Lanes outside the mask are neither read nor written.
inline __m512 _mm512_maskz_loadu_ps(__mmask16 mask, const float* p) {
    __m512 r = _mm512_setzero_ps();
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) r[i] = p[i];
    return r;
}
inline void _mm512_mask_storeu_ps(float* p, __mmask16 mask, __m512 x) {
    for (int i = 0; i < 16; i++)
        if (mask >> i & 1) p[i] = x[i];
}
