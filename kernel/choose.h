// The choice of a token for one row from its float32 logits: penalties, biases, mask, then argmax or a sample.
// It knows one row and its parameters; who runs which row, and what becomes of the token, is for the callers.
//
// One routine in a fixed order of IEEE operations (no libm, no FMA contraction: build with -ffp-contract=off), so the
// same inputs give the same bits on every processor, in any company and with any number of threads.
//
// The rule, in this order. "Before" means: larger logit, or equal logit and lower id.
//   1. repetition_penalty r, for ids in the prompt or the answer: l > 0 ? l / r : l * r.
//   2. presence and frequency penalties, for ids in the answer: l -= frequency * occurrences; l -= presence.
//   3. biases are added. 4. ids whose mask bit is clear become -inf.
//   5. temperature below 1e-5: the first token of all. Otherwise z = (l - max) / temperature, and a token is kept when
//      all of these hold (each keeps a prefix of the order, at least one token):
//        top_k > 0:     fewer than top_k tokens are before it (exactly top_k survive, ties to the lower id)
//        top_p < 1:     the tokens before it have less than top_p of the mass of those that top_k kept
//        min_p > 0:     z >= ln(min_p), that is, its probability is at least min_p of the largest
//   6. Among the kept tokens the largest z + g(seed, choice, position, id) is chosen, ties to the lower id, where g is
//      standard Gumbel noise: this is a sample of the softmax of the kept tokens (Gumbel 1954; "Gumbel-max trick").
//      g comes from a counter-based hash (the idea is Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
//      3"; the mixing is of the xor-shift-multiply kind of SplitMix64, Steele et al. 2014), so no state is carried and
//      a token's noise does not depend on what else is kept. Nothing is cut off with top_k = 0, top_p = 1, min_p = 0: a
//      token is passed over only when the largest noise that its hash still allows cannot win.
//
// Failures: a row with a NaN or +inf logit, or with a NaN or +inf that steps 1 to 3 make of an allowed id, or with
// nothing left after step 4, gets NO_TOKEN and the log-probability NaN. -inf logits are allowed and never chosen.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gearshift {

constexpr int MAX_TOP_LOGPROBS = 20;
constexpr int32_t NO_TOKEN = -1;
constexpr int32_t COUNT_IN_PROMPT = 1 << 24;   // see ChoiceParameters::count_values

struct ChoiceParameters {
    float temperature = 0;           // >= 0
    int32_t top_k = 0;               // 0: no limit
    float top_p = 1;                 // 1 or more: no limit
    float min_p = 0;                 // 0: no limit
    uint64_t seed = 0;
    int32_t choice = 0;
    int32_t position = 0;            // of the token to be chosen
    float presence_penalty = 0;
    float frequency_penalty = 0;
    float repetition_penalty = 1;    // > 0
    int counts = 0;                  // ids are within the vocabulary, each at most once
    const int32_t* count_ids = nullptr;
    const int32_t* count_values = nullptr;   // occurrences in the answer, plus COUNT_IN_PROMPT
    int biases = 0;                  // ids are within the vocabulary
    const int32_t* bias_ids = nullptr;
    const float* bias_values = nullptr;
    const uint32_t* mask = nullptr;  // bit id % 32 of word id / 32 set: allowed; null: all are
};

struct Choice {
    int32_t id = NO_TOKEN;
    float logprob = 0;               // under the raw logits (before step 1, at temperature 1)
};

struct ChoosePasses;                 // the loops over the vocabulary, compiled for one instruction set

// Chooses for one row after another; keeps only scratch memory, no state between calls. One per thread.
class Chooser {
public:
    // wide: use AVX2 where the processor has it; false is for tests (the bits are the same).
    explicit Chooser(int vocab, bool wide = true);

    // logits: [vocab], left as they are. top: number of alternatives, 0 to MAX_TOP_LOGPROBS; they are the first of the
    // raw logits in the order above, with their log-probabilities; unused places (fewer than top logits above
    // -inf, a row with NaN or +inf) hold NO_TOKEN and NaN.
    Choice choose(const float* logits, const ChoiceParameters& p, int top, int32_t* top_ids, float* top_logprobs);

private:
    struct Scored { float value; int32_t id; };

    const float* adjust(const float* logits, const ChoiceParameters& p);
    void first_of(const float* values, const std::vector<float>& peaks, int count);
    int32_t sample(const float* values, float peak, int32_t peak_id, const ChoiceParameters& p);

    int vocab_;
    const ChoosePasses* passes_;
    std::vector<float> adjusted_, peaks_, adjusted_peaks_, order_, kept_values_;
    std::vector<int32_t> kept_ids_;
    std::vector<Scored> first_;
};

}  // namespace gearshift
