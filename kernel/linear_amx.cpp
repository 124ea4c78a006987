// Linear layers with AMX-INT8 (and AVX-512). Few rows take the AVX-512 way. From five rows on, weights are split
// exactly,
//     w_int = P * plane1 + plane2      x_int = 128 * hi + lo
// into byte planes, so that four tile products give the sum:
//     S = 128 * P * (plane1 . hi) + P * (plane1 . lo) + 128 * (plane2 . hi) + plane2 . lo
//   4 bits, P = 16, k = 16 kh + kl, u = n + 8 kl:
//           plane1 = kh * q + (u >> 4)         signed; packing keeps it within -128..127
//           plane2 = kl * q + (u & 15) - 8 kl  signed, within -120..120
//           kh * q and kl * q stay below 256, so one 16-bit multiplication makes two of them without a carry.
//   8 bits, P = 256: the bytes of w_int, the upper one signed, the lower one unsigned.
// The planes of a tile live in a ring of four: two tiles ahead of the products, still in the first-level cache.
//
// Tile loads whose low 12 address bits equal those of stores in flight wait for them ("4K aliasing"): a prototype ran
// up to twice as slow on another machine. Hence the layout: the hi and lo bytes of one tile of inputs fill half a page,
// the ring slot of that tile lies in the same half (of another page), and result rows are 256 bytes apart.
// Tested by emulation; not timed on the machine where it was written, which has no AMX.
#include <algorithm>
#include <cstring>

#include "linear_avx512.h"
#include "wide_intrinsics.h"

namespace gearshift {
namespace {

constexpr int SEGMENT_TILES = SEGMENT_K / TILE_K;
constexpr int MOST_VNNI_ROWS = 4;   // up to here the AVX-512 way is faster
constexpr int ROW_TILE = 16;        // rows of a full tile
constexpr int PLANE = 1024;         // bytes of one plane of one tile: 16 rows of 64
constexpr int SLOT = 2 * PLANE;     // both planes; also hi and lo of 16 rows
constexpr int PAGE = 4096;
constexpr int RING = 4 * SLOT;
constexpr int RESULT_STRIDE = 256;   // bytes from row to row of the four sums of a row
constexpr int AHEAD = 8192;          // distance of the prefetch, in bytes of weights

// Tile registers.
enum { HIGH_1, LOW_1, HIGH_2, LOW_2, X_HIGH, X_LOW, PLANE_1, PLANE_2 };

inline __m512i load(const void* p) { return _mm512_loadu_si512(p); }
inline __m512i widen_bytes(const uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// The lowest byte of every 32-bit lane, in all four bytes.
inline __m512i spread_byte(__m512i x) {
    return _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c)));
}
// A lane below 2^16, in both halves.
inline __m512i spread_word(__m512i x) { return _mm512_or_si512(x, _mm512_slli_epi32(x, 16)); }

inline void multiply_add_bytes(__m512i q, __m512i factor, __m512i offset, uint8_t* to) {
    _mm512_storeu_si512(to, _mm512_add_epi8(_mm512_mullo_epi16(q, factor), offset));
}

void expand_4(const uint8_t* record, uint8_t* to) {
    const __m512i nibble = _mm512_set1_epi8(15), low_4 = _mm512_set1_epi32(15);
    const __m512i pairs = load(record + 544);
    for (int b = 0; b < 2; b++) {
        const __m512i k = widen_bytes(record + 512 + 16 * b);
        const __m512i n = _mm512_srai_epi32(b == 0 ? _mm512_slli_epi32(pairs, 16) : pairs, 16);
        const __m512i k_high = _mm512_srli_epi32(k, 4), k_low = _mm512_and_si512(k, low_4);
        const __m512i eight = _mm512_slli_epi32(k_low, 3), u = _mm512_add_epi32(n, eight);
        const __m512i offset_1 = spread_byte(_mm512_srai_epi32(u, 4));
        const __m512i offset_2 = spread_byte(_mm512_sub_epi32(_mm512_and_si512(u, low_4), eight));
        const __m512i factor_1 = spread_word(k_high), factor_2 = spread_word(k_low);
        for (int v = 0; v < 4; v++, to += 128) {
            const __m512i codes = load(record + 64 * (4 * b + v));
            const __m512i even = _mm512_and_si512(codes, nibble);
            const __m512i odd = _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibble);
            multiply_add_bytes(even, factor_1, offset_1, to);
            multiply_add_bytes(odd, factor_1, offset_1, to + 64);
            multiply_add_bytes(even, factor_2, offset_2, to + PLANE);
            multiply_add_bytes(odd, factor_2, offset_2, to + PLANE + 64);
        }
    }
}

void expand_8(const uint8_t* record, uint8_t* to) {
    const __m512i low = _mm512_set1_epi16(255), high = _mm512_set1_epi16(-256), middle = _mm512_set1_epi16(128);
    for (int b = 0; b < 2; b++) {
        const __m512i k = widen_bytes(record + 1024 + 16 * b);
        const __m512i factor = spread_word(k);
        for (int v = 0; v < 8; v++, to += 64) {
            const __m512i codes = load(record + 64 * (8 * b + v));
            const __m512i even = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_and_si512(codes, low), middle), factor);
            const __m512i odd = _mm512_mullo_epi16(_mm512_sub_epi16(_mm512_srli_epi16(codes, 8), middle), factor);
            _mm512_storeu_si512(to, _mm512_or_si512(_mm512_srli_epi16(even, 8), _mm512_and_si512(odd, high)));
            _mm512_storeu_si512(to + PLANE, _mm512_or_si512(_mm512_and_si512(even, low), _mm512_slli_epi16(odd, 8)));
        }
    }
}

// hi and lo of `height` rows per tile of inputs, in one slot each; rows beyond the last are zero.
void arrange(const Activations& in, int first_row, int rows, int height, uint8_t* to) {
    for (int start = 0; start < rows; start += height) {
        for (int t = 0; t < in.padded / TILE_K; t++, to += SLOT) {
            for (int r = 0; r < height; r++) {
                __m512i hi = _mm512_setzero_si512(), lo = hi;
                if (start + r < rows) {
                    const size_t at = size_t(first_row + start + r) * size_t(in.padded) + size_t(t) * TILE_K;
                    hi = load(in.hi + at);
                    lo = load(in.lo + at);
                }
                _mm512_storeu_si512(to + 64 * r, hi);
                _mm512_storeu_si512(to + PLANE + 64 * r, lo);
            }
        }
    }
}

void configure(int height) {
    struct alignas(64) {
        uint8_t palette = 1, start_row = 0, reserved[14] = {};
        uint16_t bytes_per_row[16] = {};
        uint8_t rows[16] = {};
    } config;
    static_assert(sizeof config == 64);
    for (int tile = 0; tile < 8; tile++) {
        config.bytes_per_row[tile] = 64;
        config.rows[tile] = uint8_t(tile == PLANE_1 || tile == PLANE_2 ? 16 : height);
    }
    tile_configure(&config);
}

// Walks the tiles in the order of their products: for each group, for each tile of rows, for each tile of inputs.
struct Walk {
    const uint8_t* group;
    int tiles, row_tiles, record_bytes;
    int tile = 0, row_tile = 0;
    unsigned turns = 0;   // bit h: which slot of half h is next
    unsigned halves;      // 1, or 0 when the inputs are a single tile

    Walk(const uint8_t* first, int tiles_of_row, int tiles_of_rows, int bytes)
        : group(first), tiles(tiles_of_row), row_tiles(tiles_of_rows), record_bytes(bytes), halves(tiles > 1) {}

    const uint8_t* record() const { return group + size_t(tile) * size_t(record_bytes); }

    // Of the ring; then goes on to the next tile. The two slots of a half take turns. Three tiles are in use at a time,
    // and at most two of any three neighbours have the same parity, so two slots are enough for a half. A single tile
    // of inputs has no neighbours of another parity: then all four slots take turns.
    unsigned next_slot() {
        unsigned slot;
        if (halves) {
            const unsigned half = unsigned(tile) & 1;
            slot = half + 2 * (turns >> half & 1);
            turns ^= 1u << half;
        } else {
            slot = turns++ & 3;
        }
        if (++tile == tiles) {
            tile = 0;
            if (++row_tile == row_tiles) {
                row_tile = 0;
                group += size_t(tiles) * size_t(record_bytes);
            }
        }
        return slot;
    }
};

template <int BITS>
void put_results(const uint8_t* sums, const Linear& l, int group, int rows, const float* row_scales, float* out,
                 size_t stride, bool first) {
    constexpr unsigned P = BITS == 4 ? 4 : 8;   // as a power of two
    const __mmask16 channels = __mmask16((1u << std::min(GROUP, l.n_out - group * GROUP)) - 1);
    const __m512 scale = _mm512_loadu_ps(l.scale + size_t(group) * GROUP);
    out += size_t(group) * GROUP;
    for (int r = 0; r < rows; r++, sums += RESULT_STRIDE, out += stride) {
        const __m512i high = _mm512_add_epi32(_mm512_slli_epi32(load(sums), 7 + P), _mm512_slli_epi32(load(sums + 64), P));
        const __m512i low = _mm512_add_epi32(_mm512_slli_epi32(load(sums + 128), 7), load(sums + 192));
        const __m512 y = _mm512_cvtepi32_ps(_mm512_add_epi32(high, low));
        __m512 result = _mm512_mul_ps(y, _mm512_mul_ps(scale, _mm512_set1_ps(row_scales[r])));
        if (!first) result = _mm512_add_ps(_mm512_maskz_loadu_ps(channels, out), result);
        _mm512_mask_storeu_ps(out, channels, result);
    }
}

template <int BITS>
void multiply_rows(const Linear& l, const float* row_scales, int rows, int height, const uint8_t* x, int group_begin,
                   int group_end, float* out, size_t stride, uint8_t* ring, uint8_t* sums) {
    const int tiles = l.tiles(), row_tiles = (rows + height - 1) / height;
    constexpr int record_bytes = BITS == 4 ? RECORD_4 : RECORD_8;
    Walk products(l.records + size_t(group_begin) * size_t(tiles) * record_bytes, tiles, row_tiles, record_bytes);
    Walk planes = products;
    long left = long(group_end - group_begin) * row_tiles * tiles;
    auto expand_next = [&] {
        if (left-- <= 0) return;
        const uint8_t* record = planes.record();
        if (planes.row_tile == 0)
            for (int i = 0; i < record_bytes; i += 64)
                _mm_prefetch(reinterpret_cast<const char*>(record + AHEAD + i), _MM_HINT_T1);
        uint8_t* slot = ring + planes.next_slot() * SLOT;
        BITS == 4 ? expand_4(record, slot) : expand_8(record, slot);
    };
    expand_next();
    expand_next();
    for (int g = group_begin; g < group_end; g++) {
        for (int row = 0; row < rows; row += height) {
            const uint8_t* at = x + size_t(row / height) * size_t(tiles) * SLOT;
            for (int first = 0; first < tiles; first += SEGMENT_TILES) {
                tile_zero<HIGH_1>();
                tile_zero<LOW_1>();
                tile_zero<HIGH_2>();
                tile_zero<LOW_2>();
                const int end = std::min(first + SEGMENT_TILES, tiles);
                for (int t = first; t < end; t++, at += SLOT) {
                    expand_next();
                    const uint8_t* slot = ring + products.next_slot() * SLOT;
                    tile_load<X_HIGH>(at, 64);
                    tile_load<PLANE_1>(slot, 64);
                    tile_dot_signed<HIGH_1, X_HIGH, PLANE_1>();
                    tile_load<X_LOW>(at + PLANE, 64);
                    tile_dot_signed<LOW_1, X_LOW, PLANE_1>();
                    tile_load<PLANE_2>(slot + PLANE, 64);
                    if constexpr (BITS == 4) {
                        tile_dot_signed<HIGH_2, X_HIGH, PLANE_2>();
                        tile_dot_signed<LOW_2, X_LOW, PLANE_2>();
                    } else {
                        tile_dot_unsigned<HIGH_2, X_HIGH, PLANE_2>();
                        tile_dot_unsigned<LOW_2, X_LOW, PLANE_2>();
                    }
                }
                tile_store<HIGH_1>(sums, RESULT_STRIDE);
                tile_store<LOW_1>(sums + 64, RESULT_STRIDE);
                tile_store<HIGH_2>(sums + 128, RESULT_STRIDE);
                tile_store<LOW_2>(sums + 192, RESULT_STRIDE);
                put_results<BITS>(sums, l, g, std::min(height, rows - row), row_scales + row, out + size_t(row) * stride,
                            stride, first == 0);
            }
        }
    }
}

void multiply(const Linear& l, const Activations& in, int group_begin, int group_end, float* out, size_t stride,
              uint8_t* scratch) {
    if (in.rows <= MOST_VNNI_ROWS) {
        multiply_few_avx512(l, in, group_begin, group_end, out, stride, scratch);
        return;
    }
    uint8_t* ring = scratch + (PAGE - reinterpret_cast<uintptr_t>(scratch) % PAGE) % PAGE;
    uint8_t* sums = ring + RING;
    uint8_t* x = sums + PAGE;
    const int height = in.rows <= 8 ? 8 : ROW_TILE;   // a product of 8 rows takes half the time
    const int step = rows_at_a_time(in.rows, in.padded);
    configure(height);
    for (int row = 0; row < in.rows; row += step) {
        const int rows = std::min(step, in.rows - row);
        arrange(in, row, rows, height, x);
        auto* way = l.bits == 4 ? multiply_rows<4> : multiply_rows<8>;
        way(l, in.scale + row, rows, height, x, group_begin, group_end, out + size_t(row) * stride, stride, ring, sums);
    }
    tile_release();   // a thread with tiles in use costs the system more at every switch
}

size_t scratch_bytes(int max_rows, int max_n_in) {
    return std::max(few_scratch_bytes(max_n_in), PAGE + RING + PAGE + arranged_bytes(max_rows, max_n_in));
}

}  // namespace

const LinearPath linear_amx = {"amx", quantize_avx512, multiply, scratch_bytes};

}  // namespace gearshift
