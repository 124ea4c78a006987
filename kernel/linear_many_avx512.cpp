// Many rows with AVX-512: the integers of the weights are made in registers, eight inputs at a time, and meet up to
// MOST_HEIGHT rows in VPDPWSSD before the next are made; nothing expanded is ever stored.
//
// Zen 4 and most others start one 512-bit product of this kind per cycle, so the products alone are the limit: making
// weights costs 14 instructions (4 of them multiplications) per 4 * rows products.
#include "linear_avx512.h"
#include "linear_wide.h"

namespace gearshift {
namespace {

constexpr int MOST_HEIGHT = 24;   // rows of one pass over weights: one register each
constexpr int LEAST_HEIGHT = 10;  // heights are even; fewer rows are filled up with copies of the last
constexpr int OCTET = 8;          // inputs of one row that lie together, arranged: what a vector of 4-bit codes holds
constexpr int OCTET_BYTES = OCTET * 2;

int padded_height(int rows) { return std::max(LEAST_HEIGHT, (rows + 1) / 2 * 2); }

// Per block of rows, per octet of inputs, per row: 16 bytes, int16, every four inputs in the order 0, 2, 1, 3, which is
// how the bytes of a code vector fall apart into int16 lanes. So a pass reads straight on, at short distances.
void arrange_many(const Activations& in, int first_row, const RowBlocks& blocks, uint8_t* to) {
    const int octets = in.padded / OCTET;
    for (int block = 0; block < blocks.count; block++) {
        const int rows = blocks.height(block), height = padded_height(rows);
        for (int r = 0; r < height; r++) {
            const int16_t* from = in.x + size_t(first_row + blocks.begin(block) + std::min(r, rows - 1)) * size_t(in.padded);
            uint8_t* at = to + r * OCTET_BYTES;
            for (int o = 0; o < octets; o++, from += OCTET, at += height * OCTET_BYTES) {
                const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
                _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm_shufflehi_epi16(_mm_shufflelo_epi16(x, 0xd8), 0xd8));
            }
        }
        to += size_t(height) * size_t(octets) * OCTET_BYTES;
    }
}

// sum[r] += the products of PAIRS vectors of weight pairs with row r.
template <int ROWS, int PAIRS>
INLINE inline void add_products(__m512i (&sum)[ROWS], const __m512i (&w)[PAIRS], const uint8_t* x) {
    for_each<PAIRS>([&](auto i) INLINE {
        for_each<ROWS>([&](auto r) INLINE { sum[r] = dot_words(sum[r], w[i], x + r * OCTET_BYTES + 4 * i); });
    });
}

inline __m512i spread_word(__m512i x) { return _mm512_or_si512(x, _mm512_slli_epi32(x, 16)); }

// The bits of `codes` that `mask` keeps, as numbers, times a factor below 256, plus offset. Bits of the upper byte stay
// where they are: shifted(factor) then brings the product down, which saves a shift of the codes.
inline __m512i lower(__m512i codes, __m512i mask, __m512i factor, __m512i offset) {
    return _mm512_add_epi16(_mm512_mullo_epi16(_mm512_and_si512(codes, mask), factor), offset);
}
inline __m512i upper(__m512i codes, __m512i mask, __m512i factor, __m512i offset) {
    return _mm512_add_epi16(_mm512_mulhi_epu16(_mm512_and_si512(codes, mask), factor), offset);
}

template <int ROWS>
INLINE inline void add_tile_4(__m512i (&sum)[ROWS], const uint8_t* record, const uint8_t* x) {
    const __m512i low_half = _mm512_set1_epi32(0xffff);
    const __m512i nibble_0 = _mm512_set1_epi16(15), nibble_2 = _mm512_set1_epi16(0xf00);
    const __m512i nibble_3 = _mm512_set1_epi16(short(0xf000));
    for (int b = 0; b < 2; b++) {
        const __m512i n = load(record + 544);
        const __m512i factor = spread_word(widen_bytes(record + 512 + 16 * b));
        const __m512i factor_2 = _mm512_slli_epi16(factor, 8), factor_3 = _mm512_slli_epi16(factor, 4);
        const __m512i offset = spread_word(b == 0 ? _mm512_and_si512(n, low_half) : _mm512_srli_epi32(n, 16));
        for (int v = 0; v < 4; v++, x += ROWS * OCTET_BYTES) {
            const __m512i codes = load(record + 64 * (4 * b + v));
            const __m512i w[4] = {lower(codes, nibble_0, factor, offset), upper(codes, nibble_2, factor_2, offset),
                                  lower(_mm512_srli_epi16(codes, 4), nibble_0, factor, offset),
                                  upper(codes, nibble_3, factor_3, offset)};
            add_products(sum, w, x);
        }
    }
}

// k * (q - 128) as k * q - 128 * k, modulo 2^16.
template <int ROWS>
INLINE inline void add_tile_8(__m512i (&sum)[ROWS], const uint8_t* record, const uint8_t* x) {
    const __m512i low = _mm512_set1_epi16(255), high = _mm512_set1_epi16(short(0xff00));
    for (int b = 0; b < 2; b++) {
        const __m512i factor = spread_word(widen_bytes(record + 1024 + 16 * b));
        const __m512i factor_high = _mm512_slli_epi16(factor, 8);
        const __m512i offset = _mm512_sub_epi16(_mm512_setzero_si512(), _mm512_slli_epi16(factor, 7));
        for (int v = 0; v < 4; v++, x += ROWS * OCTET_BYTES) {
            const __m512i codes[2] = {load(record + 64 * (8 * b + 2 * v)), load(record + 64 * (8 * b + 2 * v + 1))};
            const __m512i w[4] = {lower(codes[0], low, factor, offset), upper(codes[0], high, factor_high, offset),
                                  lower(codes[1], low, factor, offset), upper(codes[1], high, factor_high, offset)};
            add_products(sum, w, x);
        }
    }
}

// One group with the rows of one block.
template <int BITS, int HEIGHT>
void many(const Linear& l, const uint8_t* x, int rows, const float* row_scales, int group, const Results& results) {
    constexpr int record_bytes = BITS == 4 ? RECORD_4 : RECORD_8;
    const int tiles = l.tiles();
    const uint8_t* record = l.records + size_t(group) * size_t(tiles) * record_bytes;
    for (int first = 0; first < tiles; first += SEGMENT_TILES) {
        __m512i sum[HEIGHT];
        for_each<HEIGHT>([&](auto r) INLINE { sum[r] = _mm512_setzero_si512(); });
        const int end = std::min(first + SEGMENT_TILES, tiles);
        for (int t = first; t < end; t++, record += record_bytes, x += HEIGHT * ROW_BYTES) {
            prefetch_record(record, record_bytes);
            BITS == 4 ? add_tile_4(sum, record, x) : add_tile_8(sum, record, x);
        }
        for_each<HEIGHT>([&](auto r) INLINE {
            if (r < rows) results.put(r, row_scales[r], sum[r], first == 0);
        });
    }
}

using ManyKernel = void (*)(const Linear&, const uint8_t*, int, const float*, int, const Results&);
template <int BITS>
constexpr ManyKernel many_kernels[] = {many<BITS, 10>, many<BITS, 12>, many<BITS, 14>, many<BITS, 16>,
                                       many<BITS, 18>, many<BITS, 20>, many<BITS, 22>, many<BITS, 24>};

}  // namespace

void multiply_many_avx512(const Linear& l, const Activations& in, int group_begin, int group_end, float* out,
                          size_t stride, uint8_t* scratch) {
    const ManyKernel* kernels = l.bits == 4 ? many_kernels<4> : many_kernels<8>;
    const int step = rows_at_a_time(in.rows, in.padded);
    for (int first_row = 0; first_row < in.rows; first_row += step) {
        const RowBlocks blocks(std::min(step, in.rows - first_row), MOST_HEIGHT);
        arrange_many(in, first_row, blocks, scratch);
        for (int g = group_begin; g < group_end; g++) {
            for (int i = 0; i < blocks.count; i++) {
                const int row = first_row + blocks.begin(i), rows = blocks.height(i);
                const Results results(l, g, out + size_t(row) * stride, stride);
                kernels[(padded_height(rows) - LEAST_HEIGHT) / 2](
                    l, scratch + size_t(blocks.begin(i)) * size_t(in.padded) * 2, rows, in.scale + row, g, results);
            }
        }
    }
}

}  // namespace gearshift
