// Attention of a step: heads are finished and go to the cache, then tiles of rows, or chunks of their context, are shared
// out.
#include "forward_step.h"

namespace gearshift {

// Position rotation, norms and rounding of every head; keys and values go to the cache.
void Step::finish_heads(int index, const LayerWeights& weights, int member) {
    const int heads = shape_.heads, kv_heads = shape_.kv_heads, dim = shape_.head_dim;
    const int units = rows_ * (heads + 2 * kv_heads);
    const int begin = int(int64_t(units) * member / team_.count());
    const int end = int(int64_t(units) * (member + 1) / team_.count());
    int angles_row = -1;
    float cosine[MAX_HEAD_DIM / 2], sine[MAX_HEAD_DIM / 2];
    for (int unit = begin; unit < end; ++unit) {
        const int row = unit / (heads + 2 * kv_heads), head = unit % (heads + 2 * kv_heads);
        if (row != angles_row) {
            (weights.global ? model_.rotary_ : model_.rotary_local_).angles(in_.positions[row], cosine, sine);
            angles_row = row;
        }
        const float* from = qkv_ + size_t(row) * qkv_stride_ + size_t(head) * dim;
        HeadForm form{dim, cache_.shape().fine_keys, nullptr, nullptr, shape_.rms_eps, cosine, sine, shape_.rope_interleaved};
        if (head < heads) {
            if (weights.q_bias) form.bias = weights.q_bias + size_t(head) * dim;
            form.norm = weights.q_norm;
            const size_t at = (size_t(head / group_) * rows_ + row) * group_ + head % group_;
            path_.query(from, form, queries_ + at * dim, query_scales_ + at);
            continue;
        }
        const int position = in_.positions[row];
        const int block = in_.tables[size_t(in_.sequence_of[row]) * in_.table_width + position / BLOCK_TOKENS];
        const int kv = (head - heads) % kv_heads, offset = position % BLOCK_TOKENS;
        const CacheHead cached = cache_.head(index, block, kv);
        if (head < heads + kv_heads) {
            if (weights.k_bias) form.bias = weights.k_bias + size_t(kv) * dim;
            form.norm = weights.k_norm;
            path_.key(from, form, cached.keys, offset, cached.key_scales);
        } else {
            if (weights.v_bias) form.bias = weights.v_bias + size_t(kv) * dim;
            form.cosine = form.sine = nullptr;
            path_.value(from, form, cached.values, offset, cached.value_scales);
        }
    }
}

AttentionTile Step::attention_tile(int index, const LayerWeights& weights, const Tile& tile, int kv) const {
    const size_t first = (size_t(kv) * rows_ + tile.row) * group_;
    AttentionTile job;
    job.rows = tile.rows;
    job.group = group_;
    job.head_dim = shape_.head_dim;
    job.fine_keys = cache_.shape().fine_keys;
    job.position = in_.positions[tile.row];
    job.window = weights.global ? 0 : shape_.sliding_window;
    job.score_scale = shape_.attention_scale * 1.44269504f;
    job.queries = queries_ + first * shape_.head_dim;
    job.query_scales = query_scales_ + first;
    job.table = in_.tables + size_t(in_.sequence_of[tile.row]) * in_.table_width;
    job.cache = cache_.head(index, 0, kv).keys;
    job.block_stride = shape_.kv_heads * cache_.shape().head_bytes();
    job.out = attention_ + size_t(tile.at) * q_width_ + size_t(kv) * group_ * shape_.head_dim;
    job.out_stride = q_width_;
    return job;
}

void Step::attend(int index, const LayerWeights& weights, const Tiles& all, Member& own) {
    const std::vector<Tile>& tiles = all.tiles;
    const int kv_heads = shape_.kv_heads, tasks = int(tiles.size()) * kv_heads;
    if (all.results_bytes == 0) {
        share(tasks, [&](int task) {
            path_.attention->attend(attention_tile(index, weights, tiles[task / kv_heads], task % kv_heads),
                                    own.attention_scratch);
        });
        return;
    }
    // Few tasks: their chunks are shared out, in runs so that reading stays in order, and merged afterwards.
    const int runs = tasks > 0 ? (8 * team_.count() + tasks - 1) / tasks : 0;
    share(tasks * runs, [&](int i) {
        const int task = i / runs, run = i % runs;
        const AttentionTile tile = attention_tile(index, weights, tiles[task / kv_heads], task % kv_heads);
        const ChunkRange range = chunks_of(tile.position, tile.rows, tile.window);
        const int count = range.end - range.begin, queries = tile.rows * group_;
        for (int c = count * run / runs; c < count * (run + 1) / runs; ++c)
            path_.attention->attend_chunk(
                tile, range.begin + c,
                lay_out_chunk_result(results_of(tiles[task / kv_heads], task % kv_heads, c), queries), own.attention_scratch);
    });
    team_.barrier();
    share(tasks * group_, [&](int i) {
        const int task = i / group_, head = i % group_;
        const AttentionTile tile = attention_tile(index, weights, tiles[task / kv_heads], task % kv_heads);
        uint8_t* results = results_of(tiles[task / kv_heads], task % kv_heads, 0);
        for (int row = 0; row < tile.rows; ++row)
            path_.attention->merge(tile, row * group_ + head, row * group_ + head + 1, results);
    });
}

// Where the results of a tile's chunk for one key-value head lie.
uint8_t* Step::results_of(const Tile& tile, int kv, int chunk) const {
    const size_t bytes = chunk_result_bytes(tile.rows * group_, shape_.head_dim);
    return chunk_results_ + tile.results + (size_t(kv) * tile.chunks + chunk) * bytes;
}

}  // namespace gearshift
