// The AVX-512 path (F, BW, DQ, VL, VNNI): quantising, and the choice between the ways for few and for many rows. Tested by
// emulation and natively, and timed, on Zen 4 (two cores, 1 MB of second-level cache each).
#include "linear_avx512.h"

#include "linear_wide.h"

namespace gearshift {
namespace {

// Up to here the way for few rows is faster, measured on Zen 4 in cycles per product of 16 channels, two inputs and a row,
// of which the processor makes one per cycle: 4 bits 1.16 against 1.19 at 9 rows and 1.20 against 1.15 at 16; 8 bits
// (MAX_FEW_ROWS) 1.13 against 1.17 at 12 and 1.15 for both at 16.
constexpr int MOST_FEW_ROWS_4 = 8;
constexpr int ROW_BLOCK = 16;   // rows are taken in multiples of it

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

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
    auto put = [&](int i) {
        __m512 v = zero ? _mm512_setzero_ps() : _mm512_mul_ps(load_floats(i), factors);
        v = _mm512_max_ps(_mm512_min_ps(v, tops), bottoms);   // in this operand order NaN becomes top
        const __m512i x = _mm512_cvtps_epi32(v);              // nearest even
        const __m512i hi = _mm512_srai_epi32(_mm512_add_epi32(x, half), 7);
        const __m512i lo = _mm512_sub_epi32(x, _mm512_slli_epi32(hi, 7));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.x + begin + i), _mm512_cvtepi32_epi16(x));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out.hi + begin + i), _mm512_cvtepi32_epi8(hi));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out.lo + begin + i), _mm512_cvtepi32_epi8(lo));
        return x;
    };
    for (int i = 0; i < out.padded; i += BLOCK_K)
        sums[i / BLOCK_K] = _mm512_reduce_add_epi32(_mm512_add_epi32(put(i), put(i + 16)));
}

void multiply(const Linear& l, const Activations& in, int group_begin, int group_end, float* out, size_t stride,
              uint8_t* scratch) {
    auto* way = in.rows <= (l.bits == 4 ? MOST_FEW_ROWS_4 : MAX_FEW_ROWS) ? multiply_few_avx512 : multiply_many_avx512;
    way(l, in, group_begin, group_end, out, stride, scratch);
}

size_t scratch_bytes(int max_rows, int max_n_in) {
    return std::max(few_scratch_bytes(max_n_in), arranged_bytes(max_rows, max_n_in));
}

}  // namespace

void quantize_avx512(const float* in, size_t stride, Activations& out, int row_begin, int row_end) {
    for (int row = row_begin; row < row_end; row++) quantize_row(in + size_t(row) * stride, out, row);
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
