// The end of a step: logits of the rows that choose, and their choices.
#include <new>

#include "forward_step.h"

namespace gearshift {

void Step::choose(Member& own, int member) {
    const int d_model = shape_.d_model;
    for (int first = 0; first < in_.choices; first += HEAD_ROWS) {
        const int count = std::min(HEAD_ROWS, in_.choices - first);
        Activations activations = lay_out_activations(head_arena_, count, d_model);
        team_.barrier();
        share(count, [&](int i) {
            const int row = in_.chosen[first + i];
            join(own, row, first + i, model_.layers_.back().post_feed_norm);
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

void Step::choose_one(int i, const float* logits, int member) {
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

}  // namespace gearshift
