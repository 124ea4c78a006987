// Few rows with AVX-512: the codes meet both bytes of the activations in VPDPBUSD, straight from memory.
#include "linear_avx512.h"
#include "linear_wide.h"

namespace gearshift {
namespace {

constexpr int MOST_HEIGHT = 8;   // rows of one pass over codes

// Few rows. Per tile of inputs: hi and lo of each row, then two numbers of each row that the offsets need: 4 bits: the
// sums of the two blocks as 256 * a + b, first (b0, b1), then (a0, a1), int16 each; 8 bits: the two sums, negated.
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
                const int32_t negated[2] = {-sums[0], -sums[1]};
                std::memcpy(numbers, negated, sizeof negated);
            }
        }
    }
}

// sum[j] += q * x over one block of rows r, r + 1, ... of 16 channels, sums of hi and of lo in turns: four sums in flight
// hide the latency of a product.
template <int CHAINS>
INLINE inline void add_block(__m512i (&sum)[CHAINS], const __m512i (&q)[8], const uint8_t* x) {
    for_each<8>([&](auto i) INLINE {
        for_each<CHAINS>([&](auto j) INLINE { sum[j] = dot_bytes(sum[j], q[i], x + TILE_K * j + 4 * i); });
    });
}

// f(first, count) over rows in twos, the last alone when their number is odd.
template <int ROWS, class F>
INLINE inline void in_twos(F f) {
    for_each<ROWS / 2>([&](auto i) INLINE { f(std::integral_constant<int, 2 * i>(), std::integral_constant<int, 2>()); });
    if constexpr (ROWS % 2 == 1) f(std::integral_constant<int, ROWS - 1>(), std::integral_constant<int, 1>());
}

// One group. H = sum of q * hi and L = sum of q * lo over a block fit int16 (at most 32 * 15 * 64), so one VPDPWSSD of
// (L, H) with (k, 128 k) adds k * (128 H + L); another two add n * (256 a + b).
template <int ROWS>
void few_4(const Linear& l, const float* row_scales, const uint8_t* x, int group, const Results& results) {
    const int tiles = l.tiles();
    const uint8_t* record = l.records + size_t(group) * size_t(tiles) * RECORD_4;
    const __m512i nibble = _mm512_set1_epi8(15);
    for (int first = 0; first < tiles; first += SEGMENT_TILES) {
        __m512i sum[ROWS], high[ROWS];
        for_each<ROWS>([&](auto r) INLINE { sum[r] = high[r] = _mm512_setzero_si512(); });
        const int end = std::min(first + SEGMENT_TILES, tiles);
        for (int t = first; t < end; t++, record += RECORD_4, x += few_tile_bytes(ROWS)) {
            prefetch_record(record, RECORD_4);
            for (int b = 0; b < 2; b++) {
                __m512i q[8];
                for_each<4>([&](auto v) INLINE {
                    const __m512i codes = load(record + 64 * (4 * b + v));
                    q[2 * v] = _mm512_and_si512(codes, nibble);
                    q[2 * v + 1] = _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble);
                });
                const __m512i k = widen_bytes(record + 512 + 16 * b);
                const __m512i factors = _mm512_or_si512(k, _mm512_slli_epi32(k, 23));
                in_twos<ROWS>([&](auto first_row, auto count) INLINE {
                    __m512i block[2 * count];   // H and L of each row
                    for_each<2 * count>([&](auto j) INLINE { block[j] = _mm512_setzero_si512(); });
                    add_block(block, q, x + first_row * ROW_BYTES + BLOCK_K * b);
                    for_each<count>([&](auto j) INLINE {
                        const __m512i h = _mm512_slli_epi32(block[2 * j], 16);
                        const __m512i pair = _mm512_mask_mov_epi16(block[2 * j + 1], 0xaaaaaaaa, h);
                        sum[first_row + j] = dot_words(sum[first_row + j], pair, factors);
                    });
                });
            }
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

// One group: k * (128 (H - X) + L) per block, X the sum of x.
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
            for (int b = 0; b < 2; b++) {
                __m512i q[8];
                for_each<8>([&](auto v) INLINE { q[v] = load(record + 64 * (8 * b + v)); });
                const __m512i k = widen_bytes(record + 1024 + 16 * b);
                in_twos<ROWS>([&](auto first_row, auto count) INLINE {
                    const uint8_t* numbers = x + ROWS * ROW_BYTES + 8 * first_row + 4 * b;
                    __m512i block[2 * count];   // H - X and L of each row
                    for_each<count>([&](auto j) INLINE {
                        block[2 * j] = broadcast(numbers + 8 * j);
                        block[2 * j + 1] = _mm512_setzero_si512();
                    });
                    add_block(block, q, x + first_row * ROW_BYTES + BLOCK_K * b);
                    for_each<count>([&](auto j) INLINE {
                        const __m512i all = _mm512_add_epi32(_mm512_slli_epi32(block[2 * j], 7), block[2 * j + 1]);
                        sum[first_row + j] = _mm512_add_epi32(sum[first_row + j], _mm512_mullo_epi32(all, k));
                    });
                });
            }
        }
        for_each<ROWS>([&](auto r) INLINE { results.put(r, row_scales[r], sum[r], first == 0); });
    }
}

using FewKernel = void (*)(const Linear&, const float*, const uint8_t*, int, const Results&);
constexpr FewKernel few_kernels[2][MOST_HEIGHT] = {
    {few_4<1>, few_4<2>, few_4<3>, few_4<4>, few_4<5>, few_4<6>, few_4<7>, few_4<8>},
    {few_8<1>, few_8<2>, few_8<3>, few_8<4>, few_8<5>, few_8<6>, few_8<7>, few_8<8>}};

}  // namespace

void multiply_few_avx512(const Linear& l, const Activations& in, int group_begin, int group_end, float* out,
                         size_t stride, uint8_t* scratch) {
    const RowBlocks blocks(in.rows, MOST_HEIGHT);
    const uint8_t* arranged[MAX_FEW_ROWS / MOST_HEIGHT];
    for (int i = 0; i < blocks.count; i++) {
        const int row = blocks.begin(i), rows = blocks.height(i);
        arranged[i] = scratch;
        arrange_few(in, row, rows, l.bits, scratch);
        scratch += few_tile_bytes(rows) * size_t(l.tiles());
    }
    const FewKernel* kernels = few_kernels[l.bits == 4 ? 0 : 1];
    for (int g = group_begin; g < group_end; g++) {
        for (int i = 0; i < blocks.count; i++) {
            const int row = blocks.begin(i), rows = blocks.height(i);
            const Results results(l, g, out + size_t(row) * stride, stride);
            kernels[rows - 1](l, in.scale + row, arranged[i], g, results);
        }
    }
}

size_t few_scratch_bytes(int max_n_in) {
    return MAX_FEW_ROWS / MOST_HEIGHT * few_tile_bytes(MOST_HEIGHT) * size_t(tiles_of(max_n_in));
}

}  // namespace gearshift
