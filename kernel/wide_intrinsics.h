// The AVX-512 intrinsics and AMX tile instructions that the wide paths use: the compiler's, or, in the test build that
// defines GEARSHIFT_EMULATE, plain C++ with the same meaning, so that any machine can test the same sources.
#pragma once

#ifdef GEARSHIFT_EMULATE
#include "emulate/amx.h"
#include "emulate/avx512.h"
#include "emulate/dot.h"
#define INLINE   // real calls: emulated instructions unrolled hundreds of times would take minutes to compile
#else
#define INLINE __attribute__((always_inline))
// GCC 12 takes the undefined operands of unmasked intrinsics for mistakes of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace gearshift {

// The dot products are our own asm as well: GCC 12 copies every sum to another register and back around the intrinsic,
// and does not fold the broadcast of a memory operand into it.
typedef int32_t Word __attribute__((may_alias, aligned(1)));

// sum + products of two signed 16-bit words in every 32-bit lane.
inline __m512i dot_words(__m512i sum, __m512i a, __m512i b) {
    asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}
// The same with one 32-bit word at `b` for all lanes.
inline __m512i dot_words(__m512i sum, __m512i a, const void* b) {
    asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(a), "m"(*static_cast<const Word*>(b)));
    return sum;
}
// sum + products of four unsigned bytes of a with the four signed bytes at `b`.
inline __m512i dot_bytes(__m512i sum, __m512i a, const void* b) {
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(a), "m"(*static_cast<const Word*>(b)));
    return sum;
}

// Tiles are asm for two reasons: the compiler does not know the tile registers, so every instruction must stay in order
// (volatile), and it must not move memory accesses over loads and stores of tiles or of their configuration (memory).
inline void tile_configure(const void* config) {
    asm volatile("ldtilecfg %0" ::"m"(*static_cast<const char (*)[64]>(config)) : "memory");
}
inline void tile_release() { asm volatile("tilerelease" ::: "memory"); }

template <int TILE>
inline void tile_zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(TILE));
}
template <int TILE>
inline void tile_load(const void* from, size_t stride) {
    asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(TILE), "r"(from), "r"(stride) : "memory");
}
template <int TILE>
inline void tile_store(void* to, size_t stride) {
    asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(TILE), "r"(to), "r"(stride) : "memory");
}
// SUM += A * B, signed bytes times signed bytes.
template <int SUM, int A, int B>
inline void tile_dot_signed() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUM), "i"(A), "i"(B));
}
// SUM += A * B, signed bytes times unsigned bytes.
template <int SUM, int A, int B>
inline void tile_dot_unsigned() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUM), "i"(A), "i"(B));
}

}  // namespace gearshift
#endif
