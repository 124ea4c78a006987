// Compiled once per path. No standard containers or algorithms here: their inline code would be merged across paths.
#include "attention.h"

#include "attention_product.h"
#include "cache.h"
#include "forward_hadamard.h"
#include "forward_lanes.h"

namespace gearshift::GEARSHIFT_PATH {
namespace {

constexpr int BLOCKS_PER_CHUNK = CHUNK_TOKENS / BLOCK_TOKENS;
static_assert(BLOCKS_PER_CHUNK == 4);

struct Workspace {
    int32_t* scores;    // [queries][CHUNK_TOKENS]
    int16_t* weights;   // [queries][CHUNK_TOKENS]
    float* outputs;     // [queries][head_dim] merged so far
    uint8_t* result;    // of one chunk
};

Workspace lay_out(uint8_t* scratch) {
    Workspace at;
    at.scores = reinterpret_cast<int32_t*>(scratch);
    scratch += MAX_TILE_QUERIES * CHUNK_TOKENS * sizeof(int32_t);
    at.weights = reinterpret_cast<int16_t*>(scratch);
    scratch += MAX_TILE_QUERIES * CHUNK_TOKENS * sizeof(int16_t);
    at.outputs = reinterpret_cast<float*>(scratch);
    scratch += MAX_TILE_QUERIES * MAX_HEAD_DIM * sizeof(float);
    at.result = scratch;
    return at;
}

// The part of a chunk that a row sees: [begin, end) within the chunk.
struct Span {
    int begin, end;
};

int first_visible(const AttentionTile& tile, int position) {
    return tile.window > 0 && position >= tile.window ? position - tile.window + 1 : 0;
}

Span visible(const AttentionTile& tile, int position, int chunk_start) {
    const int begin = first_visible(tile, position) - chunk_start, end = position + 1 - chunk_start;
    return {begin < 0 ? 0 : begin, end > CHUNK_TOKENS ? CHUNK_TOKENS : end};
}

GEARSHIFT_INLINE Floats only(Ints keep, Floats a, Floats otherwise) {
    GEARSHIFT_PARTS a.part[i] = keep.part[i] ? a.part[i] : otherwise.part[i];
    return a;
}
GEARSHIFT_INLINE Ints inside(int lane, Span span) {
    Ints out;
    GEARSHIFT_PARTS {
        NativeInt index;
        for (int j = 0; j < NATIVE; ++j) index[j] = j;
        index = index + (lane + i * NATIVE);
        out.part[i] = (index >= span.begin) & (index < span.end);
    }
    return out;
}
GEARSHIFT_INLINE void store_short(int16_t* to, Ints a) {
    typedef int16_t NativeShort __attribute__((vector_size(NATIVE * 2)));
    GEARSHIFT_PARTS {
        const NativeShort narrow = __builtin_convertvector(a.part[i], NativeShort);
        __builtin_memcpy(to + i * NATIVE, &narrow, sizeof narrow);
    }
}

struct Softmax {
    float peak, total, unit;
};

// From the integer scores of one query to its integer weights. `factor` turns score times key scale into log2 units.
// Positions outside the span may hold anything, NaN scales included, and get weight 0.
template <bool whole>
Softmax soften(const int32_t* scores, const float* key_scales, const float* value_scales, float factor, Span span,
               int16_t* weights) {
    constexpr int VECTORS = CHUNK_TOKENS / LANES;
    // Vectors without a visible position would add zeros and change no bit.
    const int begin = whole ? 0 : span.begin / LANES, end = whole ? VECTORS : (span.end + LANES - 1) / LANES;
    Floats values[VECTORS];
    Floats peaks = all(-3e38f);
    for (int v = begin; v < end; ++v) {
        values[v] = to_floats(load(scores + v * LANES)) * (load(key_scales + v * LANES) * all(factor));
        if (!whole) values[v] = only(inside(v * LANES, span), values[v], all(-3e38f));
        peaks = larger(values[v], peaks);
    }
    const float peak = maximum(peaks);
    Floats totals = all(0.0f), largest = all(0.0f);
    for (int v = begin; v < end; ++v) {
        Floats p = exp2(values[v] - all(peak));
        Floats scaled = p * load(value_scales + v * LANES);
        if (!whole) {
            const Ints keep = inside(v * LANES, span);
            p = only(keep, p, all(0.0f));
            scaled = only(keep, scaled, all(0.0f));
        }
        totals = totals + p;
        largest = larger(scaled, largest);
        values[v] = scaled;
    }
    const float most = maximum(largest);
    const float steps = most > 1e-30f ? float(WEIGHT_LIMIT) / most : 0.0f;
    if (!whole) __builtin_memset(weights, 0, CHUNK_TOKENS * sizeof(int16_t));
    for (int v = begin; v < end; ++v) {
        const Floats x = smaller(larger(values[v] * all(steps), all(0.0f)), all(float(WEIGHT_LIMIT)));
        store_short(weights + v * LANES, to_ints(x));
    }
    return {peak, sum(totals), most > 1e-30f ? most / float(WEIGHT_LIMIT) : 0.0f};
}

inline void prefetch(const void* from, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(static_cast<const uint8_t*>(from) + i);
}

template <class Key>
void attend_keys(const AttentionTile& tile, int chunk, const ChunkResult& result, uint8_t* scratch) {
    const Workspace at = lay_out(scratch);
    const int start = chunk * CHUNK_TOKENS, last = tile.position + tile.rows - 1;
    const int first = first_visible(tile, tile.position);
    const int block_begin = first > start ? (first - start) / BLOCK_TOKENS : 0;
    const int block_end = last - start >= CHUNK_TOKENS ? BLOCKS_PER_CHUNK : (last - start) / BLOCK_TOKENS + 1;
    const int queries = tile.rows * tile.group, dim = tile.head_dim;
    const size_t plane = size_t(BLOCK_TOKENS) * dim, key_plane = plane * sizeof(Key);

    alignas(64) float key_scales[CHUNK_TOKENS] = {}, value_scales[CHUNK_TOKENS] = {};
    Operands<int8_t> values{{}, 0, BLOCK_TOKENS, BLOCK_TOKENS / 4, size_t(dim) * 4};
    const int32_t* table = tile.table + chunk * BLOCKS_PER_CHUNK;
    for (int b = block_begin; b < block_end; ++b) {
        const uint8_t* block = tile.cache + size_t(table[b]) * tile.block_stride;
        const uint8_t *block_values = block + key_plane, *scales = block_values + plane;
        // Values are needed soon, and so are the keys of the next chunk.
        prefetch(block_values, plane + 2 * BLOCK_TOKENS * sizeof(float));
        if (start + CHUNK_TOKENS + b * BLOCK_TOKENS <= last)
            prefetch(tile.cache + size_t(table[b + BLOCKS_PER_CHUNK]) * tile.block_stride, key_plane);
        __builtin_memcpy(key_scales + b * BLOCK_TOKENS, scales, BLOCK_TOKENS * sizeof(float));
        __builtin_memcpy(value_scales + b * BLOCK_TOKENS, scales + BLOCK_TOKENS * sizeof(float),
                         BLOCK_TOKENS * sizeof(float));
        values.blocks[values.count++] = reinterpret_cast<const int8_t*>(block_values);
        const Operands<Key> keys{{reinterpret_cast<const Key*>(block)}, 1, dim, dim / 4, size_t(BLOCK_TOKENS) * 4};
        product(tile.queries, dim, queries, keys, BLOCK_TOKENS, at.scores + b * BLOCK_TOKENS, CHUNK_TOKENS);
    }
    for (int query = 0; query < queries; ++query) {
        const Span span = visible(tile, tile.position + query / tile.group, start);
        int16_t* weights = at.weights + query * CHUNK_TOKENS;
        if (span.begin >= span.end) {
            __builtin_memset(weights, 0, CHUNK_TOKENS * sizeof(int16_t));
            result.units[query] = -1.0f;
            continue;
        }
        const float factor = tile.query_scales[query] * tile.score_scale;
        const int32_t* scores = at.scores + query * CHUNK_TOKENS;
        const bool whole = span.begin == 0 && span.end == CHUNK_TOKENS;
        const Softmax now = whole ? soften<true>(scores, key_scales, value_scales, factor, span, weights)
                                  : soften<false>(scores, key_scales, value_scales, factor, span, weights);
        result.peaks[query] = now.peak;
        result.totals[query] = now.total;
        result.units[query] = now.unit;
    }
    product(at.weights + block_begin * BLOCK_TOKENS, CHUNK_TOKENS, queries, values, dim, result.sums, dim);
}

void attend_chunk(const AttentionTile& tile, int chunk, const ChunkResult& result, uint8_t* scratch) {
    tile.fine_keys ? attend_keys<int16_t>(tile, chunk, result, scratch) : attend_keys<int8_t>(tile, chunk, result, scratch);
}

// One query's result while chunks are merged into it.
struct Merged {
    float peak = -3e38f, total = 0.0f;
};

void join(Merged& merged, float* output, const ChunkResult& result, int query, int dim) {
    const float step = result.units[query];
    if (step < 0.0f) return;
    const float peak = result.peaks[query] > merged.peak ? result.peaks[query] : merged.peak;
    // 2^0 is exactly 1, so the branch changes no bit.
    const float old_factor = merged.peak == peak ? 1.0f : exp2(merged.peak - peak);
    const float new_factor = result.peaks[query] == peak ? 1.0f : exp2(result.peaks[query] - peak);
    merged.total = merged.total * old_factor + result.totals[query] * new_factor;
    merged.peak = peak;
    const Floats old = all(old_factor), unit = all(step), fresh = all(new_factor);
    const int32_t* sums = result.sums + size_t(query) * dim;
    for (int d = 0; d < dim; d += LANES)
        store(output + d, load(output + d) * old + to_floats(load(sums + d)) * unit * fresh);
}

void finish(const AttentionTile& tile, int query, const Merged& merged, const float* output) {
    const int dim = tile.head_dim;
    float* to = tile.out + query / tile.group * tile.out_stride + query % tile.group * dim;
    const Floats factor = all(merged.total > 0.0f ? 1.0f / merged.total : 0.0f);
    for (int d = 0; d < dim; d += LANES) store(to + d, load(output + d) * factor);
    hadamard(to, dim);
}

void attend(const AttentionTile& tile, uint8_t* scratch) {
    const Workspace at = lay_out(scratch);
    const int queries = tile.rows * tile.group, dim = tile.head_dim;
    const ChunkResult result = lay_out_chunk_result(at.result, queries);
    Merged merged[MAX_TILE_QUERIES];
    __builtin_memset(at.outputs, 0, size_t(queries) * dim * sizeof(float));
    const ChunkRange range = chunks_of(tile.position, tile.rows, tile.window);
    for (int chunk = range.begin; chunk < range.end; ++chunk) {
        attend_chunk(tile, chunk, result, scratch);
        for (int query = 0; query < queries; ++query) join(merged[query], at.outputs + query * dim, result, query, dim);
    }
    for (int query = 0; query < queries; ++query) finish(tile, query, merged[query], at.outputs + query * dim);
}

void merge(const AttentionTile& tile, int query_begin, int query_end, uint8_t* results) {
    const int queries = tile.rows * tile.group, dim = tile.head_dim;
    const size_t bytes = chunk_result_bytes(queries, dim);
    const ChunkRange range = chunks_of(tile.position, tile.rows, tile.window);
    for (int query = query_begin; query < query_end; ++query) {
        alignas(64) float output[MAX_HEAD_DIM] = {};
        Merged merged;
        for (int chunk = range.begin; chunk < range.end; ++chunk)
            join(merged, output, lay_out_chunk_result(results + (chunk - range.begin) * bytes, queries), query, dim);
        finish(tile, query, merged, output);
    }
}

}  // namespace

const AttentionPath attention = {attend, attend_chunk, merge};

}  // namespace gearshift::GEARSHIFT_PATH
