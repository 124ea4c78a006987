// Keys and values of one model in blocks of BLOCK_TOKENS positions. It knows the layout of a block and nothing of
// sequences: block tables come from above, and forward_check.cpp checks them.
//
// A block of one layer and key-value head, with D = head_dim and 32 positions p:
//     keys    int8 [D / 4][32][4]   dims 4i .. 4i+3 of every position: a score is a sum over quads of dims; int16 when fine
//     values  int8 [8][D][4]        positions 4i .. 4i+3 of every dim: an output is a sum over quads of positions
//     key_scales, value_scales  float [32] each
// Both products then read their operand in the same shape: quads of the summed index, side by side.
//
// Fine keys are for models that norm queries and keys: their norms' weights make scores so large that the rounding of
// 8-bit keys would be most of the model's error.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "threads.h"

namespace gearshift {

constexpr int BLOCK_TOKENS = 32;

struct CacheShape {
    int layers = 0, kv_heads = 0, head_dim = 0;
    bool fine_keys = false;
    size_t key_bytes() const { return (fine_keys ? sizeof(int16_t) : sizeof(int8_t)) * head_dim; }
    size_t head_bytes() const { return BLOCK_TOKENS * (key_bytes() + head_dim + 2 * sizeof(float)); }
    size_t token_bytes() const { return size_t(layers) * kv_heads * head_bytes() / BLOCK_TOKENS; }
    bool operator==(const CacheShape&) const = default;
};

struct CacheHead {
    uint8_t* keys;
    int8_t* values;
    float* key_scales;
    float* value_scales;
};

class Cache {
public:
    // Throws std::invalid_argument for a silly number of blocks, std::bad_alloc when there is no room.
    Cache(const CacheShape& shape, int blocks);

    const CacheShape& shape() const { return shape_; }
    int blocks() const { return blocks_; }
    size_t bytes() const { return size_t(blocks_) * BLOCK_TOKENS * shape_.token_bytes(); }

    CacheHead head(int layer, int block, int kv_head) const {
        uint8_t* at = pages_.data() + ((size_t(layer) * blocks_ + block) * shape_.kv_heads + kv_head) * shape_.head_bytes();
        uint8_t* values = at + BLOCK_TOKENS * shape_.key_bytes();
        auto* scales = reinterpret_cast<float*>(values + BLOCK_TOKENS * shape_.head_dim);
        return {at, reinterpret_cast<int8_t*>(values), scales, scales + BLOCK_TOKENS};
    }

    // Marks slot `offset` of `block` as written by step `stamp`; false when that step has written it already.
    bool claim(int block, int offset, uint32_t stamp) {
        uint32_t& last = claims_[size_t(block) * BLOCK_TOKENS + offset];
        if (last == stamp) return false;
        last = stamp;
        return true;
    }
    // Held during a step.
    std::mutex& busy() { return busy_; }
    uint32_t next_stamp() { return ++stamp_; }

private:
    CacheShape shape_;
    int blocks_;
    Pages pages_;
    std::vector<uint32_t> claims_;
    uint32_t stamp_ = 0;
    std::mutex busy_;
};

}  // namespace gearshift
