// A model over packed weights and one forward pass over a batch of rows. It knows tokens, positions and cache blocks;
// requests, sequences' histories and scheduling are for the callers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache.h"
#include "choose.h"
#include "isa.h"
#include "linear.h"
#include "threads.h"

namespace gearshift {

// The fields of ModelShape in engine/local/shape.py, where they are described.
struct Shape {
    int layers, d_model, d_ff, heads, kv_heads, head_dim, vocab, context;
    float rms_eps, rope_base, rope_scale;
    bool rope_interleaved;
    int sliding_window, global_every;
    float rope_base_local, attention_scale;
    bool qkv_bias, qk_norm, post_norms, gelu;
    float embedding_scale;
    bool tied_head, rope_factors;

    CacheShape cache_shape() const { return {layers, kv_heads, head_dim, qk_norm}; }
};

// Where a tensor lies in the mapping; bits 32 is plain float32.
struct Place {
    uint64_t offset, bytes;
    int n_out, n_in, bits;
};

struct LayerWeights {
    bool global = true;
    Linear q, k, v, o, gate, up, down;
    const float *attention_norm = nullptr, *feed_norm = nullptr;
    const float *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr;
    const float *q_norm = nullptr, *k_norm = nullptr;
    const float *post_attention_norm = nullptr, *post_feed_norm = nullptr;
};

// Cosines and sines of position times frequency for any position: the product of a coarse and a fine table of complex
// numbers in double precision, so that a long context needs no long table.
class Rotary {
public:
    Rotary() = default;
    Rotary(int head_dim, int context, double base, double position_scale, const float* factors);
    void angles(int position, float* cosine, float* sine) const;   // [head_dim / 2] each

private:
    static constexpr int FINE = 256;
    int half_ = 0;
    std::vector<double> fine_, coarse_;   // [entries][half][cosine, sine]
};

// What one step computes; see `Model.step` in _kernel.pyi. Pointers are borrowed for the call.
struct StepInput {
    int rows = 0, sequences = 0, table_width = 0, choices = 0, top = 0;
    const int32_t *tokens = nullptr, *positions = nullptr, *sequence_of = nullptr, *tables = nullptr;
    const int32_t* chosen = nullptr;
    const float *temperature = nullptr, *top_p = nullptr, *min_p = nullptr;
    const int32_t *top_k = nullptr, *choice = nullptr;
    const uint64_t* seed = nullptr;
    const float *presence_penalty = nullptr, *frequency_penalty = nullptr, *repetition_penalty = nullptr;
    const int32_t *count_offsets = nullptr, *count_ids = nullptr, *count_values = nullptr;
    const int32_t *bias_offsets = nullptr, *bias_ids = nullptr;
    const float* bias_values = nullptr;
    const int32_t* mask_index = nullptr;
    const uint32_t* masks = nullptr;
    int mask_rows = 0, mask_words = 0;
    size_t counts = 0, biases = 0;   // lengths of the CSR arrays
};
struct StepOutput {
    int32_t *ids, *top_ids;
    float *logprobs, *top_logprobs;
    float* logits;   // [choices][vocab], or null
};

class Model {
public:
    // The mapping must outlive the model. Throws std::invalid_argument for anything missing, misshapen or out of bounds.
    Model(const uint8_t* mapping, size_t bytes, const Shape& shape, const std::map<std::string, Place>& places,
          const Path& path);

    const Shape& shape() const { return shape_; }
    const Path& path() const { return path_; }
    CacheShape cache_shape() const { return shape_.cache_shape(); }

    // Throws std::invalid_argument, before anything is written, for whatever is out of range. One step at a time runs on
    // a model, a cache and a team; further callers wait.
    void step(Cache& cache, Threads& threads, const StepInput& in, const StepOutput& out);

private:
    friend class Step;
    Shape shape_;
    Path path_;
    Linear embedding_, head_;
    const float* output_norm_ = nullptr;
    std::vector<LayerWeights> layers_;
    Rotary rotary_, rotary_local_;
    std::mutex busy_;
    std::vector<std::unique_ptr<Chooser>> choosers_;   // one per member of the team
};

// Throws std::invalid_argument naming what is out of range. Claims the cache slots that the rows will write.
void check_step(const Shape& shape, Cache& cache, const StepInput& in);

}  // namespace gearshift
