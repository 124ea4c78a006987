#include "cache.h"

#include <stdexcept>
#include <string>

namespace gearshift {

Cache::Cache(const CacheShape& shape, int blocks) : shape_(shape), blocks_(blocks) {
    constexpr int MOST = 1 << 24;
    if (blocks < 1 || blocks > MOST)
        throw std::invalid_argument("a cache has 1 to " + std::to_string(MOST) + " blocks, not " + std::to_string(blocks));
    pages_ = Pages(bytes());
    claims_.resize(size_t(blocks) * BLOCK_TOKENS);
}

}  // namespace gearshift
