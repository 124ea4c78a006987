// What the sources of the AVX2 linear path share: vector steps, and the parts of a multiplication. For *_avx2.cpp only.
#pragma once
#include <immintrin.h>

#include <cstring>

#include "linear.h"

namespace gearshift::avx2 {

constexpr int FEW_ROWS = 4;   // beyond this, expanding the weights pays

// Up to FEW_ROWS rows, straight from the codes.
void multiply_few(const Linear&, const Activations&, int group_begin, int group_end, float* out, size_t stride,
                  uint8_t* scratch);
size_t scratch_bytes_few(int max_n_in);

// Any number of rows, from weights expanded to int16.
void multiply_many(const Linear&, const Activations&, int group_begin, int group_end, float* out, size_t stride,
                   uint8_t* scratch);
size_t scratch_bytes_many(int max_rows);

// out = float(S) * (s_c * s_x), or out += for segments after the first. sums [rows][16].
void write_rows(const int32_t* sums, int rows, const Linear&, const float* row_scale, int group, bool first, float* out,
                size_t stride);

inline int minimum(int a, int b) { return a < b ? a : b; }

inline __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline void store(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
inline __m256i broadcast4(const void* p) {
    int32_t v;
    std::memcpy(&v, p, 4);
    return _mm256_set1_epi32(v);
}
// The inner steps are written as instructions: left alone, the compiler regroups the sums of an unrolled loop, runs out
// of registers and spills them. Each reads four bytes of activations once and uses them for both halves of a group.

// sum0, sum1 += pairs of int16 times the pair at x.
inline void add_products16(__m256i& sum0, __m256i& sum1, __m256i w0, __m256i w1, const int16_t* x) {
    __m256i a, b;
    asm("vpbroadcastd %[x], %[a]\n\t"
        "vpmaddwd %[a], %[w0], %[b]\n\t"
        "vpmaddwd %[a], %[w1], %[a]\n\t"
        "vpaddd %[b], %[s0], %[s0]\n\t"
        "vpaddd %[a], %[s1], %[s1]"
        : [s0] "+x"(sum0), [s1] "+x"(sum1), [a] "=&x"(a), [b] "=&x"(b)
        : [w0] "x"(w0), [w1] "x"(w1), [x] "m"(*reinterpret_cast<const int16_t(*)[2]>(x)));
}
inline void add_products16(__m256i& sum, __m256i w, const int16_t* x) {
    __m256i a;
    asm("vpbroadcastd %[x], %[a]\n\t"
        "vpmaddwd %[a], %[w], %[a]\n\t"
        "vpaddd %[a], %[s], %[s]"
        : [s] "+x"(sum), [a] "=&x"(a)
        : [w] "x"(w), [x] "m"(*reinterpret_cast<const int16_t(*)[2]>(x)));
}
// sum0, sum1 += unsigned bytes times the four signed bytes at x, in 16 bits.
inline void add_products8(__m256i& sum0, __m256i& sum1, __m256i q0, __m256i q1, const int8_t* x) {
    __m256i a, b;
    asm("vpbroadcastd %[x], %[a]\n\t"
        "vpmaddubsw %[a], %[q0], %[b]\n\t"
        "vpmaddubsw %[a], %[q1], %[a]\n\t"
        "vpaddw %[b], %[s0], %[s0]\n\t"
        "vpaddw %[a], %[s1], %[s1]"
        : [s0] "+x"(sum0), [s1] "+x"(sum1), [a] "=&x"(a), [b] "=&x"(b)
        : [q0] "x"(q0), [q1] "x"(q1), [x] "m"(*reinterpret_cast<const int8_t(*)[4]>(x)));
}
inline void add_products8(__m256i& sum, __m256i q, const int8_t* x) {
    __m256i a;
    asm("vpbroadcastd %[x], %[a]\n\t"
        "vpmaddubsw %[a], %[q], %[a]\n\t"
        "vpaddw %[a], %[s], %[s]"
        : [s] "+x"(sum), [a] "=&x"(a)
        : [q] "x"(q), [x] "m"(*reinterpret_cast<const int8_t(*)[4]>(x)));
}
// Makes the compiler keep a pointer as it is instead of computing it from others in the loop.
template <class T>
inline void keep(T*& pointer) {
    asm("" : "+r"(pointer));
}
inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }

// Shuffles that spread inputs 0 and 1, or 2 and 3, of every channel's four bytes to 16 bits.
inline __m256i low_pairs() { return _mm256_broadcastsi128_si256(_mm_set_epi8(-1, 13, -1, 12, -1, 9, -1, 8, -1, 5, -1, 4, -1, 1, -1, 0)); }
inline __m256i high_pairs() { return _mm256_broadcastsi128_si256(_mm_set_epi8(-1, 15, -1, 14, -1, 11, -1, 10, -1, 7, -1, 6, -1, 3, -1, 2)); }

}  // namespace gearshift::avx2
