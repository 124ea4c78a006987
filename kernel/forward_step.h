// One step of a model, as a class whose phases lie in several files: forward.cpp (the order of phases, and the work on
// single rows), forward_layout.cpp (memory and attention tiles), forward_linear.cpp, forward_attention.cpp and
// forward_choose.cpp.
#pragma once
#include <algorithm>
#include <atomic>
#include <vector>

#include "attention.h"
#include "forward.h"
#include "forward_rows.h"

namespace gearshift {

class Layout;

// Linear layers with the same input, seen as one list of output groups.
struct Product {
    const Linear* linear;
    float* out;
    size_t stride;
};

class Step {
public:
    Step(Model& model, Cache& cache, Threads& team, const StepInput& in, const StepOutput& out);
    void run(int member);
    bool failed() const { return failed_.load(); }

private:
    static constexpr int FEW_ROWS = 3;      // up to here every member does the cheap work per row for itself
    static constexpr int HEAD_ROWS = 64;    // rows whose logits are in memory at once

    // What each member has for itself; residual and arena are common to all when there are many rows.
    struct Member {
        float* residual;
        uint8_t* arena;
        float* row;
        uint8_t *linear_scratch, *attention_scratch;
    };
    // Rows of one sequence that stand together. Results of attention are kept without gaps: `at` is the place of the
    // first row's among them.
    struct Tile {
        int row, rows, at;
        int chunks = 0;       // of a global layer
        size_t results = 0;   // offset of the results of its chunks
    };
    // results_bytes: of all chunks; 0: chunks are not shared out.
    struct Tiles {
        std::vector<Tile> tiles;
        size_t results_bytes = 0;
    };
    // The rows that a phase computes: all, or, behind the keys and values of the last layer, those that choose.
    struct LiveRows {
        const int32_t* rows;   // null: all
        int count;
        int row(int i) const { return rows ? rows[i] : i; }
    };

    // forward_layout.cpp
    Tiles make_tiles(const LiveRows& live) const;
    void lay_out(Layout& memory);

    // forward.cpp
    void embed(Member& own);
    void join(Member& own, int row, int at, const float* post_norm);
    void layer(int index, Member& own, int member);
    void quantize(const float* in, Activations& activations, int row) { linear_.quantize(in, 0, activations, row, row + 1); }
    float* residual(const Member& own, int row) const { return own.residual + size_t(row) * shape_.d_model; }

    // forward_linear.cpp
    void multiply(const Product* products, int count, const Activations& in, int begin, int end, int first_row, Member& own);
    void multiply_all(const Product* products, int count, const Activations& in, Member& own, int member);
    void feed_in(const LayerWeights& weights, const Activations& in, Member& own, int member);

    // forward_attention.cpp
    void finish_heads(int index, const LayerWeights& weights, int member);
    AttentionTile attention_tile(int index, const LayerWeights& weights, const Tile& tile, int kv) const;
    void attend(int index, const LayerWeights& weights, const Tiles& tiles, Member& own);
    uint8_t* results_of(const Tile& tile, int kv, int chunk) const;

    // forward_choose.cpp
    void choose(Member& own, int member);
    void choose_one(int i, const float* logits, int member);

    // Tasks 0 .. count-1, one after the other to whoever is free. Ends without a barrier.
    template <class Task>
    void share(int count, Task task) {
        for (int i; (i = team_.ticket()) < count;) task(i);
    }

    // Once for each of `count` rows: by every member when the step has few, else shared out and followed by a barrier.
    template <class Task>
    void each_row(int count, Task task) {
        if (few_) {
            for (int i = 0; i < count; ++i) task(i);
            return;
        }
        constexpr int AT_ONCE = 4;
        share((count + AT_ONCE - 1) / AT_ONCE, [&](int part) {
            const int end = std::min(count, (part + 1) * AT_ONCE);
            for (int i = part * AT_ONCE; i < end; ++i) task(i);
        });
        team_.barrier();
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
    LiveRows all_, last_;
    Tiles tiles_, last_tiles_;
    std::vector<Member> members_;
    float *qkv_ = nullptr, *attention_ = nullptr, *gate_ = nullptr, *up_ = nullptr, *work_ = nullptr;
    int16_t* queries_ = nullptr;
    float *query_scales_ = nullptr, *logits_ = nullptr;
    uint8_t *head_arena_ = nullptr, *chunk_results_ = nullptr;
    std::atomic<bool> failed_{false};
};

}  // namespace gearshift
