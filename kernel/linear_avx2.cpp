// The linear layer with AVX2: quantising, and which way a multiplication takes. Up to FEW_ROWS rows are multiplied straight
// from the codes, which is bound by memory; more rows share weights that are expanded once. Both compute the integers
// of linear.h.
#include "linear_avx2.h"

namespace gearshift {
namespace avx2 {

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

}  // namespace avx2

namespace {

using namespace avx2;

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

void multiply(const Linear& linear, const Activations& in, int group_begin, int group_end, float* out, size_t stride,
              uint8_t* scratch) {
    (in.rows <= FEW_ROWS ? multiply_few : multiply_many)(linear, in, group_begin, group_end, out, stride, scratch);
}

size_t scratch_bytes(int max_rows, int max_n_in) {
    const size_t few = scratch_bytes_few(max_n_in), many = scratch_bytes_many(max_rows);
    return ((few > many ? few : many) + 63) / 64 * 64;
}

}  // namespace

const LinearPath linear_avx2 = {"avx2", quantize, multiply, scratch_bytes};

}  // namespace gearshift
