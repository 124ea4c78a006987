// The linear layer in plain C++, straight from the numbers in linear.h: the path for machines without the others, and
// what the others are tested against. Simple loops that a compiler can vectorise; no attention to caches.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "linear.h"

namespace gearshift {
namespace {

size_t aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

void quantize_row(const float* in, Activations& out, int row) {
    const int limit = activation_limit(out.n_in);
    int16_t* x = out.x + size_t(row) * size_t(out.padded);
    int8_t* hi = out.hi + size_t(row) * size_t(out.padded);
    int8_t* lo = out.lo + size_t(row) * size_t(out.padded);
    int32_t* sums = out.block_sums + size_t(row) * size_t(out.padded / BLOCK_K);

    float largest = 0;
    for (int i = 0; i < out.n_in; i++) {
        const float v = std::fabs(in[i]);
        largest = v > largest ? v : largest;
    }
    const bool zero = largest < TINY_ROW;
    const float top = float(limit);
    const float factor = zero ? 0.0f : top / largest;
    out.scale[row] = zero ? 0.0f : largest / top;
    for (int i = 0; i < out.padded; i++) {
        float v = i < out.n_in && !zero ? in[i] * factor : 0.0f;
        v = v < top ? v : top;   // NaN becomes top
        v = v > -top ? v : -top;
        // Adding and subtracting 1.5 * 2^23 rounds to the nearest even integer.
        const int value = int((v + 12582912.0f) - 12582912.0f);
        x[i] = int16_t(value);
        hi[i] = int8_t((value + 64) >> 7);
        lo[i] = int8_t(value - 128 * ((value + 64) >> 7));
    }
    for (int b = 0; b < out.padded / BLOCK_K; b++) {
        int32_t sum = 0;
        for (int i = 0; i < BLOCK_K; i++) sum += x[b * BLOCK_K + i];
        sums[b] = sum;
    }
}

void quantize(const float* in, size_t stride, Activations& out, int row_begin, int row_end) {
    for (int row = row_begin; row < row_end; row++) quantize_row(in + size_t(row) * stride, out, row);
}

// w_int of one group as [16][tiles * 64].
void expand_group(const Linear& linear, int group, int16_t* weights) {
    const int tiles = linear.tiles();
    const uint8_t* record = linear.records + size_t(group) * size_t(tiles) * linear.record_bytes();
    for (int t = 0; t < tiles; t++, record += linear.record_bytes()) {
        for (int c = 0; c < GROUP; c++) {
            int16_t* w = weights + (size_t(c) * size_t(tiles) + size_t(t)) * TILE_K;
            for (int k = 0; k < TILE_K; k++) {
                const int block = k / BLOCK_K;
                if (linear.bits == 4) {
                    const int byte = record[64 * (k / 8) + 4 * c + k % 4];
                    int16_t n;
                    std::memcpy(&n, record + 544 + 4 * c + 2 * block, 2);
                    w[k] = int16_t(record[512 + 16 * block + c] * (k % 8 < 4 ? byte & 15 : byte >> 4) + n);
                } else {
                    w[k] = int16_t(record[1024 + 16 * block + c] * (record[64 * (k / 4) + 4 * c + k % 4] - 128));
                }
            }
        }
    }
}

int32_t dot(const int16_t* w, const int16_t* x, int count) {
    int32_t sum = 0;
    for (int i = 0; i < count; i++) sum += int32_t(w[i]) * int32_t(x[i]);
    return sum;
}

void multiply(const Linear& linear, const Activations& in, int group_begin, int group_end, float* out, size_t stride,
              uint8_t* scratch) {
    int16_t* weights = reinterpret_cast<int16_t*>(scratch);
    const int padded = in.padded;
    for (int g = group_begin; g < group_end; g++) {
        expand_group(linear, g, weights);
        const int channels = std::min(GROUP, linear.n_out - g * GROUP);
        for (int r = 0; r < in.rows; r++) {
            const int16_t* x = in.x + size_t(r) * size_t(padded);
            for (int c = 0; c < channels; c++) {
                const int16_t* w = weights + size_t(c) * size_t(padded);
                const float scale = linear.scale[g * GROUP + c] * in.scale[r];
                float y = 0;
                for (int first = 0; first < padded; first += SEGMENT_K) {
                    const float part = float(dot(w + first, x + first, std::min(SEGMENT_K, padded - first))) * scale;
                    y = first == 0 ? part : y + part;
                }
                out[size_t(r) * stride + size_t(g * GROUP + c)] = y;
            }
        }
    }
}

size_t scratch_bytes(int, int max_n_in) {
    return aligned(size_t(GROUP) * size_t((max_n_in + TILE_K - 1) / TILE_K * TILE_K) * sizeof(int16_t));
}

}  // namespace

const LinearPath linear_portable = {"portable", quantize, multiply, scratch_bytes};

size_t activation_bytes(int rows, int n_in) {
    const size_t padded = size_t((n_in + TILE_K - 1) / TILE_K * TILE_K), count = size_t(rows);
    return aligned(count * padded * 2) + 2 * aligned(count * padded) + aligned(count * padded / BLOCK_K * 4) +
           aligned(count * 4);
}

Activations lay_out_activations(uint8_t* arena, int rows, int n_in) {
    Activations a;
    a.rows = rows;
    a.n_in = n_in;
    a.padded = (n_in + TILE_K - 1) / TILE_K * TILE_K;
    const size_t count = size_t(rows) * size_t(a.padded);
    a.x = reinterpret_cast<int16_t*>(arena);
    arena += aligned(count * 2);
    a.hi = reinterpret_cast<int8_t*>(arena);
    arena += aligned(count);
    a.lo = reinterpret_cast<int8_t*>(arena);
    arena += aligned(count);
    a.block_sums = reinterpret_cast<int32_t*>(arena);
    arena += aligned(count / BLOCK_K * 4);
    a.scale = reinterpret_cast<float*>(arena);
    return a;
}

}  // namespace gearshift
