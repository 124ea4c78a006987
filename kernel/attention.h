// Attention of a few rows of one sequence over the cache, for the query heads that share one key-value head.
//
// Keys are taken in chunks of CHUNK_TOKENS at absolute positions. Within a chunk everything that is summed is an exact
// integer: 15-bit queries times 8-bit keys, then 15-bit softmax weights (value scale included, one scale per query and
// chunk) times 8-bit values. Chunks are merged in ascending order by the online softmax rule (Milakov and Gimelshein
// 2018). So a row's result depends on its own position and keys only, not on how rows are put into tiles.
#pragma once
#include <cstddef>
#include <cstdint>

namespace gearshift {

constexpr int CHUNK_TOKENS = 128;
constexpr int MAX_TILE_QUERIES = 64;   // rows times query heads per key-value head
constexpr int MAX_HEAD_DIM = 256;
constexpr int QUERY_LIMIT = 16256;     // |q| and softmax weights; 127 * 128, so that a split into 8-bit halves fits

struct AttentionTile {
    int rows, group, head_dim;   // group: query heads per key-value head
    int position;                // of the first row; the others follow
    int window;                  // positions a row looks back on, itself included; 0: all
    float score_scale;           // attention scale times log2(e)
    const int16_t* queries;      // [rows][group][head_dim]
    const float* query_scales;   // [rows][group]
    const int32_t* table;        // cache blocks of the sequence
    const uint8_t* cache;        // this layer's and key-value head's part of block 0
    size_t block_stride;         // bytes from there to block 1
    float* out;                  // [row][group][head_dim] with out_stride between rows
    size_t out_stride;
};

// Bytes of 64-byte aligned scratch memory that `attend` needs.
constexpr size_t attention_scratch_bytes() {
    return MAX_TILE_QUERIES * (CHUNK_TOKENS * (sizeof(int32_t) + sizeof(int16_t)) +
                               MAX_HEAD_DIM * (sizeof(float) + sizeof(int32_t)) + 256);
}

namespace portable { void attend(const AttentionTile& tile, uint8_t* scratch); }
namespace avx2 { void attend(const AttentionTile& tile, uint8_t* scratch); }
namespace avx512 { void attend(const AttentionTile& tile, uint8_t* scratch); }

}  // namespace gearshift
