// One step, phase by phase. Every member of the team runs Step::run; phases that need what other members wrote in the
// phase before are separated by barriers. With few rows each member does the cheap work per row for itself, which saves
// the barriers; with many rows the rows are shared out. Neither changes a bit: a row's numbers depend on that row only.
#include "forward.h"

#include <algorithm>
#include <new>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "attention.h"
#include "forward_rows.h"

namespace gearshift {
namespace {

constexpr int FEW_ROWS = 3;
constexpr int STREAM_ROWS = 8;    // up to here weights are read in one stream per member
constexpr int ROW_TILE = 64;       // rows per task of a linear layer: their activations fit the second level cache
constexpr int GROUP_CHUNK = 8;     // output groups per task
constexpr int HEAD_ROWS = 64;      // rows whose logits are in memory at once
constexpr size_t MOST_RESULT_BYTES = size_t(64) << 20;   // of attention chunks; beyond, they are not shared out

// The default rounding and denormal rules, whatever another library has set on the calling thread.
class FloatRules {
public:
#ifdef __SSE2__
    FloatRules() : before_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
    ~FloatRules() { _mm_setcsr(before_); }

private:
    unsigned before_;
#endif
};

// Hands out parts of one block of memory; with no memory it only adds up the size.
class Layout {
public:
    explicit Layout(uint8_t* memory) : memory_(memory) {}
    template <class T>
    T* take(size_t count) {
        uint8_t* at = memory_ ? memory_ + used_ : nullptr;
        used_ += (count * sizeof(T) + 63) / 64 * 64;
        return reinterpret_cast<T*>(at);
    }
    size_t used() const { return used_; }

private:
    uint8_t* memory_;
    size_t used_ = 0;
};

Activations rows_of(const Activations& all, int begin, int end) {
    Activations part = all;
    part.rows = end - begin;
    part.x += size_t(begin) * all.padded;
    part.hi += size_t(begin) * all.padded;
    part.lo += size_t(begin) * all.padded;
    part.block_sums += size_t(begin) * (all.padded / BLOCK_K);
    part.scale += begin;
    return part;
}

// Linear layers with the same input, seen as one list of output groups.
struct Product {
    const Linear* linear;
    float* out;
    size_t stride;
};

}  // namespace

class Step {
public:
    Step(Model& model, Cache& cache, Threads& team, const StepInput& in, const StepOutput& out)
        : model_(model), shape_(model.shape_), linear_(*model.path_.linear), path_(*model.path_.rows), cache_(cache),
          team_(team), in_(in), out_(out), rows_(in.rows), few_(in.rows <= FEW_ROWS),
          q_width_(shape_.heads * shape_.head_dim), kv_width_(shape_.kv_heads * shape_.head_dim),
          group_(shape_.heads / shape_.kv_heads) {
        make_tiles();
        Layout size(nullptr);
        lay_out(size);
        Layout memory(team.scratch(size.used()));
        lay_out(memory);
    }

    void run(int member) {
        FloatRules rules;
        Member& own = members_[member];
        embed(own, member);
        for (int i = 0; i < shape_.layers; ++i) layer(i, own, member);
        choose(own, member);
    }

    bool failed() const { return failed_.load(); }

private:
    // What each member has for itself; residual and arena are common to all when there are many rows.
    struct Member {
        float* residual;
        uint8_t* arena;
        float* row;
        uint8_t *linear_scratch, *attention_scratch;
    };
    struct Tile {
        int row, rows;
        int chunks = 0;       // of a global layer
        size_t results = 0;   // offset of the results of its chunks
    };

    // Rows of one sequence that stand together share what they read.
    void make_tiles() {
        if (rows_ == 0) return;
        // Small enough that all members have something to do, even at the end; where even single rows are too few,
        // chunks of the context are shared out.
        const int tasks = 4 * team_.count();
        const bool share_chunks = team_.count() > 1 && rows_ * shape_.kv_heads < tasks;
        const int fair = share_chunks ? rows_ : (rows_ * shape_.kv_heads + tasks - 1) / tasks;
        const int most = std::clamp(fair, 1, MAX_TILE_QUERIES / group_);
        for (int row = 0; row < rows_;) {
            int end = row + 1;
            while (end < rows_ && end - row < most && in_.sequence_of[end] == in_.sequence_of[row]) ++end;
            tiles_.push_back({row, end - row});
            row = end;
        }
        // The longest first, so that no member is left with a long one at the end.
        std::stable_sort(tiles_.begin(), tiles_.end(), [&](const Tile& a, const Tile& b) {
            return size_t(a.rows) * in_.positions[a.row] > size_t(b.rows) * in_.positions[b.row];
        });
        if (!share_chunks) return;
        for (Tile& tile : tiles_) {
            tile.chunks = chunks_of(in_.positions[tile.row], tile.rows, 0).end;
            tile.results = results_bytes_;
            results_bytes_ += size_t(tile.chunks) * shape_.kv_heads *
                              chunk_result_bytes(tile.rows * group_, shape_.head_dim);
        }
        if (results_bytes_ > MOST_RESULT_BYTES) results_bytes_ = 0;
    }

    void lay_out(Layout& memory) {
        const size_t rows = rows_;
        const int widest = std::max({shape_.d_model, q_width_, shape_.d_ff});
        qkv_stride_ = q_width_ + 2 * kv_width_;
        qkv_ = memory.take<float>(rows * qkv_stride_);
        attention_ = memory.take<float>(rows * q_width_);
        gate_ = memory.take<float>(rows * shape_.d_ff);
        up_ = memory.take<float>(rows * shape_.d_ff);
        work_ = memory.take<float>(rows * shape_.d_model);
        if (results_bytes_ > 0) chunk_results_ = memory.take<uint8_t>(results_bytes_);
        queries_ = memory.take<int16_t>(rows * q_width_);
        query_scales_ = memory.take<float>(rows * shape_.heads);
        const int head_rows = std::min(in_.choices, HEAD_ROWS);
        if (!out_.logits) logits_ = memory.take<float>(size_t(head_rows) * shape_.vocab);
        head_arena_ = memory.take<uint8_t>(activation_bytes(head_rows, shape_.d_model));
        members_.resize(team_.count());
        const size_t arena_bytes = std::max({activation_bytes(rows_, shape_.d_model), activation_bytes(rows_, q_width_),
                                             activation_bytes(rows_, shape_.d_ff)});
        for (Member& member : members_) {
            if (few_ || &member == &members_[0]) {
                member.residual = memory.take<float>(rows * shape_.d_model);
                member.arena = memory.take<uint8_t>(arena_bytes);
            } else {
                member.residual = members_[0].residual;
                member.arena = members_[0].arena;
            }
            member.row = memory.take<float>(widest);
            member.linear_scratch = memory.take<uint8_t>(linear_.scratch_bytes(std::max(rows_, 1), widest));
            member.attention_scratch = memory.take<uint8_t>(attention_scratch_bytes());
        }
    }

    // Tasks 0 .. count-1, one after the other to whoever is free. Ends without a barrier.
    template <class Task>
    void share(int count, Task task) {
        for (int i; (i = team_.ticket()) < count;) task(i);
    }

    // Once per row: by every member when there are few, else shared out and followed by a barrier.
    template <class Task>
    void each_row(Task task) {
        if (few_) {
            for (int row = 0; row < rows_; ++row) task(row);
            return;
        }
        constexpr int AT_ONCE = 4;
        share((rows_ + AT_ONCE - 1) / AT_ONCE, [&](int part) {
            const int end = std::min(rows_, (part + 1) * AT_ONCE);
            for (int row = part * AT_ONCE; row < end; ++row) task(row);
        });
        team_.barrier();
    }

    void quantize(const float* in, Activations& activations, int row) { linear_.quantize(in, 0, activations, row, row + 1); }

    void multiply(const Product* products, int count, const Activations& in, int begin, int end, int first_row,
                  Member& own) {
        for (int i = 0; i < count; ++i) {
            const int groups = products[i].linear->groups();
            if (begin < groups && end > 0)
                linear_.multiply(*products[i].linear, in, std::max(begin, 0), std::min(end, groups),
                                 products[i].out + size_t(first_row) * products[i].stride, products[i].stride,
                                 own.linear_scratch);
            begin -= groups;
            end -= groups;
        }
    }

    // Parts [begin, end) of `groups` groups for rows [first, last): an unbroken part of the weights for each member when
    // there are few rows, which reads memory in one stream; else small tasks, so that a slow core holds nobody up.
    template <class Task>
    void split_groups(int groups, int rows, int member, Task task) {
        const int members = team_.count();
        if (rows <= STREAM_ROWS) {
            task(groups * member / members, groups * (member + 1) / members, 0, rows);
            return;
        }
        const int chunks = (groups + GROUP_CHUNK - 1) / GROUP_CHUNK, row_tiles = (rows + ROW_TILE - 1) / ROW_TILE;
        share(chunks * row_tiles, [&](int i) {
            const int chunk = i / row_tiles, first = i % row_tiles * ROW_TILE;
            task(chunk * GROUP_CHUNK, std::min(groups, (chunk + 1) * GROUP_CHUNK), first, std::min(first + ROW_TILE, rows));
        });
    }

    void multiply_all(const Product* products, int count, const Activations& in, Member& own, int member) {
        int groups = 0;
        for (int i = 0; i < count; ++i) groups += products[i].linear->groups();
        split_groups(groups, in.rows, member, [&](int begin, int end, int first, int last) {
            multiply(products, count, rows_of(in, first, last), begin, end, first, own);
        });
    }

    // gate_ = activation(gate) * up, by whoever has just computed both.
    void feed_in(const LayerWeights& weights, const Activations& in, Member& own, int member) {
        const size_t width = shape_.d_ff;
        split_groups(weights.gate.groups(), in.rows, member, [&](int begin, int end, int first, int last) {
            const Activations part = rows_of(in, first, last);
            const Product gate{&weights.gate, gate_, width}, up{&weights.up, up_, width};
            multiply(&gate, 1, part, begin, end, first, own);
            multiply(&up, 1, part, begin, end, first, own);
            const size_t channel = size_t(begin) * GROUP;
            const int channels = (end - begin) * GROUP;   // d_ff is a whole number of groups
            for (int row = first; row < last && channels > 0; ++row)
                path_.activate(gate_ + row * width + channel, up_ + row * width + channel, channels, shape_.gelu);
        });
    }

    float* residual(const Member& own, int row) const { return own.residual + size_t(row) * shape_.d_model; }

    void embed(Member& own, int) {
        each_row([&](int row) {
            unpack_channel(model_.embedding_, in_.tokens[row], residual(own, row));
            if (shape_.embedding_scale != 1.0f)
                path_.scale(residual(own, row), shape_.embedding_scale, shape_.d_model, residual(own, row));
        });
    }

    // The sub-layer's output in work_ joins the residual stream.
    void join(Member& own, int row, const float* post_norm) {
        const float* work = work_ + size_t(row) * shape_.d_model;
        if (post_norm) {
            path_.norm(work, post_norm, shape_.rms_eps, shape_.d_model, own.row);
            work = own.row;
        }
        path_.add(work, shape_.d_model, residual(own, row));
    }

    void layer(int index, Member& own, int member) {
        const LayerWeights& weights = model_.layers_[index];
        const LayerWeights* before = index > 0 ? &model_.layers_[index - 1] : nullptr;
        const int d_model = shape_.d_model, d_ff = shape_.d_ff;

        Activations activations = lay_out_activations(own.arena, rows_, d_model);
        each_row([&](int row) {
            if (before) join(own, row, before->post_feed_norm);
            path_.norm(residual(own, row), weights.attention_norm, shape_.rms_eps, d_model, own.row);
            quantize(own.row, activations, row);
        });
        const Product qkv[] = {{&weights.q, qkv_, qkv_stride_},
                               {&weights.k, qkv_ + q_width_, qkv_stride_},
                               {&weights.v, qkv_ + q_width_ + kv_width_, qkv_stride_}};
        multiply_all(qkv, 3, activations, own, member);
        team_.barrier();
        finish_heads(index, weights, member);
        team_.barrier();
        attend(index, weights, own);
        team_.barrier();

        activations = lay_out_activations(own.arena, rows_, q_width_);
        each_row([&](int row) { quantize(attention_ + size_t(row) * q_width_, activations, row); });
        const Product o[] = {{&weights.o, work_, size_t(d_model)}};
        multiply_all(o, 1, activations, own, member);
        team_.barrier();

        activations = lay_out_activations(own.arena, rows_, d_model);
        each_row([&](int row) {
            join(own, row, weights.post_attention_norm);
            path_.norm(residual(own, row), weights.feed_norm, shape_.rms_eps, d_model, own.row);
            quantize(own.row, activations, row);
        });
        feed_in(weights, activations, own, member);
        team_.barrier();

        activations = lay_out_activations(own.arena, rows_, d_ff);
        each_row([&](int row) { quantize(gate_ + size_t(row) * d_ff, activations, row); });
        const Product down[] = {{&weights.down, work_, size_t(d_model)}};
        multiply_all(down, 1, activations, own, member);
        team_.barrier();
    }

    // Position rotation, norms and rounding of every head; keys and values go to the cache.
    void finish_heads(int index, const LayerWeights& weights, int member) {
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

    AttentionTile attention_tile(int index, const LayerWeights& weights, const Tile& tile, int kv) const {
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
        job.out = attention_ + size_t(tile.row) * q_width_ + size_t(kv) * group_ * shape_.head_dim;
        job.out_stride = q_width_;
        return job;
    }

    void attend(int index, const LayerWeights& weights, Member& own) {
        const int kv_heads = shape_.kv_heads, tasks = int(tiles_.size()) * kv_heads;
        if (!chunk_results_) {
            share(tasks, [&](int task) {
                path_.attention->attend(attention_tile(index, weights, tiles_[task / kv_heads], task % kv_heads),
                                        own.attention_scratch);
            });
            return;
        }
        // Few tasks: their chunks are shared out, in runs so that reading stays in order, and merged afterwards.
        const int runs = (8 * team_.count() + tasks - 1) / tasks;
        share(tasks * runs, [&](int i) {
            const int task = i / runs, run = i % runs;
            const AttentionTile tile = attention_tile(index, weights, tiles_[task / kv_heads], task % kv_heads);
            const ChunkRange range = chunks_of(tile.position, tile.rows, tile.window);
            const int count = range.end - range.begin, queries = tile.rows * group_;
            for (int c = count * run / runs; c < count * (run + 1) / runs; ++c)
                path_.attention->attend_chunk(tile, range.begin + c,
                                              lay_out_chunk_result(results_of(task, c), queries), own.attention_scratch);
        });
        team_.barrier();
        share(tasks * group_, [&](int i) {
            const int task = i / group_, head = i % group_;
            const AttentionTile tile = attention_tile(index, weights, tiles_[task / kv_heads], task % kv_heads);
            for (int row = 0; row < tile.rows; ++row)
                path_.attention->merge(tile, row * group_ + head, row * group_ + head + 1, results_of(task, 0));
        });
    }

    // Where the results of a task's chunk lie; a task is a tile and a key-value head.
    uint8_t* results_of(int task, int chunk) const {
        const Tile& tile = tiles_[task / shape_.kv_heads];
        const size_t bytes = chunk_result_bytes(tile.rows * group_, shape_.head_dim);
        return chunk_results_ + tile.results + (size_t(task % shape_.kv_heads) * tile.chunks + chunk) * bytes;
    }

    void choose(Member& own, int member) {
        const int d_model = shape_.d_model;
        for (int first = 0; first < in_.choices; first += HEAD_ROWS) {
            const int count = std::min(HEAD_ROWS, in_.choices - first);
            Activations activations = lay_out_activations(head_arena_, count, d_model);
            team_.barrier();
            share(count, [&](int i) {
                const int row = in_.chosen[first + i];
                join(own, row, model_.layers_.back().post_feed_norm);
                path_.norm(residual(own, row), model_.output_norm_, shape_.rms_eps, d_model, own.row);
                quantize(own.row, activations, i);
            });
            team_.barrier();
            float* logits = out_.logits ? out_.logits + size_t(first) * shape_.vocab : logits_;
            const Product head[] = {{&model_.head_, logits, size_t(shape_.vocab)}};
            multiply_all(head, 1, activations, own, member);
            team_.barrier();
            share(count, [&](int i) { choose_one(first + i, logits + size_t(i) * shape_.vocab, member); });
        }
    }

    void choose_one(int i, const float* logits, int member) {
        ChoiceParameters p;
        p.temperature = in_.temperature[i];
        p.top_k = in_.top_k[i];
        p.top_p = in_.top_p[i];
        p.min_p = in_.min_p[i];
        p.seed = in_.seed[i];
        p.choice = in_.choice[i];
        p.position = in_.positions[in_.chosen[i]] + 1;
        p.presence_penalty = in_.presence_penalty[i];
        p.frequency_penalty = in_.frequency_penalty[i];
        p.repetition_penalty = in_.repetition_penalty[i];
        p.counts = in_.count_offsets[i + 1] - in_.count_offsets[i];
        p.count_ids = in_.count_ids + in_.count_offsets[i];
        p.count_values = in_.count_values + in_.count_offsets[i];
        p.biases = in_.bias_offsets[i + 1] - in_.bias_offsets[i];
        p.bias_ids = in_.bias_ids + in_.bias_offsets[i];
        p.bias_values = in_.bias_values + in_.bias_offsets[i];
        if (in_.mask_index[i] >= 0) p.mask = in_.masks + size_t(in_.mask_index[i]) * in_.mask_words;
        const size_t top = size_t(i) * in_.top;
        try {
            const Choice choice =
                model_.choosers_[member]->choose(logits, p, in_.top, out_.top_ids + top, out_.top_logprobs + top);
            out_.ids[i] = choice.id;
            out_.logprobs[i] = choice.logprob;
        } catch (...) {
            failed_.store(true);   // out of memory; a job must not throw
        }
    }

    Model& model_;
    const Shape& shape_;
    const LinearPath& linear_;
    const RowPath& path_;
    Cache& cache_;
    Threads& team_;
    const StepInput& in_;
    const StepOutput& out_;
    int rows_;
    bool few_;
    int q_width_, kv_width_, group_;
    size_t qkv_stride_ = 0;
    std::vector<Tile> tiles_;
    std::vector<Member> members_;
    float *qkv_ = nullptr, *attention_ = nullptr, *gate_ = nullptr, *up_ = nullptr, *work_ = nullptr;
    int16_t* queries_ = nullptr;
    float *query_scales_ = nullptr, *logits_ = nullptr;
    uint8_t *head_arena_ = nullptr, *chunk_results_ = nullptr;
    size_t results_bytes_ = 0;
    std::atomic<bool> failed_{false};
};

void Model::step(Cache& cache, Threads& threads, const StepInput& in, const StepOutput& out) {
    std::scoped_lock hold(busy_, cache.busy(), threads.busy());
    check_step(shape_, cache, in);
    while (int(choosers_.size()) < threads.count()) choosers_.push_back(std::make_unique<Chooser>(shape_.vocab));
    Step step(*this, cache, threads, in, out);
    threads.run([](void* context, int member) { static_cast<Step*>(context)->run(member); }, &step);
    if (step.failed()) throw std::bad_alloc();
}

}  // namespace gearshift
