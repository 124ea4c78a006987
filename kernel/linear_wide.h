// What the AVX-512 loops over packed weights share: reading records, and turning sums into results.
#pragma once
#include <algorithm>
#include <cstring>
#include <utility>

#include "linear.h"
#include "wide_intrinsics.h"

namespace gearshift {
namespace {   // compiled for AVX-512 in each file that includes it; nothing for the linker to merge

constexpr int SEGMENT_TILES = SEGMENT_K / TILE_K;
constexpr int ROW_BYTES = 128;   // of one row in one tile, arranged: 64 hi and 64 lo, or 64 int16
constexpr int AHEAD = 8192;      // distance of the prefetch, in bytes of weights

inline int tiles_of(int n_in) { return (n_in + TILE_K - 1) / TILE_K; }

// f(0), f(1), ... with constants, so that arrays indexed by them stay in registers (a loop unrolled by the optimiser
// comes too late for that in GCC 12).
template <int COUNT, class F>
INLINE inline void for_each(F f) {
    [&]<int... I>(std::integer_sequence<int, I...>) INLINE {
        (f(std::integral_constant<int, I>()), ...);
    }(std::make_integer_sequence<int, COUNT>());
}

inline __m512i load(const void* p) { return _mm512_loadu_si512(p); }
inline __m512i widen_bytes(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline __m512i broadcast(const void* p) {
    int32_t x;
    std::memcpy(&x, p, sizeof x);
    return _mm512_set1_epi32(x);
}

inline void prefetch_record(const uint8_t* record, int bytes) {
    for (int i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(record + AHEAD + i), _MM_HINT_T1);
}

// Rows cut into as few blocks of nearly equal height as a limit (an even number) allows; only the last may be odd.
struct RowBlocks {
    int rows, count;
    RowBlocks(int all, int most_height) : rows(all), count((all + most_height - 1) / most_height) {}
    int begin(int block) const { return block == count ? rows : (rows + 1) / 2 * block / count * 2; }
    int height(int block) const { return begin(block + 1) - begin(block); }
};

// Where one group's results go, and how sums become results.
struct Results {
    float* out;
    size_t stride;
    __mmask16 channels;
    __m512 scale;

    Results(const Linear& l, int group, float* to, size_t step)
        : out(to + size_t(group) * GROUP),
          stride(step),
          channels(__mmask16((1u << std::min(GROUP, l.n_out - group * GROUP)) - 1)),
          scale(_mm512_loadu_ps(l.scale + size_t(group) * GROUP)) {}

    // The first segment is stored, later ones are added, in order.
    void put(int row, float row_scale, __m512i sum, bool first) const {
        float* to = out + size_t(row) * stride;
        __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, _mm512_set1_ps(row_scale)));
        if (!first) y = _mm512_add_ps(_mm512_maskz_loadu_ps(channels, to), y);
        _mm512_mask_storeu_ps(to, channels, y);
    }
};

}  // namespace
}  // namespace gearshift
