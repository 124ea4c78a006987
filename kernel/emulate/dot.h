// The dot products of wide_intrinsics.h in emulated intrinsics.
#pragma once
#include "avx512.h"

namespace gearshift {

inline __m512i emulated_broadcast(const void* p) {
    int32_t x;
    std::memcpy(&x, p, sizeof x);
    return _mm512_set1_epi32(x);
}
inline __m512i dot_words(__m512i sum, __m512i a, __m512i b) { return _mm512_dpwssd_epi32(sum, a, b); }
inline __m512i dot_words(__m512i sum, __m512i a, const void* b) { return dot_words(sum, a, emulated_broadcast(b)); }
inline __m512i dot_bytes(__m512i sum, __m512i a, const void* b) {
    return _mm512_dpbusd_epi32(sum, a, emulated_broadcast(b));
}

}  // namespace gearshift
