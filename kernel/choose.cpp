#include "choose.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "choose_passes.h"

namespace gearshift {
namespace {

constexpr float INFINITE = std::numeric_limits<float>::infinity();
constexpr float NO_LOGPROB = std::numeric_limits<float>::quiet_NaN();
constexpr float LEAST_TEMPERATURE = 1e-5f;
constexpr int32_t ANSWER_COUNT = COUNT_IN_PROMPT - 1;

// Index of the first of the largest values; -1 when there is none above -inf.
int32_t first_peak(const float* values, const std::vector<float>& peaks, int count) {
    float largest = *std::max_element(peaks.begin(), peaks.end());
    if (largest == -INFINITE) return NO_TOKEN;
    int32_t first = count;
    for (size_t g = 0; g < peaks.size(); ++g)
        if (peaks[g] == largest)
            visit_peak(int(g), count, [&](int32_t i) {
                if (values[i] == largest && i < first) first = i;
            });
    return first;
}

}  // namespace

Chooser::Chooser(int vocab, bool wide)
    : vocab_(vocab), passes_(&choose_passes(wide)), peaks_(peak_count(vocab)), adjusted_peaks_(peak_count(vocab)) {}

Choice Chooser::choose(const float* logits, const ChoiceParameters& p, int top, int32_t* top_ids, float* top_logprobs) {
    std::fill_n(top_ids, top, NO_TOKEN);
    std::fill_n(top_logprobs, top, NO_LOGPROB);
    bool fine = passes_->find_peaks(logits, vocab_, peaks_.data());
    int32_t raw_first = fine ? first_peak(logits, peaks_, vocab_) : NO_TOKEN;
    if (raw_first == NO_TOKEN) return {NO_TOKEN, NO_LOGPROB};

    float raw_peak = logits[raw_first];
    double whole = plain_log(passes_->whole_mass(logits, vocab_, raw_peak));
    auto logprob = [&](int32_t id) { return float(double(logits[id]) - double(raw_peak) - whole); };
    if (top > 0) {
        first_of(logits, peaks_, top);
        std::sort(first_.begin(), first_.end(), [](const Scored& a, const Scored& b) {
            return a.value > b.value || (a.value == b.value && a.id < b.id);
        });
        for (size_t i = 0; i < first_.size(); ++i) {
            top_ids[i] = first_[i].id;
            top_logprobs[i] = logprob(first_[i].id);
        }
    }

    const float* values = adjust(logits, p);
    int32_t id = raw_first;
    if (values != logits) {
        fine = passes_->find_peaks(values, vocab_, adjusted_peaks_.data());
        id = fine ? first_peak(values, adjusted_peaks_, vocab_) : NO_TOKEN;
        if (id == NO_TOKEN) return {NO_TOKEN, NO_LOGPROB};
    }
    if (p.temperature >= LEAST_TEMPERATURE && p.top_k != 1 && p.top_p > 0) id = sample(values, values[id], id, p);
    return {id, logprob(id)};
}

// The logits after penalties, biases and mask; the logits themselves when nothing changes them.
const float* Chooser::adjust(const float* logits, const ChoiceParameters& p) {
    bool penalties = p.counts > 0 && (p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0);
    if (!penalties && p.biases == 0 && !p.mask) return logits;
    adjusted_.assign(logits, logits + vocab_);
    for (int i = 0; penalties && i < p.counts; ++i) {
        float& l = adjusted_[p.count_ids[i]];
        int32_t times = p.count_values[i] & ANSWER_COUNT;
        if (p.count_values[i] != 0) l = l > 0 ? l / p.repetition_penalty : l * p.repetition_penalty;
        if (times == 0) continue;
        l -= p.frequency_penalty * float(times);
        l -= p.presence_penalty;
    }
    for (int i = 0; i < p.biases; ++i) adjusted_[p.bias_ids[i]] += p.bias_values[i];
    if (p.mask) passes_->apply_mask(adjusted_.data(), vocab_, p.mask, adjusted_.data());
    return adjusted_.data();
}

// Fills first_ with the first `count` tokens in any order; fewer when fewer are above -inf.
void Chooser::first_of(const float* values, const std::vector<float>& peaks, int count) {
    // At least `count` values reach the count-th largest peak, and few more do: only those are looked at again.
    float least = -INFINITE;
    if (size_t(count) <= peaks.size()) {
        order_ = peaks;
        std::nth_element(order_.begin(), order_.begin() + (count - 1), order_.end(), std::greater<float>());
        least = order_[count - 1];
    }
    first_.clear();
    for (size_t g = 0; g < peaks.size(); ++g) {
        if (peaks[g] < least) continue;
        visit_peak(int(g), vocab_, [&](int32_t i) {
            if (values[i] >= least && values[i] > -INFINITE) first_.push_back({values[i], i});
        });
    }
    if (first_.size() <= size_t(count)) return;
    std::nth_element(first_.begin(), first_.begin() + (count - 1), first_.end(), [](const Scored& a, const Scored& b) {
        return a.value > b.value || (a.value == b.value && a.id < b.id);
    });
    first_.resize(count);
}

// A token by Gumbel noise among those that top_k, top_p and min_p keep.
//
// top_k makes a short list. top_p needs no sorted list: what it keeps is a prefix of the order, so a winner among all
// tokens that lies within it is the winner of the prefix too; one that lies beyond it is the new, tighter bound of the
// next draw. Almost always the first draw does; the expected number of draws grows with ln(mass / kept mass).
int32_t Chooser::sample(const float* values, float peak, int32_t peak_id, const ChoiceParameters& p) {
    Draw d{values, nullptr, vocab_, peak, 1 / p.temperature, -INFINITE, noise_key(p.seed, p.choice, p.position)};
    int32_t first = peak_id;
    if (p.top_k > 0 && p.top_k < vocab_) {
        first_of(values, values == adjusted_.data() ? adjusted_peaks_ : peaks_, p.top_k);
        std::sort(first_.begin(), first_.end(), [](const Scored& a, const Scored& b) { return a.id < b.id; });
        kept_values_.clear();
        kept_ids_.clear();
        for (const Scored& s : first_) {
            if (s.id == peak_id) first = int32_t(kept_ids_.size());
            kept_values_.push_back(s.value);
            kept_ids_.push_back(s.id);
        }
        d.values = kept_values_.data();
        d.ids = kept_ids_.data();
        d.count = int(kept_ids_.size());
    }
    if (p.min_p > 0) d.least = p.min_p < 1 ? float(plain_log(double(p.min_p))) : 0;

    Standing bound{-INFINITE, 0};
    while (true) {
        Winner winner = passes_->draw(d, bound, noisy_score(d, first));
        bound = {d.values[winner.index], winner.index};
        if (p.top_p < 1 && winner.index != first) {
            Mass mass = passes_->mass(d.values, d.count, peak, d.inverse_temperature, bound);
            if (!(mass.before < double(p.top_p) * mass.all)) continue;
        }
        return d.ids ? d.ids[winner.index] : winner.index;
    }
}

}  // namespace gearshift
