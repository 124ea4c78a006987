// Attention of a few rows of one sequence over the cache, for the query heads that share one key-value head.
//
// Keys are taken in chunks of CHUNK_TOKENS at absolute positions. Within a chunk everything that is summed is an exact
// integer: queries times keys, then 15-bit softmax weights (value scale included, one scale per query and chunk) times
// 8-bit values. Keys are coarse (8 bits, with 15-bit queries) or fine (13 bits, as are their queries), as cache.h says. Chunks are merged in ascending order by the online softmax rule (Milakov and Gimelshein
// 2018). So a row's result depends on its own position and keys only, not on how rows are put into tiles.
#pragma once
#include <cstddef>
#include <cstdint>

namespace gearshift {

constexpr int CHUNK_TOKENS = 128;
constexpr int MAX_TILE_QUERIES = 64;   // rows times query heads per key-value head
constexpr int MAX_HEAD_DIM = 256;
constexpr int WEIGHT_LIMIT = 16256;    // of softmax weights; 127 * 128, so that a split into 8-bit halves fits

// Largest magnitudes of the integers of queries and keys. Fine ones get the same share of an int32 sum over a head.
constexpr int query_limit(bool fine_keys) { return fine_keys ? 2896 : 16256; }
constexpr int key_limit(bool fine_keys) { return fine_keys ? 2896 : 127; }
constexpr bool score_fits(bool fine_keys) {
    return int64_t(MAX_HEAD_DIM) * query_limit(fine_keys) * key_limit(fine_keys) <= INT32_MAX;
}
static_assert(score_fits(false) && score_fits(true));

struct AttentionTile {
    int rows, group, head_dim;   // group: query heads per key-value head
    bool fine_keys;
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

// What one chunk contributes to each query of a tile, before merging.
struct ChunkResult {
    float* peaks;     // [queries] largest score, in log2 units
    float* totals;    // [queries] sum of 2^(score - peak)
    float* units;     // [queries] value of one step of the integer weights; negative: nothing of the chunk is visible
    int32_t* sums;    // [queries][head_dim] integer weights times values
};
constexpr size_t chunk_result_bytes(int queries, int head_dim) {
    return (size_t(queries) * (3 + head_dim) * sizeof(float) + 63) / 64 * 64;
}
inline ChunkResult lay_out_chunk_result(uint8_t* memory, int queries) {
    auto* floats = reinterpret_cast<float*>(memory);
    return {floats, floats + queries, floats + 2 * queries, reinterpret_cast<int32_t*>(floats + 3 * queries)};
}

// The chunks that some row of a tile sees: [begin, end).
struct ChunkRange {
    int begin, end;
};
inline ChunkRange chunks_of(int position, int rows, int window) {
    const int first = window > 0 && position >= window ? position - window + 1 : 0;
    return {first / CHUNK_TOKENS, (position + rows - 1) / CHUNK_TOKENS + 1};
}

// Bytes of 64-byte aligned scratch memory that `attend` and `attend_chunk` need.
constexpr size_t attention_scratch_bytes() {
    return MAX_TILE_QUERIES * (CHUNK_TOKENS * (sizeof(int32_t) + sizeof(int16_t)) + MAX_HEAD_DIM * sizeof(float) + 64) +
           chunk_result_bytes(MAX_TILE_QUERIES, MAX_HEAD_DIM);
}

struct AttentionPath {
    // All of a tile.
    void (*attend)(const AttentionTile& tile, uint8_t* scratch);
    // The same in two halves, so that the chunks of a long sequence can be shared out: each chunk on its own, then,
    // for some queries, all chunks of chunks_of() merged; `results` holds them one after the other.
    void (*attend_chunk)(const AttentionTile& tile, int chunk, const ChunkResult& result, uint8_t* scratch);
    void (*merge)(const AttentionTile& tile, int query_begin, int query_end, uint8_t* results);
};

namespace portable { extern const AttentionPath attention; }
namespace avx2 { extern const AttentionPath attention; }
namespace avx512 { extern const AttentionPath attention; }

}  // namespace gearshift
