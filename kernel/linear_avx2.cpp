// The linear layer with AVX2. Up to FEW_ROWS rows are multiplied straight from the codes, which is bound by memory; more
// rows share weights that are expanded to int16 once per group of channels, a K tile at a time, so that they stay in
// L1 while all rows pass by. Both compute the integers of linear.h.
#include <immintrin.h>

#include <cstring>

#include "linear.h"

namespace gearshift {
namespace {

constexpr int FEW_ROWS = 4;       // beyond this, expanding the weights pays
constexpr int EXPANDED_K = 640;   // inputs per expanded tile: 16 channels x 640 x 2 bytes leave L1 room for the rows
constexpr int BLOCK_ROWS = 6;     // rows x 2 vectors of sums fill the registers
constexpr int CHUNK_BYTES = 320 * 1024;   // activations of one pass over the groups: they should stay in L2
constexpr int PREFETCH = 4096;    // bytes ahead in the stream of records

inline int minimum(int a, int b) { return a < b ? a : b; }
inline size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

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
// The same to the upper byte of the 16 bits.
inline __m256i low_pairs_up() { return _mm256_broadcastsi128_si256(_mm_set_epi8(13, -1, 12, -1, 9, -1, 8, -1, 5, -1, 4, -1, 1, -1, 0, -1)); }
inline __m256i high_pairs_up() { return _mm256_broadcastsi128_si256(_mm_set_epi8(15, -1, 14, -1, 11, -1, 10, -1, 7, -1, 6, -1, 3, -1, 2, -1)); }

// ---- quantising

inline __m256i quantize8(__m256 v, __m256 factor, __m256 top) {
    v = _mm256_min_ps(_mm256_mul_ps(v, factor), top);   // NaN becomes top
    v = _mm256_max_ps(v, _mm256_sub_ps(_mm256_setzero_ps(), top));
    return _mm256_cvtps_epi32(v);
}

// One block of 32 values.
inline void quantize_block(const float* in, __m256 factor, __m256 top, int16_t* x, int8_t* hi, int8_t* lo, int32_t* sum) {
    __m256i x16[2], hi16[2], lo16[2];
    for (int i = 0; i < 2; i++) {
        const __m256i a = quantize8(_mm256_loadu_ps(in + 16 * i), factor, top);
        const __m256i b = quantize8(_mm256_loadu_ps(in + 16 * i + 8), factor, top);
        x16[i] = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
        hi16[i] = _mm256_srai_epi16(_mm256_add_epi16(x16[i], _mm256_set1_epi16(64)), 7);
        lo16[i] = _mm256_sub_epi16(x16[i], _mm256_slli_epi16(hi16[i], 7));
        store(x + 16 * i, x16[i]);
    }
    store(hi, _mm256_permute4x64_epi64(_mm256_packs_epi16(hi16[0], hi16[1]), 0xd8));
    store(lo, _mm256_permute4x64_epi64(_mm256_packs_epi16(lo16[0], lo16[1]), 0xd8));
    const __m256i pairs = _mm256_madd_epi16(_mm256_add_epi16(x16[0], x16[1]), _mm256_set1_epi16(1));
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    *sum = _mm_cvtsi128_si32(four);
}

void quantize_row(const float* in, Activations& out, int row) {
    const int n = out.n_in, whole = n / BLOCK_K;
    // What is left of the inputs after whole blocks, padded with zeros.
    alignas(32) float tail[BLOCK_K] = {};
    std::memcpy(tail, in + whole * BLOCK_K, size_t(n - whole * BLOCK_K) * sizeof(float));

    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 largest8[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};   // the operand order skips NaN
    const auto widen = [&](const float* p) {
        for (int i = 0; i < 4; i++)
            largest8[i % 2] = _mm256_max_ps(_mm256_and_ps(_mm256_loadu_ps(p + 8 * i), magnitude), largest8[i % 2]);
    };
    for (int b = 0; b < whole; b++) widen(in + b * BLOCK_K);
    widen(tail);
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, _mm256_max_ps(largest8[0], largest8[1]));
    float largest = 0;
    for (const float lane : lanes) largest = lane > largest ? lane : largest;

    const int blocks = out.padded / BLOCK_K;
    int16_t* x = out.x + size_t(row) * size_t(out.padded);
    int8_t* hi = out.hi + size_t(row) * size_t(out.padded);
    int8_t* lo = out.lo + size_t(row) * size_t(out.padded);
    int32_t* sums = out.block_sums + size_t(row) * size_t(blocks);
    if (largest < TINY_ROW) {
        out.scale[row] = 0;
        std::memset(x, 0, size_t(out.padded) * 2);
        std::memset(hi, 0, size_t(out.padded));
        std::memset(lo, 0, size_t(out.padded));
        std::memset(sums, 0, size_t(blocks) * 4);
        return;
    }
    const float top = float(activation_limit(n));
    out.scale[row] = largest / top;
    const __m256 factor = _mm256_set1_ps(top / largest), top8 = _mm256_set1_ps(top);
    for (int b = 0; b < blocks; b++) {
        alignas(32) static const float zeros[BLOCK_K] = {};
        const float* from = b < whole ? in + b * BLOCK_K : b == whole ? tail : zeros;
        quantize_block(from, factor, top8, x + b * BLOCK_K, hi + b * BLOCK_K, lo + b * BLOCK_K, sums + b);
    }
}

void quantize(const float* in, size_t stride, Activations& out, int row_begin, int row_end) {
    for (int row = row_begin; row < row_end; row++) quantize_row(in + size_t(row) * stride, out, row);
}

// ---- from sums to floats

// out = float(S) * (s_c * s_x), or out += for segments after the first. sums [rows][16].
void write_rows(const int32_t* sums, int rows, const Linear& linear, const float* row_scale, int group, bool first,
                float* out, size_t stride) {
    const int channels = minimum(GROUP, linear.n_out - group * GROUP);
    const float* scale = linear.scale + group * GROUP;
    out += group * GROUP;
    for (int r = 0; r < rows; r++, sums += GROUP, out += stride) {
        const __m256 s_x = _mm256_set1_ps(row_scale[r]);
        __m256 y[2];
        for (int h = 0; h < 2; h++)
            y[h] = _mm256_mul_ps(_mm256_cvtepi32_ps(load(sums + 8 * h)),
                                 _mm256_mul_ps(_mm256_loadu_ps(scale + 8 * h), s_x));
        if (channels == GROUP) {
            for (int h = 0; h < 2; h++) {
                if (!first) y[h] = _mm256_add_ps(_mm256_loadu_ps(out + 8 * h), y[h]);
                _mm256_storeu_ps(out + 8 * h, y[h]);
            }
        } else {
            alignas(32) float lanes[GROUP];
            for (int h = 0; h < 2; h++) _mm256_store_ps(lanes + 8 * h, y[h]);
            for (int c = 0; c < channels; c++) out[c] = first ? lanes[c] : out[c] + lanes[c];
        }
    }
}

// ---- few rows, straight from the codes

// Per row and tile the sums of both blocks, X = 256 * a + b with b in 0..255, as int16 pairs: what multiplies n.
struct SumPairs {
    int16_t a[2], b[2];
};

void split_sums(const Activations& in, int row, int rows, SumPairs* out) {
    const int tiles = in.padded / TILE_K;
    const int32_t* sums = in.block_sums + size_t(row) * size_t(2 * tiles);
    for (int i = 0; i < rows * tiles; i++)
        for (int block = 0; block < 2; block++) {
            out[i].a[block] = int16_t(sums[2 * i + block] >> 8);
            out[i].b[block] = int16_t(sums[2 * i + block] & 255);
        }
}

inline void prefetch_record(const uint8_t* record, int bytes) {
    for (int i = 0; i < bytes; i += 64) prefetch(record + PREFETCH + i);
}

// S of one segment's tiles for R rows and one group: sums [R][16]. hi, lo, pairs start at the first tile.
template <int R>
__attribute__((noinline)) void few_rows4(const uint8_t* record, int tiles, const int8_t* hi, const int8_t* lo, size_t padded, const SumPairs* pairs,
               size_t pair_stride, int32_t* sums) {
    // With one or two rows both halves of the group fit the registers and share the broadcasts.
    constexpr int TOGETHER = R <= 2 ? 2 : 1;
    const __m256i nibble = _mm256_set1_epi8(15);
    const int8_t *hi_row[R], *lo_row[R];
    __m256i total[R][2];
    for (int r = 0; r < R; r++) {
        hi_row[r] = hi + size_t(r) * padded;
        lo_row[r] = lo + size_t(r) * padded;
        total[r][0] = total[r][1] = _mm256_setzero_si256();
    }
    for (int t = 0; t < tiles; t++, record += RECORD_4) {
        prefetch_record(record, RECORD_4);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            keep(hi_row[r]);
            keep(lo_row[r]);
        }
#pragma GCC unroll 2
        for (int block = 0; block < 2; block++) {
#pragma GCC unroll 2
            for (int first = 0; first < 2; first += TOGETHER) {
                // A block sums to at most 32 / 2 * 15 * 64 = 15360 per lane of 16 bits.
                __m256i high[R][TOGETHER], low[R][TOGETHER];
#pragma GCC unroll 4
                for (int v = 0; v < 4; v++) {
                    __m256i q[TOGETHER][2];
#pragma GCC unroll 2
                    for (int h = 0; h < TOGETHER; h++) {
                        const __m256i codes = load(record + 256 * block + 64 * v + 32 * (first + h));
                        q[h][0] = _mm256_and_si256(codes, nibble);
                        q[h][1] = _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble);
                    }
#pragma GCC unroll 2
                    for (int i = 0; i < 2; i++) {
                        const int k = 32 * block + 8 * v + 4 * i;
#pragma GCC unroll 4
                        for (int r = 0; r < R; r++) {
                            if (v + i == 0) {
                                const __m256i hi4 = broadcast4(hi_row[r] + k), lo4 = broadcast4(lo_row[r] + k);
                                for (int h = 0; h < TOGETHER; h++) {
                                    high[r][h] = _mm256_maddubs_epi16(q[h][0], hi4);
                                    low[r][h] = _mm256_maddubs_epi16(q[h][0], lo4);
                                }
                            } else if constexpr (TOGETHER == 2) {
                                add_products8(high[r][0], high[r][1], q[0][i], q[1][i], hi_row[r] + k);
                                add_products8(low[r][0], low[r][1], q[0][i], q[1][i], lo_row[r] + k);
                            } else {
                                add_products8(high[r][0], q[0][i], hi_row[r] + k);
                                add_products8(low[r][0], q[0][i], lo_row[r] + k);
                            }
                        }
                    }
                }
#pragma GCC unroll 2
                for (int h = 0; h < TOGETHER; h++) {
                    const __m256i k = _mm256_cvtepu8_epi32(_mm_loadl_epi64(
                        reinterpret_cast<const __m128i*>(record + 512 + 16 * block + 8 * (first + h))));
#pragma GCC unroll 4
                    for (int r = 0; r < R; r++) {
                        const __m256i sum = _mm256_add_epi32(_mm256_madd_epi16(high[r][h], _mm256_set1_epi16(128)),
                                                             _mm256_madd_epi16(low[r][h], _mm256_set1_epi16(1)));
                        total[r][first + h] = _mm256_add_epi32(total[r][first + h], _mm256_mullo_epi32(sum, k));
                    }
                }
            }
        }
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __m256i n = load(record + 544 + 32 * h);
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) {
                const SumPairs& pair = pairs[size_t(r) * pair_stride + size_t(t)];
                const __m256i a = _mm256_slli_epi32(_mm256_madd_epi16(n, broadcast4(pair.a)), 8);
                const __m256i b = _mm256_madd_epi16(n, broadcast4(pair.b));
                total[r][h] = _mm256_add_epi32(total[r][h], _mm256_add_epi32(a, b));
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            hi_row[r] += TILE_K;
            lo_row[r] += TILE_K;
        }
    }
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) store(sums + GROUP * r + 8 * h, total[r][h]);
}

// As above for 8-bit records; x and block_sums start at the first tile.
template <int R>
__attribute__((noinline)) void few_rows8(const uint8_t* record, int tiles, const int16_t* x, size_t padded, const int32_t* block_sums,
               int32_t* sums) {
    const __m256i low_pair = low_pairs(), high_pair = high_pairs();
    const size_t blocks = padded / BLOCK_K;
    const int16_t* x_row[R];
    __m256i total[R][2];
    for (int r = 0; r < R; r++) {
        x_row[r] = x + size_t(r) * padded;
        total[r][0] = total[r][1] = _mm256_setzero_si256();
    }
    for (int t = 0; t < tiles; t++, record += RECORD_8, block_sums += 2) {
        prefetch_record(record, RECORD_8);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) keep(x_row[r]);
#pragma GCC unroll 2
        for (int block = 0; block < 2; block++) {
            // Codes stand 128 above their value.
            __m256i sum[R][2];
#pragma GCC unroll 4
            for (int r = 0; r < R; r++)
                sum[r][0] = sum[r][1] = _mm256_set1_epi32(-128 * block_sums[size_t(r) * blocks + size_t(block)]);
#pragma GCC unroll 8
            for (int v = 0; v < 8; v++) {
                const __m256i codes0 = load(record + 512 * block + 64 * v);
                const __m256i codes1 = load(record + 512 * block + 64 * v + 32);
#pragma GCC unroll 2
                for (int i = 0; i < 2; i++) {
                    const __m256i q0 = _mm256_shuffle_epi8(codes0, i ? high_pair : low_pair);
                    const __m256i q1 = _mm256_shuffle_epi8(codes1, i ? high_pair : low_pair);
#pragma GCC unroll 4
                    for (int r = 0; r < R; r++)
                        add_products16(sum[r][0], sum[r][1], q0, q1, x_row[r] + 32 * block + 4 * v + 2 * i);
                }
            }
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                const __m256i k = _mm256_cvtepu8_epi32(
                    _mm_loadl_epi64(reinterpret_cast<const __m128i*>(record + 1024 + 16 * block + 8 * h)));
#pragma GCC unroll 4
                for (int r = 0; r < R; r++)
                    total[r][h] = _mm256_add_epi32(total[r][h], _mm256_mullo_epi32(sum[r][h], k));
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) x_row[r] += TILE_K;
    }
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) store(sums + GROUP * r + 8 * h, total[r][h]);
}

template <int R>
void few_rows(const Linear& linear, const uint8_t* record, int first_tile, int tiles, const Activations& in, int row,
              const SumPairs* pairs, int32_t* sums) {
    const size_t padded = size_t(in.padded), at = size_t(row) * padded + size_t(first_tile) * TILE_K;
    const size_t all_tiles = padded / TILE_K;
    record += size_t(first_tile) * linear.record_bytes();
    if (linear.bits == 4)
        few_rows4<R>(record, tiles, in.hi + at, in.lo + at, padded, pairs + size_t(row) * all_tiles + first_tile,
                     all_tiles, sums);
    else
        few_rows8<R>(record, tiles, in.x + at, padded, in.block_sums + at / BLOCK_K, sums);
}

void multiply_few(const Linear& linear, const Activations& in, int group_begin, int group_end, float* out, size_t stride,
                  uint8_t* scratch) {
    SumPairs* pairs = reinterpret_cast<SumPairs*>(scratch);
    split_sums(in, 0, in.rows, pairs);
    const int tiles = linear.tiles(), segment_tiles = SEGMENT_K / TILE_K;
    // Five and six rows go in two passes; the second finds the records in L1.
    const int step = in.rows <= 4 ? in.rows : (in.rows + 1) / 2;
    for (int g = group_begin; g < group_end; g++) {
        const uint8_t* record = linear.records + size_t(g) * size_t(tiles) * linear.record_bytes();
        for (int row = 0; row < in.rows; row += step) {
            const int rows = minimum(step, in.rows - row);
            for (int t = 0; t < tiles; t += segment_tiles) {
                alignas(32) int32_t sums[4 * GROUP];
                const int count = minimum(segment_tiles, tiles - t);
                switch (rows) {
                    case 1: few_rows<1>(linear, record, t, count, in, row, pairs, sums); break;
                    case 2: few_rows<2>(linear, record, t, count, in, row, pairs, sums); break;
                    case 3: few_rows<3>(linear, record, t, count, in, row, pairs, sums); break;
                    default: few_rows<4>(linear, record, t, count, in, row, pairs, sums); break;
                }
                write_rows(sums, rows, linear, in.scale + row, g, t == 0, out + size_t(row) * stride, stride);
            }
        }
    }
}

// ---- many rows, from expanded weights

// w_int of a group's tiles as int16 pairs of inputs: [tiles * 32][16 channels][2].
void expand4(const uint8_t* record, int tiles, int16_t* weights) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const __m256i low_pair = low_pairs(), high_pair = high_pairs();
    for (int t = 0; t < tiles; t++, record += RECORD_4) {
        for (int h = 0; h < 2; h++) {
            const __m256i n = load(record + 544 + 32 * h);
            for (int block = 0; block < 2; block++) {
                const __m256i k32 = _mm256_cvtepu8_epi32(
                    _mm_loadl_epi64(reinterpret_cast<const __m128i*>(record + 512 + 16 * block + 8 * h)));
                const __m256i k = _mm256_or_si256(k32, _mm256_slli_epi32(k32, 16));
                const __m256i offset = block == 0 ? _mm256_blend_epi16(n, _mm256_slli_epi32(n, 16), 0xaa)
                                                  : _mm256_blend_epi16(_mm256_srli_epi32(n, 16), n, 0xaa);
                for (int v = 0; v < 4; v++) {
                    const __m256i codes = load(record + 256 * block + 64 * v + 32 * h);
                    const __m256i q[2] = {_mm256_and_si256(codes, nibble),
                                          _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibble)};
                    for (int i = 0; i < 4; i++) {
                        const __m256i pair = _mm256_shuffle_epi8(q[i / 2], i % 2 ? high_pair : low_pair);
                        store(weights + (16 * block + 4 * v + i) * 2 * GROUP + 16 * h,
                              _mm256_add_epi16(_mm256_mullo_epi16(pair, k), offset));
                    }
                }
            }
        }
        weights += TILE_K * GROUP;
    }
}

void expand8(const uint8_t* record, int tiles, int16_t* weights) {
    // Bytes go to the upper half of each 16-bit lane: (q << 8) * (k << 8) >> 16 = q * k.
    const __m256i low_pair = low_pairs_up(), high_pair = high_pairs_up();
    const __m256i sign = _mm256_set1_epi8(-128);
    for (int t = 0; t < tiles; t++, record += RECORD_8) {
        for (int block = 0; block < 2; block++) {
            for (int h = 0; h < 2; h++) {
                const __m256i k32 = _mm256_cvtepu8_epi32(
                    _mm_loadl_epi64(reinterpret_cast<const __m128i*>(record + 1024 + 16 * block + 8 * h)));
                const __m256i k = _mm256_or_si256(_mm256_slli_epi32(k32, 8), _mm256_slli_epi32(k32, 24));
                for (int v = 0; v < 8; v++) {
                    const __m256i codes = _mm256_xor_si256(load(record + 512 * block + 64 * v + 32 * h), sign);
                    int16_t* to = weights + (16 * block + 2 * v) * 2 * GROUP + 16 * h;
                    store(to, _mm256_mulhi_epi16(_mm256_shuffle_epi8(codes, low_pair), k));
                    store(to + 2 * GROUP, _mm256_mulhi_epi16(_mm256_shuffle_epi8(codes, high_pair), k));
                }
            }
        }
        weights += TILE_K * GROUP;
    }
}

// sums [R][16] (+)= x [R][inputs] times expanded weights. Brings `ahead` into the caches meanwhile, one line per 16 inputs.
template <int R>
void multiply_block(const int16_t* weights, const int16_t* x, size_t padded, int inputs, bool first, int32_t* sums,
                    const uint8_t* ahead, int ahead_step) {
    __m256i sum[R][2];
    const int16_t* x_row[R];
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
        for (int h = 0; h < 2; h++) sum[r][h] = first ? _mm256_setzero_si256() : load(sums + GROUP * r + 8 * h);
        x_row[r] = x + size_t(r) * padded;
    }
    for (int k = 0; k < inputs; k += 8, weights += 8 * GROUP) {
        prefetch(ahead);
        ahead += ahead_step;
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) keep(x_row[r]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __m256i w0 = load(weights + 2 * GROUP * i), w1 = load(weights + 2 * GROUP * i + 16);
#pragma GCC unroll 6
            for (int r = 0; r < R; r++) add_products16(sum[r][0], sum[r][1], w0, w1, x_row[r] + 2 * i);
        }
#pragma GCC unroll 6
        for (int r = 0; r < R; r++) x_row[r] += 8;
    }
#pragma GCC unroll 6
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) store(sums + GROUP * r + 8 * h, sum[r][h]);
}

using BlockKernel = void (*)(const int16_t*, const int16_t*, size_t, int, bool, int32_t*, const uint8_t*, int);
constexpr BlockKernel BLOCK_KERNELS[BLOCK_ROWS + 1] = {
    nullptr, multiply_block<1>, multiply_block<2>, multiply_block<3>, multiply_block<4>, multiply_block<5>, multiply_block<6>,
};

// One chunk of rows through all groups.
void multiply_many(const Linear& linear, const Activations& in, int row_begin, int row_end, int group_begin, int group_end,
                   float* out, size_t stride, uint8_t* scratch) {
    int16_t* weights = reinterpret_cast<int16_t*>(scratch);
    int32_t* sums = reinterpret_cast<int32_t*>(scratch + size_t(EXPANDED_K) * GROUP * 2);
    const size_t padded = size_t(in.padded);
    const int rows = row_end - row_begin, blocks = (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
    const int tiles = linear.tiles();
    const size_t record_bytes = linear.record_bytes();
    for (int g = group_begin; g < group_end; g++) {
        const uint8_t* records = linear.records + size_t(g) * size_t(tiles) * record_bytes;
        for (int segment = 0; segment < tiles; segment += SEGMENT_K / TILE_K) {
            const int segment_end = minimum(tiles, segment + SEGMENT_K / TILE_K);
            // Equal parts of at most EXPANDED_K inputs.
            const int parts = ((segment_end - segment) * TILE_K + EXPANDED_K - 1) / EXPANDED_K;
            for (int part = 0; part < parts; part++) {
                const int t = segment + (segment_end - segment) * part / parts;
                const int end = segment + (segment_end - segment) * (part + 1) / parts;
                const uint8_t* record = records + size_t(t) * record_bytes;
                if (linear.bits == 4)
                    expand4(record, end - t, weights);
                else
                    expand8(record, end - t, weights);
                // The records that follow are the next ones needed.
                const uint8_t* ahead = records + size_t(end) * record_bytes;
                const uint8_t* ahead_end = ahead + size_t(end - t) * record_bytes;
                for (int b = 0; b < blocks; b++) {
                    const int row = rows * b / blocks, count = rows * (b + 1) / blocks - row;
                    const int inputs = (end - t) * TILE_K;
                    const int16_t* x = in.x + size_t(row_begin + row) * padded + size_t(t) * TILE_K;
                    const bool more = ahead < ahead_end;
                    BLOCK_KERNELS[count](weights, x, padded, inputs, part == 0, sums + GROUP * row, ahead, more ? 64 : 0);
                    if (more) ahead += inputs / 8 * 64;
                }
            }
            write_rows(sums, rows, linear, in.scale + row_begin, g, segment == 0, out + size_t(row_begin) * stride, stride);
        }
    }
}

void multiply(const Linear& linear, const Activations& in, int group_begin, int group_end, float* out, size_t stride,
              uint8_t* scratch) {
    if (in.rows <= FEW_ROWS) {
        multiply_few(linear, in, group_begin, group_end, out, stride, scratch);
        return;
    }
    const int chunk = CHUNK_BYTES / (2 * in.padded) > 2 * BLOCK_ROWS ? CHUNK_BYTES / (2 * in.padded) : 2 * BLOCK_ROWS;
    const int chunks = (in.rows + chunk - 1) / chunk;
    for (int i = 0; i < chunks; i++)
        multiply_many(linear, in, in.rows * i / chunks, in.rows * (i + 1) / chunks, group_begin, group_end, out, stride,
                      scratch);
}

size_t scratch_bytes(int max_rows, int max_n_in) {
    const size_t few = size_t(FEW_ROWS) * size_t((max_n_in + TILE_K - 1) / TILE_K) * sizeof(SumPairs);
    const size_t many = size_t(EXPANDED_K) * GROUP * 2 + size_t(max_rows) * GROUP * 4;
    return aligned(few > many ? few : many);
}

}  // namespace

const LinearPath linear_avx2 = {"avx2", quantize, multiply, scratch_bytes};

}  // namespace gearshift
