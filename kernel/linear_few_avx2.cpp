// AVX2, few rows: every record is read once from memory and multiplied as it is, byte codes times byte planes of the
// activations, so that a step with few rows takes little more than reading the weights.
#include "linear_avx2.h"

namespace gearshift::avx2 {
namespace {

constexpr int PREFETCH = 4096;   // bytes ahead in the stream of records

// Per row and tile the sums of both blocks, X = 256 * a + b with b in 0..255, as int16 pairs: what multiplies n.
struct SumPairs {
    int16_t a[2], b[2];
};

void split_sums(const Activations& in, SumPairs* out) {
    for (int i = 0; i < in.rows * in.padded / TILE_K; i++)
        for (int block = 0; block < 2; block++) {
            out[i].a[block] = int16_t(in.block_sums[2 * i + block] >> 8);
            out[i].b[block] = int16_t(in.block_sums[2 * i + block] & 255);
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
void few_rows(const Linear& linear, const uint8_t* record, int first_tile, int tiles, const Activations& in, const SumPairs* pairs,
              int32_t* sums) {
    const size_t padded = size_t(in.padded), at = size_t(first_tile) * TILE_K;
    const size_t all_tiles = padded / TILE_K;
    record += size_t(first_tile) * linear.record_bytes();
    if (linear.bits == 4)
        few_rows4<R>(record, tiles, in.hi + at, in.lo + at, padded, pairs + first_tile,
                     all_tiles, sums);
    else
        few_rows8<R>(record, tiles, in.x + at, padded, in.block_sums + at / BLOCK_K, sums);
}

}  // namespace

void multiply_few(const Linear& linear, const Activations& in, int group_begin, int group_end, float* out, size_t stride,
                  uint8_t* scratch) {
    SumPairs* pairs = reinterpret_cast<SumPairs*>(scratch);
    split_sums(in, pairs);
    const int tiles = linear.tiles(), segment_tiles = SEGMENT_K / TILE_K;
    for (int g = group_begin; g < group_end; g++) {
        const uint8_t* record = linear.records + size_t(g) * size_t(tiles) * linear.record_bytes();
        for (int t = 0; t < tiles; t += segment_tiles) {
            alignas(32) int32_t sums[FEW_ROWS * GROUP];
            const int count = minimum(segment_tiles, tiles - t);
            switch (in.rows) {
                case 1: few_rows<1>(linear, record, t, count, in, pairs, sums); break;
                case 2: few_rows<2>(linear, record, t, count, in, pairs, sums); break;
                case 3: few_rows<3>(linear, record, t, count, in, pairs, sums); break;
                default: few_rows<4>(linear, record, t, count, in, pairs, sums); break;
            }
            write_rows(sums, in.rows, linear, in.scale, g, t == 0, out, stride);
        }
    }
}

size_t scratch_bytes_few(int max_n_in) {
    return size_t(FEW_ROWS) * size_t((max_n_in + TILE_K - 1) / TILE_K) * sizeof(SumPairs);
}

}  // namespace gearshift::avx2
