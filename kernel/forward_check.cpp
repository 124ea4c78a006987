// Everything that a step's input may get wrong, before any memory is touched.
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "forward.h"

namespace gearshift {
namespace {

// Builds the message only when the check fails.
template <class... Parts>
void require(bool holds, const Parts&... parts) {
    if (holds) return;
    std::string message;
    const auto append = [&](const auto& part) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) message += std::to_string(part);
        else message += part;
    };
    (append(parts), ...);
    throw std::invalid_argument(message);
}

void check_rows(const Shape& shape, Cache& cache, const StepInput& in) {
    struct Sequence {
        int next = -1, last_block = -1;
    };
    std::vector<Sequence> seen(in.sequences);
    const uint32_t stamp = cache.next_stamp();
    for (int row = 0; row < in.rows; ++row) {
        const int token = in.tokens[row], position = in.positions[row], sequence = in.sequence_of[row];
        require(token >= 0 && token < shape.vocab, "tokens[", row, "] is ", token, ", expected 0 to ", shape.vocab - 1);
        require(position >= 0 && position < shape.context, "positions[", row, "] is ", position, ", expected 0 to ",
                shape.context - 1);
        require(sequence >= 0 && sequence < in.sequences, "sequences[", row, "] is ", sequence,
                ", expected a row of tables, 0 to ", in.sequences - 1);
        Sequence& at = seen[sequence];
        require(at.next < 0 || position == at.next, "positions[", row, "] is ", position, ", expected ", at.next,
                ": the rows of one sequence have consecutive positions");
        at.next = position + 1;
        const int block_index = position / BLOCK_TOKENS;
        require(block_index < in.table_width, "positions[", row, "] is ", position, ", but tables has only ",
                in.table_width, " blocks of ", BLOCK_TOKENS, " positions");
        const int32_t* table = in.tables + size_t(sequence) * in.table_width;
        for (; at.last_block < block_index; ++at.last_block) {
            const int i = at.last_block + 1, block = table[i];
            require(block >= 0 && block < cache.blocks(), "tables[", sequence, "][", i, "] is ", block,
                    ", expected a block of the cache, 0 to ", cache.blocks() - 1);
        }
        require(cache.claim(table[block_index], position % BLOCK_TOKENS, stamp), "row ", row,
                " writes the same cache slot as an earlier row: block ", table[block_index], ", offset ",
                position % BLOCK_TOKENS);
    }
}

void check_offsets(const char* name, const int32_t* offsets, int choices, size_t length) {
    require(offsets[0] == 0, name, "[0] is ", offsets[0], ", expected 0");
    for (int i = 0; i < choices; ++i)
        require(offsets[i + 1] >= offsets[i], name, "[", i + 1, "] is ", offsets[i + 1], ", less than the one before");
    require(size_t(offsets[choices]) == length, name, " ends with ", offsets[choices], ", expected ", length);
}

void check_ids(const char* name, const int32_t* ids, size_t length, int vocab) {
    for (size_t i = 0; i < length; ++i)
        require(ids[i] >= 0 && ids[i] < vocab, name, "[", i, "] is ", ids[i], ", expected 0 to ", vocab - 1);
}

void check_choices(const Shape& shape, const StepInput& in) {
    check_offsets("count_offsets", in.count_offsets, in.choices, in.counts);
    check_offsets("bias_offsets", in.bias_offsets, in.choices, in.biases);
    check_ids("count_ids", in.count_ids, in.counts, shape.vocab);
    check_ids("bias_ids", in.bias_ids, in.biases, shape.vocab);
    for (size_t i = 0; i < in.counts; ++i)
        require(in.count_values[i] >= 0 && in.count_values[i] < 2 * COUNT_IN_PROMPT, "count_values[", i, "] is ",
                in.count_values[i], ", expected 0 to ", 2 * COUNT_IN_PROMPT - 1);
    for (int i = 0; i < in.choices; ++i) {
        require(in.chosen[i] >= 0 && in.chosen[i] < in.rows, "chosen[", i, "] is ", in.chosen[i],
                ", expected a row, 0 to ", in.rows - 1);
        require(i == 0 || in.chosen[i] > in.chosen[i - 1], "chosen[", i, "] is ", in.chosen[i],
                ", expected more than the one before");
        const auto finite = [&](const char* name, const float* values, float low) {
            require(std::isfinite(values[i]) && values[i] >= low, name, "[", i, "] is ", values[i],
                    ", expected a finite number of at least ", low);
        };
        finite("temperature", in.temperature, 0.0f);
        finite("top_p", in.top_p, 0.0f);
        finite("min_p", in.min_p, 0.0f);
        finite("presence_penalty", in.presence_penalty, -1e6f);
        finite("frequency_penalty", in.frequency_penalty, -1e6f);
        finite("repetition_penalty", in.repetition_penalty, 1e-6f);
        require(in.top_k[i] >= 0, "top_k[", i, "] is ", in.top_k[i], ", expected 0 or more");
        require(in.mask_index[i] >= -1 && in.mask_index[i] < in.mask_rows, "mask_index[", i, "] is ", in.mask_index[i],
                ", expected -1 or a row of masks, 0 to ", in.mask_rows - 1);
    }
    require(in.mask_rows == 0 || in.mask_words == (shape.vocab + 31) / 32, "masks has ", in.mask_words,
            " words per row, expected ", (shape.vocab + 31) / 32);
    require(in.top >= 0 && in.top <= MAX_TOP_LOGPROBS, "top_logprobs is ", in.top, ", expected 0 to ", MAX_TOP_LOGPROBS);
}

}  // namespace

void check_step(const Shape& shape, Cache& cache, const StepInput& in) {
    require(cache.shape() == shape.cache_shape(),
            "the cache was made for another model: its layers, heads, head_dim or kind of keys differ");
    check_choices(shape, in);
    check_rows(shape, cache, in);
}

}  // namespace gearshift
