// Linear layers with AVX-512 (F, BW, VNNI). Few rows: the codes meet both bytes of the activations in VPDPBUSD,
// straight from memory. Many rows: a group's integers are expanded to int16 once and meet 16 rows in VPDPWSSD.
// Tested by emulation; written on a machine without these instructions, so nothing here was timed: thresholds are
// counts of instructions, and the distance of the prefetch is what a prototype liked on another machine.
#include "linear_avx512.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "wide_intrinsics.h"

namespace gearshift {
namespace {

constexpr int SEGMENT_TILES = SEGMENT_K / TILE_K;
constexpr int ROW_BYTES = 128;   // of one row in one tile, arranged: 64 hi and 64 lo, or 64 int16
constexpr int ROW_BLOCK = 16;    // rows of one pass over expanded weights
constexpr int FEW_BLOCK = 4;     // rows of one pass over codes
constexpr int EXPANDED_TILE = GROUP * TILE_K * 2;
constexpr int AHEAD = 8192;   // distance of the prefetch, in bytes of weights

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }
int tiles_of(int n_in) { return (n_in + TILE_K - 1) / TILE_K; }

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

// One row of quantised activations, as in linear_portable.cpp.
void quantize_row(const float* in, Activations& out, int row) {
    const int n_in = out.n_in, limit = activation_limit(n_in);
    const size_t begin = size_t(row) * size_t(out.padded);
    auto load_floats = [&](int i) {
        const int left = n_in - i;
        const __mmask16 inside = left >= 16 ? __mmask16(0xffff) : left > 0 ? __mmask16((1u << left) - 1) : __mmask16(0);
        return _mm512_maskz_loadu_ps(inside, in + i);
    };
    __m512 peaks = _mm512_setzero_ps();
    for (int i = 0; i < n_in; i += 16) peaks = _mm512_max_ps(_mm512_abs_ps(load_floats(i)), peaks);   // skips NaN
    const float largest = _mm512_reduce_max_ps(peaks);
    const bool zero = largest < TINY_ROW;
    const float top = float(limit), factor = zero ? 0.0f : top / largest;
    out.scale[row] = zero ? 0.0f : largest / top;

    const __m512 factors = _mm512_set1_ps(factor), tops = _mm512_set1_ps(top), bottoms = _mm512_set1_ps(-top);
    const __m512i half = _mm512_set1_epi32(64);
    int32_t* sums = out.block_sums + size_t(row) * size_t(out.padded / BLOCK_K);
    for (int i = 0; i < out.padded; i += 16) {
        __m512 v = zero ? _mm512_setzero_ps() : _mm512_mul_ps(load_floats(i), factors);
        v = _mm512_max_ps(_mm512_min_ps(v, tops), bottoms);   // in this operand order NaN becomes top
        const __m512i x = _mm512_cvtps_epi32(v);              // nearest even
        const __m512i hi = _mm512_srai_epi32(_mm512_add_epi32(x, half), 7);
        const __m512i lo = _mm512_sub_epi32(x, _mm512_slli_epi32(hi, 7));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.x + begin + i), _mm512_cvtepi32_epi16(x));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out.hi + begin + i), _mm512_cvtepi32_epi8(hi));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out.lo + begin + i), _mm512_cvtepi32_epi8(lo));
        const int32_t sum = _mm512_reduce_add_epi32(x);
        if (i % BLOCK_K == 0)
            sums[i / BLOCK_K] = sum;
        else
            sums[i / BLOCK_K] += sum;
    }
}

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

// Few rows. Per tile of inputs: hi and lo of each row, then two numbers of each row that the offsets need: 4 bits: the
// sums of the two blocks as 256 * a + b, first (b0, b1), then (a0, a1), int16 each; 8 bits: the two sums.
constexpr size_t few_tile_bytes(int rows) { return size_t(rows) * ROW_BYTES + 64; }

void arrange_few(const Activations& in, int first_row, int rows, int bits, uint8_t* to) {
    for (int t = 0; t < in.padded / TILE_K; t++, to += few_tile_bytes(rows)) {
        for (int r = 0; r < rows; r++) {
            const size_t row = size_t(first_row + r), at = row * size_t(in.padded) + size_t(t) * TILE_K;
            std::memcpy(to + r * ROW_BYTES, in.hi + at, TILE_K);
            std::memcpy(to + r * ROW_BYTES + TILE_K, in.lo + at, TILE_K);
            const int32_t* sums = in.block_sums + row * size_t(in.padded / BLOCK_K) + 2 * t;
            uint8_t* numbers = to + rows * ROW_BYTES + 8 * r;
            if (bits == 4) {
                const int16_t parts[4] = {int16_t(sums[0] & 255), int16_t(sums[1] & 255), int16_t(sums[0] >> 8),
                                          int16_t(sums[1] >> 8)};
                std::memcpy(numbers, parts, sizeof parts);
            } else {
                std::memcpy(numbers, sums, 8);
            }
        }
    }
}

inline void prefetch_record(const uint8_t* record, int bytes) {
    for (int i = 0; i < bytes; i += 64) _mm_prefetch(reinterpret_cast<const char*>(record + AHEAD + i), _MM_HINT_T1);
}

// H = sum of q * hi and L = sum of q * lo over one block of one row, of 16 channels.
struct BlockSums {
    __m512i h, l;
};
template <int... I>
INLINE inline BlockSums block_sums(const __m512i (&q)[8], const uint8_t* row, std::integer_sequence<int, I...>) {
    __m512i h = _mm512_setzero_si512(), l = h;
    ((h = dot_bytes(h, q[I], row + 4 * I), l = dot_bytes(l, q[I], row + TILE_K + 4 * I)), ...);
    return {h, l};
}

// One group. H and L fit int16 (at most 32 * 15 * 64), so one VPDPWSSD of (L, H) with (k, 128 k) adds k * (128 H + L);
// another two add n * (256 a + b).
template <int ROWS>
void few_4(const Linear& l, const float* row_scales, const uint8_t* x, int group, const Results& results) {
    const int tiles = l.tiles();
    const uint8_t* record = l.records + size_t(group) * size_t(tiles) * RECORD_4;
    const __m512i nibble = _mm512_set1_epi8(15), low_half = _mm512_set1_epi32(0xffff);
    for (int first = 0; first < tiles; first += SEGMENT_TILES) {
        __m512i sum[ROWS], high[ROWS];
        for_each<ROWS>([&](auto r) INLINE { sum[r] = high[r] = _mm512_setzero_si512(); });
        const int end = std::min(first + SEGMENT_TILES, tiles);
        for (int t = first; t < end; t++, record += RECORD_4, x += few_tile_bytes(ROWS)) {
            prefetch_record(record, RECORD_4);
            for_each<2>([&](auto b) INLINE {
                __m512i q[8];
                for_each<4>([&](auto v) INLINE {
                    const __m512i codes = load(record + 64 * (4 * b + v));
                    q[2 * v] = _mm512_and_si512(codes, nibble);
                    q[2 * v + 1] = _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble);
                });
                const __m512i k = widen_bytes(record + 512 + 16 * b);
                const __m512i factors = _mm512_or_si512(k, _mm512_slli_epi32(k, 23));
                for_each<ROWS>([&](auto r) INLINE {
                    const BlockSums block =
                        block_sums(q, x + r * ROW_BYTES + BLOCK_K * b, std::make_integer_sequence<int, 8>());
                    const __m512i pair =
                        _mm512_or_si512(_mm512_and_si512(block.l, low_half), _mm512_slli_epi32(block.h, 16));
                    sum[r] = dot_words(sum[r], pair, factors);
                });
            });
            const __m512i n = load(record + 544);
            for_each<ROWS>([&](auto r) INLINE {
                const uint8_t* numbers = x + ROWS * ROW_BYTES + 8 * r;
                sum[r] = dot_words(sum[r], n, numbers);
                high[r] = dot_words(high[r], n, numbers + 4);
            });
        }
        for_each<ROWS>([&](auto r) INLINE {
            results.put(r, row_scales[r], _mm512_add_epi32(sum[r], _mm512_slli_epi32(high[r], 8)), first == 0);
        });
    }
}

// One group: k * (128 H + L - 128 X) per block, X the sum of x.
template <int ROWS>
void few_8(const Linear& l, const float* row_scales, const uint8_t* x, int group, const Results& results) {
    const int tiles = l.tiles();
    const uint8_t* record = l.records + size_t(group) * size_t(tiles) * RECORD_8;
    for (int first = 0; first < tiles; first += SEGMENT_TILES) {
        __m512i sum[ROWS];
        for_each<ROWS>([&](auto r) INLINE { sum[r] = _mm512_setzero_si512(); });
        const int end = std::min(first + SEGMENT_TILES, tiles);
        for (int t = first; t < end; t++, record += RECORD_8, x += few_tile_bytes(ROWS)) {
            prefetch_record(record, RECORD_8);
            for_each<2>([&](auto b) INLINE {
                __m512i q[8];
                for_each<8>([&](auto v) INLINE { q[v] = load(record + 64 * (8 * b + v)); });
                const __m512i k = widen_bytes(record + 1024 + 16 * b);
                for_each<ROWS>([&](auto r) INLINE {
                    const BlockSums block =
                        block_sums(q, x + r * ROW_BYTES + BLOCK_K * b, std::make_integer_sequence<int, 8>());
                    const __m512i h = _mm512_sub_epi32(block.h, broadcast(x + ROWS * ROW_BYTES + 8 * r + 4 * b));
                    const __m512i all = _mm512_add_epi32(_mm512_slli_epi32(h, 7), block.l);
                    sum[r] = _mm512_add_epi32(sum[r], _mm512_mullo_epi32(all, k));
                });
            });
        }
        for_each<ROWS>([&](auto r) INLINE { results.put(r, row_scales[r], sum[r], first == 0); });
    }
}

using FewKernel = void (*)(const Linear&, const float*, const uint8_t*, int, const Results&);
constexpr FewKernel few_kernels[2][FEW_BLOCK] = {{few_4<1>, few_4<2>, few_4<3>, few_4<4>},
                                                 {few_8<1>, few_8<2>, few_8<3>, few_8<4>}};

// Many rows. 16 rows of one tile: 128 bytes each, int16, every four inputs in the order 0, 2, 1, 3, which is how the
// bytes of a code vector fall apart into int16 lanes.
void arrange_many(const Activations& in, int first_row, int rows, uint8_t* to) {
    const int tiles = in.padded / TILE_K;
    for (int start = 0; start < rows; start += ROW_BLOCK) {
        for (int t = 0; t < tiles; t++, to += ROW_BLOCK * ROW_BYTES) {
            for (int r = 0; r < ROW_BLOCK; r++) {
                for (int half = 0; half < 2; half++) {
                    __m512i x = _mm512_setzero_si512();
                    if (start + r < rows) {
                        const size_t row = size_t(first_row + start + r);
                        x = load(in.x + row * size_t(in.padded) + size_t(t) * TILE_K + 32 * half);
                        x = _mm512_shufflehi_epi16(_mm512_shufflelo_epi16(x, 0xd8), 0xd8);
                    }
                    _mm512_storeu_si512(to + r * ROW_BYTES + 64 * half, x);
                }
            }
        }
    }
}

// w_int of one tile as 32 vectors of 16 channels by two inputs.
void expand_4(const uint8_t* record, uint8_t* to) {
    const __m512i code = _mm512_set1_epi16(15), low_half = _mm512_set1_epi32(0xffff);
    const __m512i n = load(record + 544);
    for (int b = 0; b < 2; b++) {
        const __m512i k = widen_bytes(record + 512 + 16 * b);
        const __m512i factor = _mm512_or_si512(k, _mm512_slli_epi32(k, 16));
        const __m512i own = b == 0 ? _mm512_and_si512(n, low_half) : _mm512_srli_epi32(n, 16);
        const __m512i offset = _mm512_or_si512(own, _mm512_slli_epi32(own, 16));
        for (int v = 0; v < 4; v++, to += 256) {
            const __m512i codes = load(record + 64 * (4 * b + v));
            const __m512i q[4] = {_mm512_and_si512(codes, code), _mm512_and_si512(_mm512_srli_epi16(codes, 8), code),
                                  _mm512_and_si512(_mm512_srli_epi16(codes, 4), code), _mm512_srli_epi16(codes, 12)};
            for (int i = 0; i < 4; i++)
                _mm512_storeu_si512(to + 64 * i, _mm512_add_epi16(_mm512_mullo_epi16(q[i], factor), offset));
        }
    }
}

void expand_8(const uint8_t* record, uint8_t* to) {
    const __m512i code = _mm512_set1_epi16(255), middle = _mm512_set1_epi16(128);
    for (int b = 0; b < 2; b++) {
        const __m512i k = widen_bytes(record + 1024 + 16 * b);
        const __m512i factor = _mm512_or_si512(k, _mm512_slli_epi32(k, 16));
        for (int v = 0; v < 8; v++, to += 128) {
            const __m512i codes = load(record + 64 * (8 * b + v));
            const __m512i q[2] = {_mm512_and_si512(codes, code), _mm512_srli_epi16(codes, 8)};
            for (int i = 0; i < 2; i++)
                _mm512_storeu_si512(to + 64 * i, _mm512_mullo_epi16(_mm512_sub_epi16(q[i], middle), factor));
        }
    }
}

// The segment from tile `first` on: `tiles` tiles of expanded weights with up to 16 rows.
template <int ROWS>
void many(const uint8_t* w, const uint8_t* x, int tiles, int rows, const float* row_scales, int row,
          const Results& results, bool first) {
    __m512i sum[ROWS];
    for_each<ROWS>([&](auto r) INLINE { sum[r] = _mm512_setzero_si512(); });
    for (int t = 0; t < tiles; t++, x += ROW_BLOCK * ROW_BYTES, w += EXPANDED_TILE) {
        for (int i = 0; i < TILE_K / 2; i++) {
            const __m512i weights = load(w + 64 * i);
            for_each<ROWS>([&](auto r) INLINE { sum[r] = dot_words(sum[r], weights, x + r * ROW_BYTES + 4 * i); });
        }
    }
    for_each<ROWS>([&](auto r) INLINE {
        if (r < rows) results.put(row + r, row_scales[row + r], sum[r], first);
    });
}

using ManyKernel = void (*)(const uint8_t*, const uint8_t*, int, int, const float*, int, const Results&, bool);
constexpr ManyKernel many_kernels[4] = {many<4>, many<8>, many<12>, many<16>};

void multiply_many(const Linear& l, const Activations& in, int group_begin, int group_end, float* out, size_t stride,
                   uint8_t* scratch) {
    uint8_t* weights = scratch;
    uint8_t* x = scratch + SEGMENT_TILES * EXPANDED_TILE;
    const int tiles = l.tiles(), step = rows_at_a_time(in.rows, in.padded);
    for (int first_row = 0; first_row < in.rows; first_row += step) {
        const int rows = std::min(step, in.rows - first_row);
        arrange_many(in, first_row, rows, x);
        for (int g = group_begin; g < group_end; g++) {
            const Results results(l, g, out + size_t(first_row) * stride, stride);
            const uint8_t* record = l.records + size_t(g) * size_t(tiles) * l.record_bytes();
            for (int first = 0; first < tiles; first += SEGMENT_TILES) {
                const int count = std::min(SEGMENT_TILES, tiles - first);
                for (int t = 0; t < count; t++, record += l.record_bytes()) {
                    prefetch_record(record, int(l.record_bytes()));
                    (l.bits == 4 ? expand_4 : expand_8)(record, weights + t * EXPANDED_TILE);
                }
                for (int row = 0; row < rows; row += ROW_BLOCK) {
                    const int here = std::min(ROW_BLOCK, rows - row);
                    const uint8_t* at = x + (size_t(row) * size_t(tiles) + size_t(first) * ROW_BLOCK) * ROW_BYTES;
                    many_kernels[(here - 1) / 4](weights, at, count, here, in.scale + first_row, row, results,
                                                 first == 0);
                }
            }
        }
    }
}

void multiply(const Linear& l, const Activations& in, int group_begin, int group_end, float* out, size_t stride,
              uint8_t* scratch) {
    // By count of instructions the two ways meet at about 11 rows; few rows also need no memory for expanded weights.
    auto* way = in.rows <= MAX_FEW_ROWS ? multiply_few_avx512 : multiply_many;
    way(l, in, group_begin, group_end, out, stride, scratch);
}

size_t scratch_bytes(int max_rows, int max_n_in) {
    return std::max(few_scratch_bytes(max_n_in), SEGMENT_TILES * EXPANDED_TILE + arranged_bytes(max_rows, max_n_in));
}

}  // namespace

void quantize_avx512(const float* in, size_t stride, Activations& out, int row_begin, int row_end) {
    for (int row = row_begin; row < row_end; row++) quantize_row(in + size_t(row) * stride, out, row);
}

void multiply_few_avx512(const Linear& l, const Activations& in, int group_begin, int group_end, float* out,
                         size_t stride, uint8_t* scratch) {
    uint8_t* blocks[MAX_FEW_ROWS / FEW_BLOCK];
    for (int row = 0; row < in.rows; row += FEW_BLOCK) {
        const int rows = std::min(FEW_BLOCK, in.rows - row);
        blocks[row / FEW_BLOCK] = scratch;
        arrange_few(in, row, rows, l.bits, scratch);
        scratch += few_tile_bytes(rows) * size_t(l.tiles());
    }
    const FewKernel* kernels = few_kernels[l.bits == 4 ? 0 : 1];
    for (int g = group_begin; g < group_end; g++) {
        for (int row = 0; row < in.rows; row += FEW_BLOCK) {
            const Results results(l, g, out + size_t(row) * stride, stride);
            kernels[std::min(FEW_BLOCK, in.rows - row) - 1](l, in.scale + row, blocks[row / FEW_BLOCK], g, results);
        }
    }
}

size_t few_scratch_bytes(int max_n_in) {
    return MAX_FEW_ROWS / FEW_BLOCK * few_tile_bytes(FEW_BLOCK) * size_t(tiles_of(max_n_in));
}

int rows_at_a_time(int rows, int padded) {
    const int fit = std::clamp((1 << 19) / (padded * 2) / ROW_BLOCK * ROW_BLOCK, ROW_BLOCK, 256);
    const int passes = (rows + fit - 1) / fit;
    return ((rows + passes - 1) / passes + ROW_BLOCK - 1) / ROW_BLOCK * ROW_BLOCK;
}

size_t arranged_bytes(int max_rows, int max_n_in) {
    const size_t row = size_t(tiles_of(max_n_in)) * ROW_BYTES;
    const size_t all = size_t((max_rows + ROW_BLOCK - 1) / ROW_BLOCK * ROW_BLOCK) * row;
    return aligned(std::min(all, std::max(size_t(1) << 19, row * ROW_BLOCK)));
}

const LinearPath linear_avx512 = {"avx512", quantize_avx512, multiply, scratch_bytes};

}  // namespace gearshift
