// One step, phase by phase. Every member of the team runs Step::run; phases that need what other members wrote in the
// phase before are separated by barriers. With few rows each member does the cheap work per row for itself, which saves
// the barriers; with many rows the rows are shared out. Neither changes a bit: a row's numbers depend on that row only.
#include <new>
#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include "forward_step.h"

namespace gearshift {
namespace {

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

}  // namespace

void Step::run(int member) {
    FloatRules rules;
    Member& own = members_[member];
    embed(own);
    for (int i = 0; i < shape_.layers; ++i) layer(i, own, member);
    choose(own, member);
}

void Step::embed(Member& own) {
    each_row(rows_, [&](int row) {
        unpack_channel(model_.embedding_, in_.tokens[row], residual(own, row));
        if (shape_.embedding_scale != 1.0f)
            path_.scale(residual(own, row), shape_.embedding_scale, shape_.d_model, residual(own, row));
    });
}

// The sub-layer's output at place `at` of work_ joins the residual stream of a row.
void Step::join(Member& own, int row, int at, const float* post_norm) {
    const float* work = work_ + size_t(at) * shape_.d_model;
    if (post_norm) {
        path_.norm(work, post_norm, shape_.rms_eps, shape_.d_model, own.row);
        work = own.row;
    }
    path_.add(work, shape_.d_model, residual(own, row));
}

void Step::layer(int index, Member& own, int member) {
    const LayerWeights& weights = model_.layers_[index];
    const LayerWeights* before = index > 0 ? &model_.layers_[index - 1] : nullptr;
    const int d_model = shape_.d_model, d_ff = shape_.d_ff;
    // Behind the last layer's keys and values only rows that choose are of use.
    const bool last = index + 1 == shape_.layers;
    const LiveRows& live = last ? last_ : all_;

    Activations activations = lay_out_activations(own.arena, rows_, d_model);
    each_row(rows_, [&](int row) {
        if (before) join(own, row, row, before->post_feed_norm);
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
    if (live.count == 0) return;
    attend(index, weights, last ? last_tiles_ : tiles_, own);
    team_.barrier();

    activations = lay_out_activations(own.arena, live.count, q_width_);
    each_row(live.count, [&](int i) { quantize(attention_ + size_t(i) * q_width_, activations, i); });
    const Product o[] = {{&weights.o, work_, size_t(d_model)}};
    multiply_all(o, 1, activations, own, member);
    team_.barrier();

    activations = lay_out_activations(own.arena, live.count, d_model);
    each_row(live.count, [&](int i) {
        join(own, live.row(i), i, weights.post_attention_norm);
        path_.norm(residual(own, live.row(i)), weights.feed_norm, shape_.rms_eps, d_model, own.row);
        quantize(own.row, activations, i);
    });
    feed_in(weights, activations, own, member);
    team_.barrier();

    activations = lay_out_activations(own.arena, live.count, d_ff);
    each_row(live.count, [&](int i) { quantize(gate_ + size_t(i) * d_ff, activations, i); });
    const Product down[] = {{&weights.down, work_, size_t(d_model)}};
    multiply_all(down, 1, activations, own, member);
    team_.barrier();
}

void Model::step(Cache& cache, Threads& threads, const StepInput& in, const StepOutput& out) {
    std::scoped_lock hold(busy_, cache.busy(), threads.busy());
    check_step(shape_, cache, in);
    while (int(choosers_.size()) < threads.count()) choosers_.push_back(std::make_unique<Chooser>(shape_.vocab));
    Step step(*this, cache, threads, in, out);
    threads.run([](void* context, int member) { static_cast<Step*>(context)->run(member); }, &step);
    if (step.failed()) throw std::bad_alloc();
}

}  // namespace gearshift
