// Packing one output channel: the choice of its scale and integers under the bounds of linear.h. Knows nothing of records
// or of source formats.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "linear.h"

namespace gearshift {

// What one channel becomes. Blocks beyond n_in stay zero weights.
struct Channel {
    float scale = 0;
    std::vector<uint8_t> codes;   // [padded]
    std::vector<uint8_t> k;       // [padded / 32]
    std::vector<int16_t> n;       // [padded / 32], 4 bits only

    Channel(int padded, int bits)
        : codes(size_t(padded), bits == 8 ? 128 : 0), k(size_t(padded / BLOCK_K), bits == 8 ? 1 : 0),
          n(size_t(padded / BLOCK_K), 0) {}
    void clear(int bits) {
        scale = 0;
        std::fill(codes.begin(), codes.end(), bits == 8 ? 128 : 0);
        std::fill(k.begin(), k.end(), bits == 8 ? 1 : 0);
        std::fill(n.begin(), n.end(), 0);
    }
};

// Inputs come in blocks of 32, the last one padded with zeros; `out` holds zero weights.

// From affine 4-bit blocks, w = d * q + m: codes [blocks * 32], d and m [blocks].
void pack_channel4(const uint8_t* codes, const float* d, const float* m, int n_in, Channel& out);
// From float weights [blocks * 32], to 8 bits.
void pack_channel8(const float* weights, int n_in, Channel& out);

}  // namespace gearshift
