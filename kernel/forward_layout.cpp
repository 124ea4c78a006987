// What a step needs before it starts: the tiles of its attention and its place in the team's scratch memory.
#include "forward_step.h"

namespace gearshift {
namespace {

constexpr size_t MOST_RESULT_BYTES = size_t(64) << 20;   // of attention chunks; beyond, they are not shared out

}  // namespace

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

Step::Step(Model& model, Cache& cache, Threads& team, const StepInput& in, const StepOutput& out)
    : model_(model), shape_(model.shape_), linear_(*model.path_.linear), path_(*model.path_.rows), cache_(cache),
      team_(team), in_(in), out_(out), rows_(in.rows), few_(in.rows <= FEW_ROWS),
      q_width_(shape_.heads * shape_.head_dim), kv_width_(shape_.kv_heads * shape_.head_dim),
      group_(shape_.heads / shape_.kv_heads), all_{nullptr, in.rows},
      last_(in.choices == in.rows ? all_ : LiveRows{in.chosen, in.choices}), tiles_(make_tiles(all_)),
      last_tiles_(in.choices == in.rows ? tiles_ : make_tiles(last_)) {
    Layout size(nullptr);
    lay_out(size);
    Layout memory(team.scratch(size.used()));
    lay_out(memory);
}

// Rows of one sequence that stand together share what they read.
Step::Tiles Step::make_tiles(const LiveRows& live) const {
    // Small enough that all members have something to do, even at the end; where even single rows are too few, chunks of
    // the context are shared out.
    const int tasks = 4 * team_.count();
    const bool share_chunks = team_.count() > 1 && live.count * shape_.kv_heads < tasks;
    const int fair = share_chunks ? live.count : (live.count * shape_.kv_heads + tasks - 1) / tasks;
    const int most = std::clamp(fair, 1, std::max(1, MAX_TILE_QUERIES / group_));
    Tiles made;
    for (int at = 0; at < live.count;) {
        const int row = live.row(at);
        int rows = 1;
        while (rows < most && at + rows < live.count && live.row(at + rows) == row + rows &&
               in_.sequence_of[row + rows] == in_.sequence_of[row])
            ++rows;
        made.tiles.push_back({row, rows, at});
        at += rows;
    }
    // The longest first, so that no member is left with a long one at the end.
    std::stable_sort(made.tiles.begin(), made.tiles.end(), [&](const Tile& a, const Tile& b) {
        return size_t(a.rows) * in_.positions[a.row] > size_t(b.rows) * in_.positions[b.row];
    });
    if (!share_chunks) return made;
    for (Tile& tile : made.tiles) {
        tile.chunks = chunks_of(in_.positions[tile.row], tile.rows, 0).end;
        tile.results = made.results_bytes;
        made.results_bytes += size_t(tile.chunks) * shape_.kv_heads *
                              chunk_result_bytes(tile.rows * group_, shape_.head_dim);
    }
    if (made.results_bytes > MOST_RESULT_BYTES) made.results_bytes = 0;
    return made;
}

void Step::lay_out(Layout& memory) {
    const size_t rows = rows_;
    const int widest = std::max({shape_.d_model, q_width_, shape_.d_ff});
    qkv_stride_ = q_width_ + 2 * kv_width_;
    qkv_ = memory.take<float>(rows * qkv_stride_);
    attention_ = memory.take<float>(rows * q_width_);
    gate_ = memory.take<float>(rows * shape_.d_ff);
    up_ = memory.take<float>(rows * shape_.d_ff);
    work_ = memory.take<float>(rows * shape_.d_model);
    chunk_results_ = memory.take<uint8_t>(std::max(tiles_.results_bytes, last_tiles_.results_bytes));
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

}  // namespace gearshift
