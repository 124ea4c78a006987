// Exact integer products of 16-bit rows with 8-bit or 16-bit operands in quads (see cache.h): the inner loop of attention.
// Only for the sources that are compiled once per path.
//
//     out[m][c] = sum over blocks b, quads i, j < 4 of  a[m][b * a_step + 4 i + j] * blocks[b][i][c][j]
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace gearshift::GEARSHIFT_PATH {
namespace {

template <class T>   // int8_t or int16_t
struct Operands {
    const T* blocks[4];
    int count;           // blocks in use
    int a_step;
    int quads;           // per block
    size_t quad_step;    // from one quad to the next: 4 times the columns of a block
};

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

inline __m512i load_words(const int8_t* at) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}
inline __m512i load_words(const int16_t* at) { return _mm512_loadu_si512(at); }

// 8 columns per register: two 32-bit sums for each, added at the end.
template <int M, int V, class T>
inline void columns(const int16_t* const* a, const Operands<T>& b, int column, int32_t* const* out) {
    __m512i sums[M][V];
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sums[m][v] = _mm512_setzero_si512();
    for (int block = 0; block < b.count; ++block) {
        const T* at = b.blocks[block] + column * 4;
        for (int i = 0; i < b.quads; ++i, at += b.quad_step) {
            __m512i operand[V];
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v)
                operand[v] = load_words(at + 32 * v);
#pragma GCC unroll 6
            for (int m = 0; m < M; ++m) {
                int64_t four;
                __builtin_memcpy(&four, a[m] + block * b.a_step + 4 * i, 8);
                const __m512i row = _mm512_set1_epi64(four);
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v) sums[m][v] = _mm512_dpwssd_epi32(sums[m][v], row, operand[v]);
            }
        }
    }
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            const __m512i both = _mm512_add_epi32(sums[m][v], _mm512_srli_epi64(sums[m][v], 32));
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(out[m] + column + 8 * v), _mm512_cvtepi64_epi32(both));
        }
}
constexpr int WIDTH = 8;

#elif defined(__AVX2__)

inline __m256i load_words(const int8_t* at) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
inline __m256i load_words(const int16_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }

// 4 columns per register. The empty asm keeps each sum in its register: left alone, the compiler reorders the unrolled
// loop and spills.
template <int M, int V, class T>
inline void columns(const int16_t* const* a, const Operands<T>& b, int column, int32_t* const* out) {
    static_assert(V % 2 == 0);
    __m256i sums[M][V];
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sums[m][v] = _mm256_setzero_si256();
    for (int block = 0; block < b.count; ++block) {
        const T* at = b.blocks[block] + column * 4;
        for (int i = 0; i < b.quads; ++i, at += b.quad_step) {
            __m256i operand[V];
#pragma GCC unroll 4
            for (int v = 0; v < V; ++v)
                operand[v] = load_words(at + 16 * v);
#pragma GCC unroll 6
            for (int m = 0; m < M; ++m) {
                int64_t four;
                __builtin_memcpy(&four, a[m] + block * b.a_step + 4 * i, 8);
                const __m256i row = _mm256_set1_epi64x(four);
#pragma GCC unroll 4
                for (int v = 0; v < V; ++v) {
                    __m256i sum = _mm256_add_epi32(sums[m][v], _mm256_madd_epi16(row, operand[v]));
                    asm("" : "+x"(sum));
                    sums[m][v] = sum;
                }
            }
        }
    }
#pragma GCC unroll 6
    for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
        for (int v = 0; v < V; v += 2) {
            const __m256i both = _mm256_hadd_epi32(sums[m][v], sums[m][v + 1]);
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(out[m] + column + 4 * v), _mm256_permute4x64_epi64(both, 0xd8));
        }
}
constexpr int WIDTH = 4;

#else

template <int M, int V, class T>
inline void columns(const int16_t* const* a, const Operands<T>& b, int column, int32_t* const* out) {
    constexpr int N = V * 4;
    for (int m = 0; m < M; ++m) {
        int32_t sums[N] = {};
        for (int block = 0; block < b.count; ++block) {
            const T* at = b.blocks[block] + column * 4;
            for (int i = 0; i < b.quads; ++i, at += b.quad_step) {
                const int16_t* four = a[m] + block * b.a_step + 4 * i;
                for (int c = 0; c < N; ++c)
                    sums[c] += four[0] * at[4 * c] + four[1] * at[4 * c + 1] + four[2] * at[4 * c + 2] + four[3] * at[4 * c + 3];
            }
        }
        __builtin_memcpy(out[m] + column, sums, sizeof sums);
    }
}
constexpr int WIDTH = 4;

#endif

// Few rows take 16 columns at a time and many take 8, so that the sums stay in registers.
template <int M, class T>
inline void rows(const int16_t* const* a, const Operands<T>& b, int columns_total, int32_t* const* out) {
    constexpr int V = (M <= 3 ? 16 : 8) / WIDTH;
    for (int column = 0; column < columns_total; column += V * WIDTH) columns<M, V>(a, b, column, out);
}

// Any number of rows; a multiple of 16 columns.
template <class T>
inline void product(const int16_t* a, size_t a_stride, int count, const Operands<T>& b, int columns_total, int32_t* out,
                    size_t out_stride) {
    constexpr int MOST = 6;
    while (count > 0) {
        // 7 to 11 left are halved rather than leaving a thin rest.
        const int now = count <= MOST ? count : count < 2 * MOST ? (count + 1) / 2 : MOST;
        const int16_t* from[MOST];
        int32_t* to[MOST];
        for (int m = 0; m < now; ++m) {
            from[m] = a + m * a_stride;
            to[m] = out + m * out_stride;
        }
        switch (now) {
            case 1: rows<1>(from, b, columns_total, to); break;
            case 2: rows<2>(from, b, columns_total, to); break;
            case 3: rows<3>(from, b, columns_total, to); break;
            case 4: rows<4>(from, b, columns_total, to); break;
            case 5: rows<5>(from, b, columns_total, to); break;
            default: rows<6>(from, b, columns_total, to); break;
        }
        a += now * a_stride;
        out += now * out_stride;
        count -= now;
    }
}

}  // namespace
}  // namespace gearshift::GEARSHIFT_PATH
