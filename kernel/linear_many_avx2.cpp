// AVX2, many rows: the weights of a group are expanded to int16 a K tile at a time, so that they stay in L1 while blocks
// of rows pass by, each with its sums in registers.
#include "linear_avx2.h"

namespace gearshift::avx2 {
namespace {

constexpr int EXPANDED_K = 640;   // inputs per expanded tile: 16 channels x 640 x 2 bytes leave L1 room for the rows
constexpr int BLOCK_ROWS = 6;     // rows x 2 vectors of sums fill the registers
constexpr int CHUNK_BYTES = 320 * 1024;   // activations of one pass over the groups: they should stay in L2

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
    const __m256i low_pair = low_pairs(), high_pair = high_pairs();
    for (int t = 0; t < tiles; t++, record += RECORD_8) {
        for (int block = 0; block < 2; block++) {
            for (int h = 0; h < 2; h++) {
                const __m256i k32 = _mm256_cvtepu8_epi32(
                    _mm_loadl_epi64(reinterpret_cast<const __m128i*>(record + 1024 + 16 * block + 8 * h)));
                const __m256i k = _mm256_or_si256(k32, _mm256_slli_epi32(k32, 16));
                const __m256i middle = _mm256_slli_epi16(k, 7);   // k * q wraps, k * q - 128 * k is right again
                for (int v = 0; v < 8; v++) {
                    const __m256i codes = load(record + 512 * block + 64 * v + 32 * h);
                    int16_t* to = weights + (16 * block + 2 * v) * 2 * GROUP + 16 * h;
                    store(to, _mm256_sub_epi16(_mm256_mullo_epi16(_mm256_shuffle_epi8(codes, low_pair), k), middle));
                    store(to + 2 * GROUP,
                          _mm256_sub_epi16(_mm256_mullo_epi16(_mm256_shuffle_epi8(codes, high_pair), k), middle));
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
void multiply_chunk(const Linear& linear, const Activations& in, int row_begin, int row_end, int group_begin, int group_end,
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

}  // namespace

void multiply_many(const Linear& linear, const Activations& in, int group_begin, int group_end, float* out, size_t stride,
                   uint8_t* scratch) {
    const int fit = CHUNK_BYTES / (2 * in.padded), chunk = fit > 2 * BLOCK_ROWS ? fit : 2 * BLOCK_ROWS;
    const int chunks = (in.rows + chunk - 1) / chunk;
    for (int i = 0; i < chunks; i++)
        multiply_chunk(linear, in, in.rows * i / chunks, in.rows * (i + 1) / chunks, group_begin, group_end, out, stride,
                       scratch);
}

size_t scratch_bytes_many(int max_rows) { return size_t(EXPANDED_K) * GROUP * 2 + size_t(max_rows) * GROUP * 4; }

}  // namespace gearshift::avx2
