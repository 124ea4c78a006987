// GGUF tensor blocks as float32, and the affine 4-bit blocks as they are (for exact repacking). Knows the block
// layouts of ggml's quantised types; knows nothing of files, shapes or the packed layout.
#pragma once
#include <cstddef>
#include <cstdint>

namespace gearshift {

enum GgmlType : int {
    GGML_F32 = 0,
    GGML_F16 = 1,
    GGML_Q4_0 = 2,
    GGML_Q4_1 = 3,
    GGML_Q5_0 = 6,
    GGML_Q5_1 = 7,
    GGML_Q8_0 = 8,
    GGML_Q4_K = 12,
    GGML_Q5_K = 13,
    GGML_Q6_K = 14,
    GGML_BF16 = 30,
};

// Weights per block and bytes per block of a type. Throws std::invalid_argument for a type that is not read here.
struct BlockShape {
    int weights, bytes;
};
BlockShape block_shape(int ggml_type);

// Bytes of `count` weights. Throws std::invalid_argument when count is not a whole number of blocks.
size_t source_bytes(int ggml_type, size_t count);

// `count` weights (whole blocks) to float32. The caller has checked that the source is long enough.
void dequantize(const uint8_t* source, int ggml_type, size_t count, float* out);

// Whether a type is affine 4-bit in blocks of 32: w = d * q + m, q 0..15.
bool is_affine4(int ggml_type);

// One row of an affine 4-bit type as codes [count] and d, m per block of 32.
void affine4_blocks(const uint8_t* source, int ggml_type, size_t count, uint8_t* codes, float* d, float* m);

}  // namespace gearshift
